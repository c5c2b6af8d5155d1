//! The admission of datagrams: they must be from agents in the inventory, from the addresses listed for them, and in
//! sequence. The agent address in a datagram is a claim; its source address comes from the network. A host that can
//! forge source addresses can still inject data, so routers and controller belong in a separate network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::Inventory;

/// The agents of an inventory, and their sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Admission {
    agents: BTreeMap<IpAddr, Agent>,
    /// The source addresses of all agents.
    sources: BTreeSet<IpAddr>,
    /// The sequence numbers, by agent and sub-agent.
    numbers: BTreeMap<(IpAddr, u32), Numbers>,
}

/// A router's agent.
#[derive(Debug)]
struct Agent {
    router: String,
    sources: Vec<IpAddr>,
}

/// The reason why a datagram is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// No router has this agent.
    UnknownAgent,
    /// The agent's router does not list this source.
    ForeignSource,
    /// The agent has more sub-agents than a router has line cards.
    TooManySubAgents,
}

/// The position of a datagram in the sequence of its sub-agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is newer than the last; `lost` datagrams between the two are missing.
    Next { lost: u32 },
    /// It is a repetition, or arrived long after the next.
    Late,
    /// Its sequence number is far from the last one.
    Jumped,
}

/// Maximum number of datagrams lost in a row; beyond it the next is not believed.
const MAX_GAP: u32 = 1 << 12;
/// Number of consecutive sequence numbers after which an agent is considered restarted.
const RESTART_RUN: u8 = 3;
/// Maximum number of sub-agents of an agent: a chassis has one for each line card.
const MAX_SUB_AGENTS: usize = 64;

impl Admission {
    /// Replaces the agents by those of these routers; sequence numbers stay.
    pub(super) fn set(&mut self, inventory: &Inventory) {
        let agents = inventory.routers.iter().map(|router| {
            let sources = router.sources().map(|it| it.to_canonical()).collect();
            (router.agent, Agent { router: router.name.clone(), sources })
        });
        self.agents = agents.collect();
        self.sources = self.agents.values().flat_map(|it| it.sources.iter().copied()).collect();
        let agents = &self.agents;
        self.numbers.retain(|(agent, _), _| agents.contains_key(agent));
    }

    /// Returns `true` if some agent sends from this address.
    pub(super) fn knows(&self, source: IpAddr) -> bool {
        self.sources.contains(&source)
    }

    /// Returns the router of a datagram's agent.
    ///
    /// # Errors
    /// Returns the reason if there is none.
    pub(super) fn router(&self, agent: IpAddr, source: IpAddr) -> Result<&str, Rejection> {
        let known = self.agents.get(&agent).ok_or(Rejection::UnknownAgent)?;
        if known.sources.contains(&source) {
            Ok(&known.router)
        } else {
            Err(Rejection::ForeignSource)
        }
    }

    /// Returns the position of an admitted agent's datagram in the sequence of its sub-agent.
    ///
    /// # Errors
    /// Returns `TooManySubAgents`.
    pub(super) fn place(
        &mut self,
        agent: IpAddr,
        sub_agent: u32,
        number: u32,
    ) -> Result<Place, Rejection> {
        if let Some(numbers) = self.numbers.get_mut(&(agent, sub_agent)) {
            return Ok(numbers.place(number));
        }
        if self.numbers.range((agent, 0)..=(agent, u32::MAX)).count() >= MAX_SUB_AGENTS {
            return Err(Rejection::TooManySubAgents);
        }
        self.numbers.insert((agent, sub_agent), Numbers { last: number, doubted: None });
        Ok(Place::Next { lost: 0 })
    }
}

/// The sequence numbers of a sub-agent.
#[derive(Debug)]
struct Numbers {
    last: u32,
    /// A number that does not follow the last, and the length of the consecutive run that ends with it. One forged
    /// number must not make the agent's own numbers look old.
    doubted: Option<(u32, u8)>,
}

impl Numbers {
    fn place(&mut self, number: u32) -> Place {
        let ahead = number.wrapping_sub(self.last);
        if (1..=MAX_GAP).contains(&ahead) {
            *self = Self { last: number, doubted: None };
            return Place::Next { lost: ahead - 1 };
        }
        let run = match self.doubted {
            Some((before, run)) if number == before.wrapping_add(1) => run + 1,
            _ => 1,
        };
        if run >= RESTART_RUN {
            *self = Self { last: number, doubted: None };
            return Place::Next { lost: 0 };
        }
        self.doubted = Some((number, run));
        if self.last.wrapping_sub(number) < MAX_GAP { Place::Late } else { Place::Jumped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(numbers: &[u32]) -> Vec<Place> {
        let mut known = Numbers { last: 100, doubted: None };
        numbers.iter().map(|&number| known.place(number)).collect()
    }

    const NEXT: Place = Place::Next { lost: 0 };

    #[test]
    fn a_forged_number_does_not_make_the_agents_own_look_old() {
        assert_eq!(places(&[5_000_000, 101, 102]), [Place::Jumped, NEXT, NEXT]);
        // A forged number within the gap is accepted; the agent's numbers are accepted again after three in a row.
        let lost = Place::Next { lost: 3899 };
        assert_eq!(
            places(&[4000, 101, 102, 103, 104]),
            [lost, Place::Late, Place::Late, NEXT, NEXT]
        );
    }

    #[test]
    fn an_agent_that_began_anew_is_believed_after_three_in_a_row() {
        assert_eq!(places(&[1, 2, 3, 4]), [Place::Late, Place::Late, NEXT, NEXT]);
        let far = [7_000_000, 7_000_001, 7_000_002];
        assert_eq!(places(&far), [Place::Jumped, Place::Jumped, NEXT]);
        assert_eq!(places(&[7_000_000, 9, 7_000_001]), [Place::Jumped, Place::Late, Place::Jumped]);
    }

    #[test]
    fn numbers_wrap() {
        let mut known = Numbers { last: u32::MAX, doubted: None };
        assert_eq!(known.place(1), Place::Next { lost: 1 });
        assert_eq!(known.place(u32::MAX), Place::Late);
    }

    #[test]
    fn invented_sub_agents_take_bounded_memory() {
        let mut admission = Admission::default();
        let agent = IpAddr::from([10, 0, 0, 1]);
        let taken = (0..10_000).filter(|&it| admission.place(agent, it, 7).is_ok()).count();
        assert_eq!((taken, admission.numbers.len()), (MAX_SUB_AGENTS, MAX_SUB_AGENTS));
        assert_eq!(admission.place(agent, 3, 8), Ok(NEXT), "one that was there before");
    }
}
