//! Quotas of the daemon's objects for each user, over all the user's devices: no user of a shared daemon may take all
//! of them. The kernel identifies users; root, and the user who runs the daemon, have no quota.

use weft_rnic::Limits;
use weft_udp::{SettingError, SettingFault};
use weft_units::UnknownName;

use crate::attach::{Amounts, Refusal};

/// The user without restrictions.
pub(super) const ROOT: u32 = 0;

/// The kinds of objects that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Devices,
    Contexts,
    Domains,
    Regions,
    CompletionQueues,
    SharedReceiveQueues,
    QueuePairs,
}

/// The default quota of devices for a user.
const DEVICES: u32 = 1 << 10;

impl Kind {
    const ALL: [Self; 7] = [
        Self::Devices,
        Self::Contexts,
        Self::Domains,
        Self::Regions,
        Self::CompletionQueues,
        Self::SharedReceiveQueues,
        Self::QueuePairs,
    ];

    const fn words(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Contexts => "contexts",
            Self::Domains => "protection domains",
            Self::Regions => "memory regions and windows",
            Self::CompletionQueues => "completion queues",
            Self::SharedReceiveQueues => "shared receive queues",
            Self::QueuePairs => "queue pairs",
        }
    }

    /// Returns the key of the quota.
    pub(super) const fn key(self) -> &'static str {
        QuotaSettings::KEYS[self as usize]
    }

    /// Returns the name of a device's limit.
    pub(super) fn name(self) -> &'static str {
        self.key().trim_end_matches("-per-user")
    }

    /// Returns the number of these objects in `amounts`.
    pub(super) const fn of(self, amounts: &mut Amounts) -> Option<&mut u32> {
        Some(match self {
            Self::Devices | Self::Contexts => return None,
            Self::Domains => &mut amounts.domains,
            Self::Regions => &mut amounts.regions,
            Self::CompletionQueues => &mut amounts.completion_queues,
            Self::SharedReceiveQueues => &mut amounts.shared_receive_queues,
            Self::QueuePairs => &mut amounts.queue_pairs,
        })
    }
}

/// The quotas of a daemon's settings file, in the order of [`Self::KEYS`]. `None` is the default: 1,024 devices, and
/// half of the daemon's maximum of everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaSettings([Option<u32>; 7]);

impl QuotaSettings {
    /// Their keys.
    pub const KEYS: [&'static str; 7] = [
        "devices-per-user",
        "contexts-per-user",
        "domains-per-user",
        "regions-per-user",
        "completion-queues-per-user",
        "shared-receive-queues-per-user",
        "queue-pairs-per-user",
    ];

    /// Sets one value.
    ///
    /// # Errors
    /// The key is none of [`Self::KEYS`], or the value is not a number.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let refused = |reason| SettingError { name: key.into(), value: value.into(), reason };
        let index = Self::KEYS
            .iter()
            .position(|known| *known == key)
            .ok_or_else(|| refused(UnknownName::new("setting", key, &Self::KEYS).into()))?;
        let expected = SettingFault::Expected("a number from 0 to 4294967295, such as 1024");
        let count = value.trim().parse().map_err(|_| refused(expected))?;
        self.0[index] = Some(count);
        Ok(())
    }
}

/// The quotas of every user who has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quotas {
    limits: [u32; 7],
    /// The user who runs the daemon, without a quota. If it is `None`, root has a quota too.
    own: Option<u32>,
}

impl Quotas {
    /// Returns the quotas for a device with these limits whose daemon runs as user `own`.
    pub(super) fn new(settings: &QuotaSettings, limits: &Limits, own: Option<u32>) -> Self {
        let half = |all: u32| all.div_ceil(2);
        let default = |kind| match kind {
            Kind::Devices => DEVICES,
            Kind::Contexts => half(limits.contexts),
            Kind::Domains => half(limits.protection_domains),
            Kind::Regions => half(limits.keys),
            Kind::CompletionQueues => half(limits.completion_queues),
            Kind::SharedReceiveQueues => half(limits.shared_receive_queues),
            Kind::QueuePairs => half(limits.queue_pairs),
        };
        let limits =
            Kind::ALL.map(|kind| settings.0[kind as usize].unwrap_or_else(|| default(kind)));
        Self { limits, own }
    }

