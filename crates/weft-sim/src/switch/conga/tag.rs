//! The label that CONGA's leaves write on packets.

/// The congestion of the path through one uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    /// The first leaf's port: the paper's `LBTag`.
    pub(super) uplink: u16,
    /// The largest estimate on the path: `CE`.
    pub(super) congestion: u8,
}

/// The label that leaves write on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The leaf that wrote it, as an index among switches.
    pub(super) leaf: u32,
    /// The metric of the packet's path so far; control packets are not measured.
    pub(super) met: Option<Metric>,
    /// The metric of a path in the other direction.
    pub(super) feedback: Option<Metric>,
}
