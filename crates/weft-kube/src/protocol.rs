//! The protocols of network policies.

use weft_vpc::protocol;

/// A protocol that has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP, in whose packets Weft knows no ports.
    Sctp,
}

impl Protocol {
    /// Returns the protocol of a name as Kubernetes writes it; without a name it is TCP.
    pub fn named(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }

    /// Returns its number in IP packets.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
            Self::Sctp => 132,
        }
    }
}
