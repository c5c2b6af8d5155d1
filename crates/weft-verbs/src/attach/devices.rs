//! Devices in messages: their names, their limits, their state.

use serde::{Deserialize, Serialize};

use crate::device::limits;

/// The number of objects of each kind on one device, used or allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    /// Processes attached.
    pub processes: u32,
    /// Protection domains.
    pub domains: u32,
    /// Memory regions and windows.
    pub regions: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
}

impl Amounts {
    /// Zero of every kind.
    pub const NONE: Self = Self {
        processes: 0,
        domains: 0,
        regions: 0,
        completion_queues: 0,
        shared_receive_queues: 0,
        queue_pairs: 0,
    };
}

impl Default for Amounts {
    /// Returns the default limits of a device: those of a device inside a process.
    fn default() -> Self {
        Self {
            processes: 1 << 10,
            domains: limits::PD.cast_unsigned(),
            regions: limits::MR.cast_unsigned(),
            completion_queues: limits::CQ.cast_unsigned(),
            shared_receive_queues: limits::SRQ.cast_unsigned(),
            queue_pairs: limits::QP.cast_unsigned(),
        }
    }
}

/// The limits of one device, for all its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceLimits {
    /// Objects of each kind.
    pub objects: Amounts,
    /// Registered memory, bytes; without a limit if it is `None`.
    pub memory: Option<u64>,
    /// Messages sent a second; without a limit if it is `None`. Never zero.
    pub messages_per_second: Option<u32>,
}

impl From<Amounts> for DeviceLimits {
    fn from(objects: Amounts) -> Self {
        Self { objects, ..Self::default() }
    }
}

/// The name of one device, or the names of several that differ in a number at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// The name, or what stands before the dash and the number.
    name: String,
    /// The first number and how many there are.
    numbered: Option<(u32, u32)>,
}

impl Names {
    /// Returns `count` names: `NAME-FIRST` and those that follow it.
    pub fn numbered(name: &str, first: u32, count: u32) -> Self {
        Self { name: name.into(), numbered: Some((first, count)) }
    }

    /// Returns the number of names.
    pub fn count(&self) -> u32 {
        self.numbered.map_or(1, |(_, count)| count)
    }

    /// Returns the names in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        let Self { name, numbered } = self;
        let numbers =
            numbered.map(|(first, count)| (0..count).map(move |n| u64::from(first) + u64::from(n)));
        let one = numbered.is_none().then(|| name.clone());
        one.into_iter()
            .chain(numbers.into_iter().flatten().map(move |number| format!("{name}-{number}")))
    }
}

impl From<&str> for Names {
    fn from(name: &str) -> Self {
        Self { name: name.into(), numbered: None }
    }
}

impl From<&String> for Names {
    fn from(name: &String) -> Self {
        name.as_str().into()
    }
}

/// Event counts of a device since it was made, or since the daemon's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Send requests of its programs: messages, READs and atomics.
    pub requests_posted: u64,
    /// The bytes of these requests.
    pub bytes_posted: u64,
    /// Messages that a receive request took.
    pub messages_received: u64,
    /// The bytes of these messages.
    pub bytes_received: u64,
    /// Requests that were completed with an error, those flushed included.
    pub requests_failed: u64,
    /// Commands that a limit or a quota refused.
    pub commands_refused: u64,
    /// Times that the device's programs waited for its limit of messages a second.
    pub waits: u64,
    /// Processes that the daemon ended.
    pub processes_ended: u64,
}

impl DeviceCounters {
    /// Returns each count by name.
    pub const fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("requests_posted", self.requests_posted),
            ("bytes_posted", self.bytes_posted),
            ("messages_received", self.messages_received),
            ("bytes_received", self.bytes_received),
            ("requests_failed", self.requests_failed),
            ("commands_refused", self.commands_refused),
            ("waits", self.waits),
            ("processes_ended", self.processes_ended),
        ]
    }

    /// Adds the counts of others.
    pub(crate) fn add(&mut self, others: &Self) {
        let Self {
            requests_posted,
            bytes_posted,
            messages_received,
            bytes_received,
            requests_failed,
            commands_refused,
            waits,
            processes_ended,
        } = others;
        self.requests_posted += requests_posted;
        self.bytes_posted += bytes_posted;
        self.messages_received += messages_received;
        self.bytes_received += bytes_received;
        self.requests_failed += requests_failed;
        self.commands_refused += commands_refused;
        self.waits += waits;
        self.processes_ended += processes_ended;
    }
}

/// The daemon's description of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    /// Its name.
    pub name: String,
    /// The user who owns it.
    pub owner: u32,
    /// Its limits.
    pub limits: DeviceLimits,
    /// The objects in use.
    pub used: Amounts,
    /// Registered memory, bytes.
    pub memory: u64,
    /// Its event counts.
    pub counters: DeviceCounters,
    /// The IDs of the attached processes.
    pub processes: Vec<u32>,
    /// The transport of its connections, in rows of name and value; a list of devices leaves it out.
    pub transport: Vec<(String, String)>,
    /// The limits and use of all the daemon's devices together, in rows of name and value; a list of devices leaves it
    /// out.
    pub daemon: Vec<(String, String)>,
}

/// The same as protocol 3's first programs read it: without what was added since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FormerState {
    pub(crate) name: String,
    pub(crate) owner: u32,
    limits: Amounts,
    used: Amounts,
    processes: Vec<u32>,
    transport: Vec<(String, String)>,
    daemon: Vec<(String, String)>,
}

impl From<DeviceState> for FormerState {
    fn from(state: DeviceState) -> Self {
        let DeviceState { name, owner, limits, used, processes, transport, daemon, .. } = state;
        Self { name, owner, limits: limits.objects, used, processes, transport, daemon }
    }
}

/// The sums over a user's devices; root's are all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of devices.
    pub devices: u32,
    /// Number of devices that a process is attached to.
    pub attached: u32,
    /// Number of attached processes.
    pub processes: u32,
    /// Number of queue pairs.
    pub queue_pairs: u32,
    /// Registered memory, bytes.
    pub memory: u64,
    /// Event counts, without those of deleted devices.
    pub counters: DeviceCounters,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_differ_in_the_number() {
        let names: Vec<_> = Names::numbered("tenant", 9, 3).iter().collect();
        assert_eq!(names, ["tenant-9", "tenant-10", "tenant-11"]);
        let last = Names::numbered("t", u32::MAX, 2);
        assert_eq!(last.iter().last().as_deref(), Some("t-4294967296"), "no number wraps");
        assert_eq!(Names::from("a").iter().collect::<Vec<_>>(), ["a"]);
        assert_eq!((Names::from("a").count(), last.count()), (1, 2));
    }
}
