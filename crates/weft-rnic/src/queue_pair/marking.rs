//! The labels of a queue pair's packets that the network's switches act on.

use core::num::NonZeroU16;

/// The labels of a queue pair's packets on the network. The default ones leave both to the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Marking {
    /// The traffic class of the IP header (`ah_attr.grh.traffic_class`): the DSCP in its upper six bits (RFC 2474). The
    /// transport owns the ECN bits below.
    pub traffic_class: u8,
    /// The UDP source port of all packets, so that they take one path; `None` for the transport's paths.
    pub source_port: Option<NonZeroU16>,
}
