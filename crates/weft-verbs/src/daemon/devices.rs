//! The devices by name: whose each is, and what it may have.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::attach::{Amounts, Refusal};
use crate::engine::command::Command;

/// A device, whether or not a process is attached to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// The user whose it is.
    pub(super) owner: u32,
    pub(super) limits: Amounts,
}

/// All of them, by name.
#[derive(Debug, Default)]
pub(super) struct Devices(BTreeMap<String, Named>);

/// Devices at a time. Each is a few hundred bytes.
const MOST: usize = 1 << 17;

/// Bytes of a name: programs have room for one more.
const LONGEST_NAME: usize = 63;

/// The user who may do everything.
pub(super) const ROOT: u32 = 0;

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let all = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    first && all && name.len() <= LONGEST_NAME
}

impl Devices {
    /// Makes a device for `owner`, or for who asks.
    pub(super) fn create(
        &mut self,
        user: u32,
        name: &str,
        owner: Option<u32>,
        limits: Amounts,
    ) -> Result<(), Refusal> {
        if !is_name(name) {
            let reason = format!(
                "{name:?} is no name: up to {LONGEST_NAME} letters, digits, dots, dashes and \
                 underscores, a letter or digit first"
            );
            return Err(Refusal::new(libc::EINVAL, reason));
        }
        let owner = owner.unwrap_or(user);
        if user != ROOT && owner != user {
            let reason = "only root makes devices for others: leave --owner out, or be root";
            return Err(Refusal::new(libc::EPERM, reason));
        }
        if self.0.contains_key(name) {
            let reason = format!("there is a device {name} already: `weft device show {name}`");
            return Err(Refusal::new(libc::EEXIST, reason));
        }
        if self.0.len() >= MOST {
            let reason = format!("there are {MOST} devices, which is the limit: delete some");
            return Err(Refusal::new(libc::ENOSPC, reason));
        }
        self.0.insert(name.into(), Named { owner, limits });
        Ok(())
    }

    /// A device that this user may use.
    pub(super) fn find(&self, user: u32, name: &str) -> Result<Named, Refusal> {
        let device = self.0.get(name).ok_or_else(|| {
            let reason = format!("there is no such device: `weft device create {name}` makes one");
            Refusal::new(libc::ENODEV, reason)
        })?;
        if user == ROOT || user == device.owner {
            return Ok(*device);
        }
        let reason = format!("{name} is user {}'s, and this is user {user}", device.owner);
        Err(Refusal::new(libc::EACCES, reason))
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The devices that this user may use whose names come after this one's.
    pub(super) fn after(&self, user: u32, name: &str) -> impl Iterator<Item = (&String, &Named)> {
        let later = (Bound::Excluded(name), Bound::Unbounded);
        let may_use = move |device: &Named| user == ROOT || user == device.owner;
        self.0.range::<str, _>(later).filter(move |(_, device)| may_use(device))
    }
}

/// Which amount a command changes, and whether it grows.
type Change = (fn(&mut Amounts) -> &mut u32, bool);

/// What a command changes, if it changes an amount.
pub(super) fn change(command: &Command) -> Option<Change> {
    Some(match command {
        Command::AllocateDomain(_) => (|amounts| &mut amounts.domains, true),
        Command::DeallocateDomain(_) => (|amounts| &mut amounts.domains, false),
        Command::Register(..) | Command::AllocateWindow(..) => {
            (|amounts| &mut amounts.regions, true)
        }
        Command::Deregister(_) | Command::DeallocateWindow(_) => {
            (|amounts| &mut amounts.regions, false)
        }
        Command::CreateCq(..) => (|amounts| &mut amounts.completion_queues, true),
        Command::DestroyCq(_) => (|amounts| &mut amounts.completion_queues, false),
        Command::CreateSrq { .. } => (|amounts| &mut amounts.shared_receive_queues, true),
        Command::DestroySrq(_) => (|amounts| &mut amounts.shared_receive_queues, false),
        Command::CreateQp(_) => (|amounts| &mut amounts.queue_pairs, true),
        Command::DestroyQp(_) => (|amounts| &mut amounts.queue_pairs, false),
        _ => return None,
    })
}

/// What two have together.
pub(super) fn sum(a: Amounts, b: Amounts) -> Amounts {
    Amounts {
        processes: a.processes + b.processes,
        domains: a.domains + b.domains,
        regions: a.regions + b.regions,
        completion_queues: a.completion_queues + b.completion_queues,
        shared_receive_queues: a.shared_receive_queues + b.shared_receive_queues,
        queue_pairs: a.queue_pairs + b.queue_pairs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_taken_once() {
        let mut devices = Devices::default();
        let mut create = |name: &str| {
            let created = devices.create(7, name, None, Amounts::default());
            created.map_err(|refusal| refusal.errno)
        };
        assert_eq!(create("tenant-1.a_b"), Ok(()));
        assert_eq!(create("tenant-1.a_b"), Err(libc::EEXIST));
        let long = "x".repeat(LONGEST_NAME + 1);
        for wrong in ["", "..", "-a", "a/b", "a b", "ä", &long] {
            assert_eq!(create(wrong), Err(libc::EINVAL), "{wrong}");
        }
    }

    #[test]
    fn a_device_is_its_owner_s_and_root_s() {
        let mut devices = Devices::default();
        devices.create(ROOT, "a", Some(7), Amounts::default()).unwrap();
        devices.create(8, "b", None, Amounts::default()).unwrap();
        assert_eq!(devices.create(8, "c", Some(7), Amounts::NONE).unwrap_err().errno, libc::EPERM);
        let find = |user, name| devices.find(user, name).map(|found| found.owner);
        assert_eq!((find(7, "a"), find(ROOT, "a")), (Ok(7), Ok(7)));
        assert_eq!(find(8, "a").unwrap_err().errno, libc::EACCES);
        assert_eq!(find(8, "z").unwrap_err().errno, libc::ENODEV);
        let seen = |user, after| {
            devices.after(user, after).map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(
            (seen(ROOT, ""), seen(7, ""), seen(ROOT, "a")),
            (vec!["a", "b"], vec!["a"], vec!["b"])
        );
    }
}