    /// Returns `true` if a user has no quota.
    pub(super) fn exempt(&self, user: u32) -> bool {
        user == ROOT && self.own.is_some() || self.own == Some(user)
    }

    fn limit(&self, user: u32, kind: Kind) -> Option<u32> {
        (!self.exempt(user)).then_some(self.limits[kind as usize])
    }

    /// Checks that a user with `has` objects of a kind may make another.
    pub(super) fn check(&self, user: u32, kind: Kind, has: u32) -> Result<(), Refusal> {
        self.check_more(user, kind, has, 1)
    }

    /// Checks that a user with `has` objects of a kind may make `more`.
    pub(super) fn check_more(
        &self,
        user: u32,
        kind: Kind,
        has: u32,
        more: u32,
    ) -> Result<(), Refusal> {
        let exceeds = |limit: &u32| has.saturating_add(more) > *limit;
        let Some(limit) = self.limit(user, kind).filter(exceeds) else {
            return Ok(());
        };
        let errno = if kind == Kind::Devices { libc::EDQUOT } else { libc::ENOMEM };
        let reason = format!(
            "user {user} has {has} {}, and one user may have {limit}: end some, or raise {} in the daemon's file",
            kind.words(),
            kind.key(),
        );
        Err(Refusal::new(errno, reason))
    }

    /// Returns the use and the quotas of a user, in rows of name and value: devices, contexts, and the objects in them.
    pub(super) fn describe(
        &self,
        user: u32,
        (devices, contexts): (u32, u32),
        mut used: Amounts,
    ) -> Vec<(String, String)> {
        let row = |kind: Kind| {
            let of_user = if kind == Kind::Devices { devices } else { contexts };
            let has = kind.of(&mut used).map_or(of_user, |count| *count);
            let limit = self
                .limit(user, kind)
                .map_or_else(|| "any number".into(), |limit| limit.to_string());
            (format!("{} of user {user}", kind.words()), format!("{has} of {limit}"))
        };
        Kind::ALL.map(row).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(own: Option<u32>) -> Quotas {
        let mut settings = QuotaSettings::default();
        settings.set("devices-per-user", "3").unwrap();
        Quotas::new(&settings, &Limits { queue_pairs: 9, ..Limits::default() }, own)
    }

    #[test]
    fn the_default_quota_is_half_of_the_limit_and_a_refusal_names_the_setting() {
        let quotas = quotas(Some(7));
        assert!(quotas.check(1000, Kind::QueuePairs, 4).is_ok());
        let refused = quotas.check(1000, Kind::QueuePairs, 5).unwrap_err();
        assert_eq!(refused.errno, libc::ENOMEM);
        assert!(refused.reason.contains("queue-pairs-per-user"), "{}", refused.reason);
        assert_eq!(quotas.check(1000, Kind::Devices, 3).unwrap_err().errno, libc::EDQUOT);
        for without in [ROOT, 7] {
            assert!(quotas.check(without, Kind::QueuePairs, 9).is_ok());
        }
        let rows = quotas.describe(1000, (2, 0), Amounts { queue_pairs: 1, ..Amounts::NONE });
        assert!(rows.contains(&("devices of user 1000".into(), "2 of 3".into())), "{rows:?}");
        assert!(rows.contains(&("queue pairs of user 1000".into(), "1 of 5".into())), "{rows:?}");
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        let refused =
            |key, value| QuotaSettings::default().set(key, value).unwrap_err().to_string();
        assert!(refused("queue-pair-per-user", "1").contains("queue-pairs-per-user"));
        assert!(refused("queue-pairs-per-user", "many").contains("not a number"));
    }
}
