//! Why devices and links are not a machine.

use alloc::string::String;
use alloc::vec::Vec;

/// Why devices and links are not a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// There is nothing to plan for.
    #[error("a machine needs at least one {what}")]
    Without {
        /// `GPU` or `NIC`.
        what: &'static str,
    },
    /// A name that would not fit a line.
    #[error("device {name:?} has a control character in its name")]
    Unprintable {
        /// The name.
        name: String,
    },
    /// Two devices have one name.
    #[error("device {name:?} is there twice; give each a name of its own")]
    Twice {
        /// The name.
        name: String,
    },
    /// A link names a device that does not exist.
    #[error("{0}")]
    Unknown(String),
    /// A link joins a device with itself.
    #[error("a link joins {name:?} with itself")]
    SelfLoop {
        /// The device.
        name: String,
    },
    /// PCIe is a tree below each CPU; these devices form a cycle.
    #[error("the PCIe links {} form a cycle; PCIe is a tree", cycle.join(" - "))]
    Cycle {
        /// Names along the cycle; the first is also the last.
        cycle: Vec<String>,
    },
    /// No links join two devices that have to talk.
    #[error("no links lead from {from:?} to {to:?} but through other GPUs or NICs")]
    Apart {
        /// One device.
        from: String,
        /// The other.
        to: String,
    },
    /// More devices than a server has.
    #[error("{got} devices are more than the {most} a machine may have")]
    TooMany {
        /// How many there are.
        got: usize,
        /// How many there may be.
        most: usize,
    },
}
