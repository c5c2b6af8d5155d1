//! The label that ConWeave's leaves write on packets.

use weft_topo::LinkId;

use crate::time::SimTime;

/// The label that leaves write on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A header on data, for the last leaf.
    Data(Header),
    /// A reply to the first leaf: the requested packet arrived.
    Reply {
        /// The epoch of the request.
        epoch: SimTime,
        /// `true` if the packet was the TAIL: this is CLEAR.
        is_clear: bool,
    },
    /// A notification to the first leaf: the path by this uplink is congested.
    Notify {
        /// The uplink.
        uplink: LinkId,
    },
}

/// The header that the first leaf writes on data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The uplink of the packet's path.
    pub(super) uplink: LinkId,
    /// The epoch, identified by its start time. So a flow that was forgotten begins a later epoch than any before.
    pub(super) epoch: SimTime,
    /// `true` if it left after the TAIL, on the new path.
    pub(super) is_rerouted: bool,
    pub(super) mark: Mark,
    /// The departure time at the first leaf.
    pub(super) sent_at: SimTime,
    /// The departure time of the TAIL, if it has left.
    pub(super) tail_at: SimTime,
}

/// The role of a data packet in its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    /// `RTT_REQUEST`: the first of its epoch.
    Request,
    /// `TAIL`: the last of its epoch on the old path.
    Tail,
}
