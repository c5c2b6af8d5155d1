//! Errors in the description of a machine.

use alloc::string::String;
use alloc::vec::Vec;

/// An error in the devices or links of a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The machine has no GPU or no NIC.
    #[error("a machine needs at least one {what}")]
    Without {
        /// `GPU` or `NIC`.
        what: &'static str,
    },
    /// A name has a control character.
    #[error("device {name:?} has a control character in its name")]
    Unprintable {
        /// The name.
        name: String,
    },
    /// Two devices have the same name.
    #[error("device {name:?} is there twice; give each a name of its own")]
    Twice {
        /// The name.
        name: String,
    },
    /// A link names a device that does not exist.
    #[error("{0}")]
    Unknown(String),
    /// A link has the same device at both ends.
    #[error("a link joins {name:?} with itself")]
    SelfLoop {
        /// The device.
        name: String,
    },
    /// PCIe links form a cycle; below each CPU, PCIe must be a tree.
    #[error("the PCIe links {} form a cycle; PCIe is a tree", cycle.join(" - "))]
    Cycle {
        /// Names along the cycle; the first is also the last.
        cycle: Vec<String>,
    },
    /// Two devices that must communicate are not connected.
    #[error("no links lead from {from:?} to {to:?} but through other GPUs or NICs")]
    Apart {
        /// One device.
        from: String,
        /// The other.
        to: String,
    },
    /// The machine has too many devices.
    #[error("{got} devices are more than the {max} a machine may have")]
    TooMany {
        /// Number of devices.
        got: usize,
        /// Maximum number.
        max: usize,
    },
}
