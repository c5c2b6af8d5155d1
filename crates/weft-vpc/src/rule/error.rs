//! The faults of rules.

use alloc::string::String;

use weft_units::UnknownName;

use crate::{ParsePrefixError, Prefix};

/// The fault of a rule: of one of its words, or of parts that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Ports without a protocol that has them.
    #[error("ports need protocol tcp or udp")]
    PortsWithoutProtocol,
    /// An ICMP type without that protocol.
    #[error("type needs protocol icmp or icmpv6")]
    TypeWithoutProtocol,
    /// An ICMP code without a type.
    #[error("icmp-code needs icmp-type")]
    CodeWithoutType,
    /// Addresses of two versions.
    #[error("{from} and {to} are of two versions of IP")]
    TwoVersions {
        /// The source.
        from: Prefix,
        /// The destination.
        to: Prefix,
    },
    /// ICMP of one version with addresses of the other.
    #[error("icmp is of IPv4 and icmpv6 of IPv6; the prefix is of the other")]
    IcmpOfOtherVersion,
    /// A text that ends too early.
    #[error("it ends where {expected} is expected")]
    Incomplete {
        /// The part that is missing.
        expected: &'static str,
    },
    /// A word that is not a number of its kind.
    #[error("{word:?} is not {expected}")]
    NotANumber {
        /// The word.
        word: String,
        /// The kind of number.
        expected: &'static str,
    },
    /// A word that is not among those that are known.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// An `@` without a name.
    #[error("@ without a name; a set is written @name")]
    UnnamedSet,
    /// A word that names no addresses.
    #[error("{word:?} is not any, a prefix such as 10.0.0.0/8, or @ and a set's name")]
    NotANet {
        /// The word.
        word: String,
    },
    /// A prefix that is wrong.
    #[error(transparent)]
    Prefix(ParsePrefixError),
    /// A word that is neither a port nor a range of ports.
    #[error("{word:?} is not a port such as 80 or a range such as 80-90")]
    NotPorts {
        /// The word.
        word: String,
    },
}
