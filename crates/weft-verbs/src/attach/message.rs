//! Messages between a process and the daemon. A process sends requests, the daemon answers each, one at a time.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::device::limits;
use crate::engine::command::{Command, Reply};
use crate::interfaces::Address;

/// The maximum size of a message, bytes.
pub(crate) const MAX_MESSAGE: usize = 64 << 10;

/// The number of objects of each kind on one device, used or allowed.
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

/// The daemon's description of one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    /// Its name.
    pub name: String,
    /// The user who owns it.
    pub owner: u32,
    /// Its limits.
    pub limits: Amounts,
    /// The objects in use.
    pub used: Amounts,
    /// The IDs of the attached processes.
    pub processes: Vec<u32>,
    /// The transport of its connections, in rows of name and value; a list of devices leaves it out.
    pub transport: Vec<(String, String)>,
    /// The limits and use of all the daemon's devices together, in rows of name and value; a list of devices leaves it
    /// out.
    pub daemon: Vec<(String, String)>,
}

/// A row of the address table.
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

/// A device as programs see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) limits: Amounts,
    pub(crate) addresses: Vec<Row>,
}

/// A value at an address of the process's memory: a reader that finds it there has that memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    pub(crate) address: u64,
    pub(crate) value: u64,
}

/// The version of all messages and records between process and daemon. It changes with their encoding, which is that of
/// their types: another order of variants may be read as another command.
pub(crate) const PROTOCOL: u16 = 2;

/// A process's request to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    Create {
        name: String,
        /// The owner of the new device; the default is the caller.
        owner: Option<u32>,
        limits: Amounts,
    },
    /// Lists the devices whose names follow this one, as many as fit.
    List {
        after: String,
    },
    Show {
        name: String,
    },
    Delete {
        name: String,
        /// `true` to delete it even if processes are attached.
        force: bool,
    },
    /// Queries the description of a device.
    Describe {
        name: String,
    },
    /// Attaches the process to the device; a descriptor of its memory comes with the message.
    Attach {
        name: String,
        probe: Probe,
        /// The [`PROTOCOL`] of the process's library.
        protocol: u16,
    },
    /// A command of an attached process.
    Command(Command),
}

impl Request {
    /// Returns the request to attach, in this version of the protocol.
    pub(crate) fn attach(name: &str, probe: Probe) -> Self {
        Self::Attach { name: name.into(), probe, protocol: PROTOCOL }
    }
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Devices(Vec<DeviceState>),
    Device(DeviceState),
    Description(Description),
    /// The shared memory and one end of the signal come with the message.
    Attached,
    Reply(Reply),
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// The error number, as in `errno(3)`.
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

    fn assert_round_trip(request: &Request) {
        let mut bytes = Vec::new();
        encode(request, &mut bytes);
        assert_eq!(decode::<Request>(&bytes).as_ref(), Some(request));
        for cut in 0..bytes.len() {
            assert_ne!(decode::<Request>(&bytes[..cut]).as_ref(), Some(request), "cut at {cut}");
        }
    }

    #[test]
    fn messages_are_decoded_as_they_were_encoded_and_truncated_ones_are_not() {
        let name = String::from("tenant-7");
        assert_round_trip(&Request::Create {
            name: name.clone(),
            owner: None,
            limits: Amounts::NONE,
        });
        assert_round_trip(&Request::Delete { name: name.clone(), force: true });
        assert_round_trip(&Request::attach(&name, Probe { address: 1, value: u64::MAX }));
        assert_round_trip(&Request::Command(Command::Deregister(0x0101)));
    }

    #[test]
    fn a_command_with_unknown_access_rights_is_refused() {
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
