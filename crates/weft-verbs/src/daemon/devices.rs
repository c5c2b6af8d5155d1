//! The devices by name, their owners and their limits.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::quotas::{Kind, Quotas, ROOT};
use crate::attach::{Amounts, Refusal};
use crate::engine::command::Command;

/// A device, whether or not a process is attached to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// The user who owns it.
    pub(super) owner: u32,
    pub(super) limits: Amounts,
}

/// All devices, by name.
#[derive(Debug, Default)]
pub(super) struct Devices {
    named: BTreeMap<String, Named>,
    /// Number of each user's devices.
    by_owner: BTreeMap<u32, u32>,
}

/// Maximum number of devices. Each takes a few hundred bytes.
const MAX_DEVICES: usize = 1 << 17;

/// Maximum length of a name, bytes: programs have room for one more.
const MAX_NAME: usize = 63;

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let all = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    first && all && name.len() <= MAX_NAME
}

impl Devices {
    /// Makes a device for `owner`; the default is the caller.
    pub(super) fn create(
        &mut self,
        user: u32,
        name: &str,
        owner: Option<u32>,
        limits: Amounts,
        quotas: &Quotas,
    ) -> Result<(), Refusal> {
        if !is_name(name) {
            let reason = format!(
                "{name:?} is no name: up to {MAX_NAME} letters, digits, dots, dashes and \
                 underscores, a letter or digit first"
            );
            return Err(Refusal::new(libc::EINVAL, reason));
        }
        let owner = owner.unwrap_or(user);
        if user != ROOT && owner != user {
            let reason = "only root makes devices for others: leave --owner out, or be root";
            return Err(Refusal::new(libc::EPERM, reason));
        }
        if self.named.contains_key(name) {
            let reason = format!("there is a device {name} already: `weft device show {name}`");
            return Err(Refusal::new(libc::EEXIST, reason));
        }
        if self.named.len() >= MAX_DEVICES {
            let reason =
                format!("there are {MAX_DEVICES} devices, which is the limit: delete some");
            return Err(Refusal::new(libc::ENOSPC, reason));
        }
        if user != ROOT {
            quotas.check(user, Kind::Devices, self.count_of(user))?;
        }
        self.named.insert(name.into(), Named { owner, limits });
        *self.by_owner.entry(owner).or_default() += 1;
        Ok(())
    }

    /// Returns a device that this user may use.
    pub(super) fn find(&self, user: u32, name: &str) -> Result<Named, Refusal> {
        let device = self.named.get(name).ok_or_else(|| {
            let reason = format!("there is no such device: `weft device create {name}` makes one");
            Refusal::new(libc::ENODEV, reason)
        })?;
        if user == ROOT || user == device.owner {
            return Ok(*device);
        }
        let reason = format!("{name} belongs to user {}, not to user {user}", device.owner);
        Err(Refusal::new(libc::EACCES, reason))
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(Named { owner, .. }) = self.named.remove(name) else { return };
        let count = self.by_owner.get_mut(&owner).expect("its owner has it");
        *count -= 1;
        if *count == 0 {
            self.by_owner.remove(&owner);
        }
    }

    /// Returns the number of devices of a user.
    pub(super) fn count_of(&self, owner: u32) -> u32 {
        self.by_owner.get(&owner).copied().unwrap_or(0)
    }

    /// Returns the devices that this user may use whose names follow `name`.
    pub(super) fn after(&self, user: u32, name: &str) -> impl Iterator<Item = (&String, &Named)> {
        let later = (Bound::Excluded(name), Bound::Unbounded);
        let may_use = move |device: &Named| user == ROOT || user == device.owner;
        self.named.range::<str, _>(later).filter(move |(_, device)| may_use(device))
    }
}

