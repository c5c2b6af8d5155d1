//! The devices by name: their owners and limits, and the state of those that a process has used.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::{Deserialize, Serialize};
use weft_units::Instant;

use super::ClientId;
use super::pace::Pace;
use super::quotas::{Kind, Quotas, ROOT};
use crate::attach::{Amounts, DeviceCounters, DeviceLimits, Names, Refusal};
use crate::engine::command::Command;

/// A device, whether or not a process has used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// The user who owns it.
    pub(super) owner: u32,
    pub(super) limits: DeviceLimits,
}

/// A change of the devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Change {
    Create { names: Names, owner: u32, limits: DeviceLimits },
    Delete { names: Names },
}

/// The state of a device from its first process on. A device without one has only its row.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// The attached processes.
    pub(super) clients: BTreeSet<ClientId>,
    /// The event counts of processes that have ended.
    pub(super) counters: DeviceCounters,
    pace: Pace,
}

/// All devices, by name.
#[derive(Debug, Default)]
pub(super) struct Devices {
    named: BTreeMap<Box<str>, Named>,
    used: BTreeMap<Box<str>, Used>,
    /// Number of each user's devices.
    by_owner: BTreeMap<u32, u32>,
}

/// Maximum number of devices. Each takes some two hundred bytes.
const MAX_DEVICES: usize = 1 << 17;

/// Maximum length of a name, bytes: programs have room for one more.
const MAX_NAME: usize = 63;

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let all = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    first && all && name.len() <= MAX_NAME
}

/// Returns the names after the name of the one before it.
fn following<'a, T>(
    map: &'a BTreeMap<Box<str>, T>,
    name: &str,
) -> impl Iterator<Item = (&'a str, &'a T)> + use<'a, T> {
    let later = map.range::<str, _>((Bound::Excluded(name), Bound::Unbounded));
    later.map(|(name, value)| (&**name, value))
}

impl Devices {
    /// Checks that devices may be made for `owner`, all of them; the default is the caller. Returns the change.
    pub(super) fn check_creation(
        &self,
        user: u32,
        names: Names,
        owner: Option<u32>,
        limits: DeviceLimits,
        quotas: &Quotas,
    ) -> Result<Change, Refusal> {
        let owner = owner.unwrap_or(user);
        if user != ROOT && owner != user {
            let reason = "only root makes devices for others: leave --owner out, or be root";
            return Err(Refusal::new(libc::EPERM, reason));
        }
        if limits.messages_per_second == Some(0) {
            let reason = "a device sends at least one message a second: give --messages-per-second from 1, or leave it out";
            return Err(Refusal::new(libc::EINVAL, reason));
        }
        let count = names.count();
        if count == 0 {
            return Err(Refusal::new(libc::EINVAL, "--count is from 1"));
        }
        self.check_room(count).map_err(|reason| Refusal::new(libc::ENOSPC, reason))?;
        if user != ROOT {
            quotas.check_more(user, Kind::Devices, self.count_of(user), count)?;
        }
        names.iter().try_for_each(|name| self.check_new(&name))?;
        Ok(Change::Create { names, owner, limits })
    }

    /// Checks that there is room for `count` more devices; an error is the reason.
    pub(super) fn check_room(&self, count: u32) -> Result<(), String> {
        let has = self.named.len();
        if has + count as usize <= MAX_DEVICES {
            return Ok(());
        }
        Err(format!("there are {has} devices, and the limit is {MAX_DEVICES}: delete some"))
    }

    /// Returns `true` if there is a device of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// Checks that a device may have this name.
    pub(super) fn check_new(&self, name: &str) -> Result<(), Refusal> {
        if !is_name(name) {
            let reason = format!(
                "{name:?} is no name: up to {MAX_NAME} letters, digits, dots, dashes and \
                 underscores, a letter or digit first"
            );
            return Err(Refusal::new(libc::EINVAL, reason));
        }
        if self.named.contains_key(name) {
            let reason = format!("there is a device {name} already: `weft device show {name}`");
            return Err(Refusal::new(libc::EEXIST, reason));
        }
        Ok(())
    }

