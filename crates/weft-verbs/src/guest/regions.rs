//! The regions that a process has registered. The relay keeps the mapping of each, the library its pinned pages, until
//! the daemon has forgotten the region.

use std::collections::BTreeMap;

use weft_rnic::{Context, ProtectionDomain};

use crate::engine::command::{Command, Reply};

/// The regions with a value that each needs, and the contexts of their domains: the end of a context ends them too.
#[derive(Debug)]
pub(super) struct Regions<T> {
    held: BTreeMap<u32, (ProtectionDomain, T)>,
    domains: BTreeMap<ProtectionDomain, Context>,
}

impl<T> Default for Regions<T> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), domains: BTreeMap::new() }
    }
}

impl<T> Regions<T> {
    /// Applies a command that the daemon has executed. `held` is the value of a new region.
    pub(super) fn follow(&mut self, command: &Command, reply: &Reply, held: Option<T>) {
        match (*command, reply) {
            (Command::AllocateDomain(context), Reply::Number(domain)) => {
                self.domains.insert(ProtectionDomain(*domain), context);
            }
            (Command::DeallocateDomain(domain), _) => drop(self.domains.remove(&domain)),
            (Command::Register(domain, _), Reply::Number(key)) => {
                self.held.extend(held.map(|held| (*key, (domain, held))));
            }
            (Command::Reregister { key, domain: Some(domain), .. }, _) => {
                if let Some(region) = self.held.get_mut(&key) {
                    region.0 = domain;
                }
            }
            (Command::Deregister(key), _) => drop(self.held.remove(&key)),
            (Command::CloseContext(context), _) => {
                self.domains.retain(|_, of| *of != context);
                let domains = &self.domains;
                self.held.retain(|_, (domain, _)| domains.contains_key(domain));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use weft_rnic::Access;

    use super::*;
    use crate::engine::Region;

    /// Two contexts with a domain each; the first has two regions, the second one.
    #[test]
    fn what_a_region_needs_is_released_with_it_or_its_context() {
        let (held, mut regions) = (Rc::new(()), Regions::default());
        for context in [1, 2] {
            let allocate = Command::AllocateDomain(Context(context));
            regions.follow(&allocate, &Reply::Number(10 + context), None);
        }
        let region = Region { address: 0, length: 1, iova: 0, access: Access::NONE };
        for (domain, key) in [(11, 7), (11, 8), (12, 9)] {
            let register = Command::Register(ProtectionDomain(domain), region);
            regions.follow(&register, &Reply::Number(key), Some(held.clone()));
        }
        let mut after = |command| {
            regions.follow(&command, &Reply::Done, None);
            Rc::strong_count(&held) - 1
        };
        assert_eq!(after(Command::Deregister(7)), 2);
        let domain = Some(ProtectionDomain(12));
        assert_eq!(after(Command::Reregister { key: 8, domain, place: None, access: None }), 2);
        assert_eq!(after(Command::CloseContext(Context(1))), 2, "both are in the other's domain");
        assert_eq!(after(Command::CloseContext(Context(2))), 0);
    }
}