/// Returns the kind of object whose number a command changes, if any, and `true` if it grows.
pub(super) const fn change(command: &Command) -> Option<(Kind, bool)> {
    Some(match command {
        Command::AllocateDomain(_) => (Kind::Domains, true),
        Command::DeallocateDomain(_) => (Kind::Domains, false),
        Command::Register(..) | Command::AllocateWindow(..) => (Kind::Regions, true),
        Command::Deregister(_) | Command::DeallocateWindow(_) => (Kind::Regions, false),
        Command::CreateCq(..) => (Kind::CompletionQueues, true),
        Command::DestroyCq(_) => (Kind::CompletionQueues, false),
        Command::CreateSrq { .. } => (Kind::SharedReceiveQueues, true),
        Command::DestroySrq(_) => (Kind::SharedReceiveQueues, false),
        Command::CreateQp(_) => (Kind::QueuePairs, true),
        Command::DestroyQp(_) => (Kind::QueuePairs, false),
        _ => return None,
    })
}

/// Returns the sums of two sets of amounts.
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
    use weft_rnic::Limits;

    use super::*;
    use crate::daemon::QuotaSettings;

    fn quotas() -> Quotas {
        Quotas::new(&QuotaSettings::default(), &Limits::default(), Some(ROOT))
    }

    /// A user tries to take all the names.
    #[test]
    fn a_user_makes_no_more_devices_than_the_quota_and_root_makes_more_for_it() {
        let mut settings = QuotaSettings::default();
        settings.set("devices-per-user", "2").unwrap();
        let quotas = Quotas::new(&settings, &Limits::default(), Some(ROOT));
        let mut devices = Devices::default();
        let create = |devices: &mut Devices, user, name: &str| {
            let created = devices.create(user, name, Some(7), Amounts::NONE, &quotas);
            created.map_err(|refusal| refusal.reason)
        };
        assert_eq!((create(&mut devices, 7, "a"), create(&mut devices, 7, "b")), (Ok(()), Ok(())));
        let refused = create(&mut devices, 7, "c").unwrap_err();
        assert!(refused.contains("devices-per-user"), "{refused}");
        assert_eq!(create(&mut devices, ROOT, "c"), Ok(()));
        devices.remove("a");
        assert!(create(&mut devices, 7, "d").is_err(), "there are two");
        devices.remove("b");
        assert_eq!((create(&mut devices, 7, "d"), devices.count_of(7)), (Ok(()), 2));
    }

    #[test]
    fn names_are_valid_and_unique() {
        let mut devices = Devices::default();
        let mut create = |name: &str| {
            let created = devices.create(7, name, None, Amounts::default(), &quotas());
            created.map_err(|refusal| refusal.errno)
        };
        assert_eq!(create("tenant-1.a_b"), Ok(()));
        assert_eq!(create("tenant-1.a_b"), Err(libc::EEXIST));
        let long = "x".repeat(MAX_NAME + 1);
        for wrong in ["", "..", "-a", "a/b", "a b", "ä", &long] {
            assert_eq!(create(wrong), Err(libc::EINVAL), "{wrong}");
        }
    }

    #[test]
    fn a_device_is_its_owner_s_and_root_s() {
        let mut devices = Devices::default();
        devices.create(ROOT, "a", Some(7), Amounts::default(), &quotas()).unwrap();
        devices.create(8, "b", None, Amounts::default(), &quotas()).unwrap();
        let for_another = devices.create(8, "c", Some(7), Amounts::NONE, &quotas());
        assert_eq!(for_another.unwrap_err().errno, libc::EPERM);
        let find = |user, name| devices.find(user, name).map(|found| found.owner);
        assert_eq!((find(7, "a"), find(ROOT, "a")), (Ok(7), Ok(7)));
        assert_eq!(find(8, "a").unwrap_err().errno, libc::EACCES);
        assert_eq!(find(8, "z").unwrap_err().errno, libc::ENODEV);
        let listed = |user, after| {
            devices.after(user, after).map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(
            (listed(ROOT, ""), listed(7, ""), listed(ROOT, "a")),
            (vec!["a", "b"], vec!["a"], vec!["b"])
        );
    }
}
