//! Messages between a process and the daemon. A process sends requests, the daemon answers each, one at a time.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::devices::{Amounts, DeviceLimits, DeviceState, FormerState, Names, Totals};
use crate::engine::command::{Command, Reply};
use crate::interfaces::Address;

/// The maximum size of a message, bytes.
pub(crate) const MAX_MESSAGE: usize = 64 << 10;

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
/// their types: another order of variants may be read as another command. What is appended to [`Request`] and [`Answer`] only
/// leaves it as it is: programs send what they know, and the daemon answers with what their request calls for.
pub(crate) const PROTOCOL: u16 = 3;

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
        /// The offset of the rings in the file that comes second, if the daemon is not to make memory for them.
        rings: Option<u64>,
    },
    /// A command of an attached process.
    Command(Command),
    /// The physical pages, in order, of the memory that the guest's next request is about. A virtual machine's relay
    /// understands it; the daemon refuses it.
    Pages(Vec<Run>),
    /// Makes devices, all of them or none.
    CreateAll {
        names: Names,
        /// The owner of the new devices; the default is the caller.
        owner: Option<u32>,
        limits: DeviceLimits,
    },
    /// Deletes devices, all of them or none.
    DeleteAll {
        names: Names,
        /// `true` to delete also those to which processes are attached.
        force: bool,
    },
    /// Lists the devices whose names follow this one, as many as fit.
    States {
        after: String,
        /// `true` for those only that a process has used.
        used: bool,
    },
    /// Queries the state of a device.
    State {
        name: String,
    },
    /// Queries the sums over the user's devices.
    Totals,
}

impl Request {
    /// Returns the request to attach, in this version of the protocol.
    pub(crate) fn attach(name: &str, probe: Probe) -> Self {
        Self::Attach { name: name.into(), probe, protocol: PROTOCOL, rings: None }
    }
}

/// Consecutive physical pages of a guest, of 4096 bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The number of the first page: its physical address divided by its size.
    pub(crate) first: u64,
    pub(crate) pages: u32,
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Devices(Vec<FormerState>),
    Device(FormerState),
    Description(Description),
    /// The shared memory and one end of the signal come with the message.
    Attached,
    Reply(Reply),
    States(Vec<DeviceState>),
    State(DeviceState),
    Totals(Totals),
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
        let names = Names::numbered(&name, 5, 64_000);
        let limits = DeviceLimits { memory: Some(1 << 40), ..DeviceLimits::default() };
        assert_round_trip(&Request::CreateAll { names: names.clone(), owner: Some(7), limits });
        assert_round_trip(&Request::DeleteAll { names, force: false });
        assert_round_trip(&Request::Pages(vec![Run { first: 1 << 40, pages: 512 }]));
    }

    /// Programs that were started before the daemon was replaced send these bytes.
    #[test]
    fn requests_of_the_protocol_s_first_programs_keep_their_encoding() {
        let limits = Amounts { processes: 1, ..Amounts::NONE };
        let attach = Request::attach("a", Probe { address: 5, value: 6 });
        for (request, expected) in [
            (
                Request::Create { name: "a".into(), owner: None, limits },
                &[0, 1, b'a', 0, 1, 0, 0, 0, 0, 0][..],
            ),
            (Request::List { after: String::new() }, &[1, 0]),
            (Request::Show { name: "a".into() }, &[2, 1, b'a']),
            (Request::Delete { name: "a".into(), force: true }, &[3, 1, b'a', 1]),
            (Request::Describe { name: "a".into() }, &[4, 1, b'a']),
            (attach, &[5, 1, b'a', 5, 6, 3, 0]),
            (Request::Command(Command::OpenContext), &[6, 0]),
            (Request::Pages(Vec::new()), &[7, 0]),
        ] {
            let mut bytes = Vec::new();
            encode(&request, &mut bytes);
            assert_eq!(bytes, expected, "{request:?}");
        }
        for (answer, expected) in [
            (Answer::Done, &[0][..]),
            (Answer::Devices(Vec::new()), &[1, 0]),
            (Answer::Attached, &[4]),
            (Answer::Reply(Reply::Done), &[5, 0]),
        ] {
            let mut bytes = Vec::new();
            encode(&answer, &mut bytes);
            assert_eq!(bytes, expected, "{answer:?}");
        }
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