    /// Makes devices, whose names are new, or removes devices that exist.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Create { names, owner, limits } => {
                *self.by_owner.entry(*owner).or_default() += names.count();
                let named = Named { owner: *owner, limits: *limits };
                self.named.extend(names.iter().map(|name| (name.into_boxed_str(), named)));
            }
            Change::Delete { names } => names.iter().for_each(|name| self.remove(&name)),
        }
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

    fn remove(&mut self, name: &str) {
        let Some(Named { owner, .. }) = self.named.remove(name) else { return };
        self.used.remove(name);
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

    /// Returns the number of devices that a user may use.
    pub(super) fn count_for(&self, user: u32) -> u32 {
        let all = || u32::try_from(self.named.len()).expect("at most the limit");
        if user == ROOT { all() } else { self.count_of(user) }
    }

    /// Returns the state of a device that a process has used.
    pub(super) fn used(&self, name: &str) -> Option<&Used> {
        self.used.get(name)
    }

    /// Returns the state of a device that exists, for an attached process or for one that ends.
    pub(super) fn used_mut(&mut self, name: &str) -> Option<&mut Used> {
        if !self.used.contains_key(name) && self.named.contains_key(name) {
            self.used.insert(name.into(), Used::default());
        }
        self.used.get_mut(name)
    }

    /// Returns the time from which a device may send, if its limit of messages makes it wait.
    pub(super) fn waits_until(&self, name: &str, now: Instant) -> Option<Instant> {
        self.used.get(name)?.pace.waits_until(now)
    }

    /// Counts a message of a device with a limit of messages a second.
    pub(super) fn charge(&mut self, name: &str, now: Instant, per_second: u32) {
        if let Some(used) = self.used.get_mut(name) {
            used.pace.charge(now, per_second);
        }
    }

    /// Returns the names after `name` of devices that this user may use; with `used` only those that a process has used.
    pub(super) fn after<'a>(
        &'a self,
        user: u32,
        name: &str,
        used: bool,
    ) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        let may_use = move |device: &Named| user == ROOT || user == device.owner;
        if used {
            let later = following(&self.used, name).map(|(name, _)| name);
            return Box::new(later.filter(move |name| self.named.get(*name).is_some_and(may_use)));
        }
        Box::new(
            following(&self.named, name).filter(move |(_, it)| may_use(it)).map(|(name, _)| name),
        )
    }

    /// Returns every device, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Named)> {
        self.named.iter().map(|(name, device)| (&**name, device))
    }

    /// Returns the number of devices.
    pub(super) fn len(&self) -> usize {
        self.named.len()
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

    impl Devices {
        /// Makes devices if that is allowed.
        fn create(
            &mut self,
            user: u32,
            names: impl Into<Names>,
            owner: Option<u32>,
            limits: Amounts,
            quotas: &Quotas,
        ) -> Result<(), Refusal> {
            let change = self.check_creation(user, names.into(), owner, limits.into(), quotas)?;
            self.apply(&change);
            Ok(())
        }
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
        let listed = |user, after| devices.after(user, after, false).collect::<Vec<_>>();
        assert_eq!(
            (listed(ROOT, ""), listed(7, ""), listed(ROOT, "a")),
            (vec!["a", "b"], vec!["a"], vec!["b"])
        );
    }

    #[test]
    fn of_several_devices_all_are_made_or_none() {
        let mut devices = Devices::default();
        devices.create(7, "t-500", None, Amounts::default(), &quotas()).unwrap();
        let many = |first, count| Names::numbered("t", first, count);
        let refused = devices.create(7, many(0, 1_000), None, Amounts::NONE, &quotas());
        assert_eq!(refused.unwrap_err().errno, libc::EEXIST);
        assert_eq!(devices.len(), 1);
        let refused = devices.create(7, many(1_000, 1_024), None, Amounts::NONE, &quotas());
        let refused = refused.unwrap_err();
        assert!(refused.errno == libc::EDQUOT && refused.reason.contains("devices-per-user"));
        devices.create(7, many(1_000, 1_023), None, Amounts::NONE, &quotas()).unwrap();
        assert_eq!((devices.len(), devices.count_of(7)), (1_024, 1_024));
        for count in [0, 1 << 17] {
            let refused = devices.create(ROOT, many(5_000, count), None, Amounts::NONE, &quotas());
            assert!(refused.is_err(), "{count}");
        }
        devices.apply(&Change::Delete { names: many(1_000, 1_023) });
        assert_eq!((devices.len(), devices.count_of(7)), (1, 1));
    }

    #[test]
    fn a_device_has_state_from_its_first_process_until_it_is_removed() {
        let mut devices = Devices::default();
        devices.create(7, "a", None, Amounts::default(), &quotas()).unwrap();
        assert!(devices.used("a").is_none() && devices.used_mut("b").is_none());
        devices.used_mut("a").unwrap().counters.waits = 3;
        assert_eq!(devices.after(7, "", true).collect::<Vec<_>>(), ["a"]);
        assert_eq!(devices.after(8, "", true).count(), 0, "another user's");
        devices.remove("a");
        devices.create(7, "a", None, Amounts::default(), &quotas()).unwrap();
        assert!(devices.used("a").is_none(), "another one of the same name");
    }
}
