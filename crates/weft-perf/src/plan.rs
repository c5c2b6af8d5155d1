//! The control messages between client and server: the test to run, and its end.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weft_units::UnknownName;

/// Opcodes of the messages on a test's connection.
pub(super) mod opcode {
    /// Client: the [`Plan`](crate::Plan), as JSON. Always message 0.
    pub(crate) const PLAN: u8 = 1;
    /// Server: it is ready for the load; empty.
    pub(crate) const READY: u8 = 2;
    /// Server: it refuses the plan; the reason as text.
    pub(crate) const REFUSED: u8 = 3;
    /// Client: one message of the load.
    pub(crate) const LOAD: u8 = 4;
    /// Server: the bytes of a message of the load.
    pub(crate) const REPLY: u8 = 5;
    /// Client: the load is complete; empty.
    pub(crate) const FINISH: u8 = 6;
    /// Server: its [`Counts`](crate::Counts), as JSON.
    pub(crate) const COUNTS: u8 = 7;
}

/// The service number of connections that carry a measurement.
pub(super) const SERVICE: u64 = 0x7765_7066;

/// Version of these messages.
const VERSION: u32 = 1;

/// Maximum length of a server's answer, bytes: its counts list every path.
pub(super) const MAX_ANSWER: u32 = 1 << 20;

/// Maximum length of a [`Plan`] that a server reads, bytes: ten times the usual length, because any host may send one.
pub(super) const MAX_PLAN: u32 = 1 << 10;

/// Maximum memory of a server for one connection's messages, bytes.
const MAX_SLOT_BYTES: u64 = 1 << 28;

/// The kinds of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestKind {
    /// Messages in one direction, at the maximum rate.
    Throughput,
    /// One message and its reply at a time.
    Latency,
    /// Requests and responses, many at a time.
    Messages,
}

impl TestKind {
    /// Every kind.
    pub const ALL: &[Self] = &[Self::Throughput, Self::Latency, Self::Messages];

    const NAMES: &[&str] = &[Self::Throughput.name(), Self::Latency.name(), Self::Messages.name()];

    /// Returns the name of the kind on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Messages => "messages",
        }
    }

    /// Returns `true` if the server answers each message with its bytes.
    pub const fn replies(self) -> bool {
        !matches!(self, Self::Throughput)
    }
}

impl FromStr for TestKind {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let found = Self::ALL.iter().copied().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownName::new("test", name, Self::NAMES))
    }
}

/// The settings of one connection's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    version: u32,
    /// The kind of measurement.
    pub kind: TestKind,
    /// Size of every message, bytes.
    pub message_bytes: u32,
    /// Maximum number of outstanding messages.
    pub outstanding: u32,
    /// `true` if both ends compare every received byte with its expected value, which costs a pass
    /// over the data.
    pub verify: bool,
}

/// An error of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The bytes are not the JSON of a plan.
    #[error("not a test plan: {0}")]
    Malformed(String),
    /// The other end uses another version of these messages.
    #[error("test plan version {got}, this side speaks {VERSION}; run the same weft on both ends")]
    Version {
        /// The other end's version.
        got: u32,
    },
    /// A number is out of its range.
    #[error("{field} is {got}, expected {expected}")]
    OutOfRange {
        /// The field's name.
        field: &'static str,
        /// The field's value.
        got: u64,
        /// The permitted values.
        expected: &'static str,
    },
}

impl Plan {
    /// Returns a plan. A latency test has one outstanding message, whatever `outstanding` is.
    ///
    /// # Errors
    /// Returns `OutOfRange` if the message size, the number of outstanding messages or their product is out of range.
    pub fn new(
        kind: TestKind,
        message_bytes: u32,
        outstanding: u32,
        verify: bool,
    ) -> Result<Self, PlanError> {
        let outstanding = if kind == TestKind::Latency { 1 } else { outstanding };
        Self { version: VERSION, kind, message_bytes, outstanding, verify }.checked()
    }

    pub(super) fn parse(json: &[u8]) -> Result<Self, PlanError> {
        let plan: Self = serde_json::from_slice(json)
            .map_err(|error| PlanError::Malformed(error.to_string()))?;
        plan.checked()
    }

    pub(super) fn to_json(self) -> Vec<u8> {
        serde_json::to_vec(&self).expect("a plan is numbers and names")
    }

    /// Returns the size of the slots of all outstanding messages, bytes.
    pub(super) fn slot_bytes(self) -> usize {
        usize::try_from(self.slot_bytes_wide()).expect("checked to be at most 256 MiB")
    }

    /// Returns the offset of message `number` (counted from the load's first, from zero) among the
    /// slots.
    pub(super) fn slot_start(self, number: u32) -> usize {
        (number & (self.slots() - 1)) as usize * self.message_bytes as usize
    }

    /// Returns the number of slots, a power of two, so that they stay in order when message numbers
    /// wrap.
    fn slots(self) -> u32 {
        self.outstanding.next_power_of_two()
    }

    fn slot_bytes_wide(self) -> u64 {
        u64::from(self.message_bytes) * u64::from(self.slots())
    }

    fn checked(self) -> Result<Self, PlanError> {
        if self.version != VERSION {
            return Err(PlanError::Version { got: self.version });
        }
        let ranges = [
            ("message size", self.message_bytes.into(), 1, 1 << 28, "1 byte to 256 MiB"),
            ("outstanding", self.outstanding.into(), 1, 1 << 15, "1 to 32768 messages"),
        ];
        for (field, got, low, high, expected) in ranges {
            if !(low..=high).contains(&got) {
                return Err(PlanError::OutOfRange { field, got, expected });
            }
        }
        match self.slot_bytes_wide() {
            ..=MAX_SLOT_BYTES => Ok(self),
            got => Err(PlanError::OutOfRange {
                field: "message size times outstanding, rounded up to a power of two",
                got,
                expected: "at most 256 MiB",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_parses_back_from_its_json() {
        let plan = Plan::new(TestKind::Messages, 64, 16, true).unwrap();
        assert_eq!(Plan::parse(&plan.to_json()), Ok(plan));
    }

    #[test]
    fn a_plan_that_would_exhaust_the_server_is_refused() {
        let json = br#"{"version":1,"kind":"throughput","message_bytes":268435456,"outstanding":2,"verify":false}"#;
        let error = Plan::parse(json).unwrap_err().to_string();
        assert_eq!(
            error,
            "message size times outstanding, rounded up to a power of two is 536870912, expected \
             at most 256 MiB"
        );
    }

    #[test]
    fn a_plan_of_another_version_is_refused() {
        let json =
            br#"{"version":9,"kind":"latency","message_bytes":1,"outstanding":1,"verify":false}"#;
        assert_eq!(Plan::parse(json), Err(PlanError::Version { got: 9 }));
    }
}
