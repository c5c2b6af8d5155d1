//! Messages between a process and the daemon. A process asks, the daemon answers, one at a time.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::device::{Address, limits};
use crate::engine::command::{Command, Reply};

/// Bytes of the longest message.
pub(crate) const LONGEST_MESSAGE: usize = 64 << 10;

/// How much of each there is, or may be, on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// None of anything.
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
    /// What a device may have of each, where nobody says less: as much as one in a process of its own.
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

/// What a daemon says of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    /// Its name.
    pub name: String,
    /// The user whose it is.
    pub owner: u32,
    /// What it may have.
    pub limits: Amounts,
    /// What it has.
    pub used: Amounts,
    /// The processes attached, by number.
    pub processes: Vec<u32>,
    /// The transport of its connections, in rows of name and value; a list of devices leaves it out.
    pub transport: Vec<(String, String)>,
    /// The limits of all the daemon's devices together and what is used of them; likewise.
    pub daemon: Vec<(String, String)>,
}

/// A row of the table of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) ip: IpAddr,
    pub(crate) interface: u32,
    pub(crate) mtu: u32,
}

impl From<&Address> for Row {
    fn from(&Address { ip, interface, mtu }: &Address) -> Self {
        Self { ip, interface, mtu }
    }
}

impl From<Row> for Address {
    fn from(Row { ip, interface, mtu }: Row) -> Self {
        Self { ip, interface, mtu }
    }
}

/// A device as programs find it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) limits: Amounts,
    pub(crate) addresses: Vec<Row>,
}

/// What a process has at a place of its memory: who reads it there reaches that memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    pub(crate) address: u64,
    pub(crate) value: u64,
}

/// What a process asks of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    Create {
        name: String,
        /// The user whose it becomes, if not who asks.
        owner: Option<u32>,
        limits: Amounts,
    },
    /// The devices whose names come after this one's, as many as fit.
    List {
        after: String,
    },
    Show {
        name: String,
    },
    Delete {
        name: String,
        /// Even if processes are attached.
        force: bool,
    },
    /// What a program finds.
    Describe {
        name: String,
    },
    /// Makes the process one of the device's; its memory comes with the message.
    Attach {
        name: String,
        probe: Probe,
    },
    /// What an attached process does.
    Command(Command),
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Devices(Vec<DeviceState>),
    Device(DeviceState),
    Description(Description),
    /// With the message come the shared memory and an end of the signal.
    Attached,
    Reply(Reply),
}

/// Why it did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// `errno(3)`.
    pub(crate) errno: i32,
    pub(crate) reason: String,
}

impl Refusal {
    pub(crate) fn new(errno: i32, reason: impl Into<String>) -> Self {
        Self { errno, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::{decode, encode};

    fn there_and_back(request: &Request) {
        let mut bytes = Vec::new();
        encode(request, &mut bytes);
        assert_eq!(decode::<Request>(&bytes).as_ref(), Some(request));
        for cut in 0..bytes.len() {
            assert_ne!(decode::<Request>(&bytes[..cut]).as_ref(), Some(request), "cut at {cut}");
        }
    }

    #[test]
    fn messages_arrive_as_they_were_and_cut_ones_do_not() {
        let name = String::from("tenant-7");
        there_and_back(&Request::Create { name: name.clone(), owner: None, limits: Amounts::NONE });
        there_and_back(&Request::Delete { name: name.clone(), force: true });
        there_and_back(&Request::Attach { name, probe: Probe { address: 1, value: u64::MAX } });
        there_and_back(&Request::Command(Command::Deregister(0x0101)));
    }

    #[test]
    fn rights_that_nobody_knows_are_no_command() {
        use crate::engine::Region;
        use weft_rnic::{Access, ProtectionDomain};

        let access = Access::LOCAL_WRITE;
        let region = Region { address: 0, length: 0, iova: 0, access };
        let command = Request::Command(Command::Register(ProtectionDomain(0), region));
        let mut bytes = Vec::new();
        encode(&command, &mut bytes);
        assert_eq!(bytes.pop(), Some(1), "the rights come last");
        assert!(decode::<Request>(&[&bytes[..], &[0x40]].concat()).is_none());
    }
}
