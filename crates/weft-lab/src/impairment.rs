//! The impairment of a link as a value, one direction at a time.

use serde::{Deserialize, Serialize};
use weft_units::{BitRate, ByteCount, Probability};

/// The impairment of one direction of a link. The default is a healthy link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Impairment {
    /// The probability with which IP packets are lost. ARP and ICMPv6 are exempt: a lost address resolution costs a
    /// second, and no fabric loses it.
    pub loss: Probability,
    /// The probability with which ECN-capable packets are marked "congestion experienced".
    pub mark: Probability,
    /// The rate limit, with a drop-tail queue. A burst of 200 us of traffic, at least two full packets, passes without
    /// delay.
    pub rate: Option<BitRate>,
    /// The queue of the rate limit in bytes, beyond the burst; 5 ms of traffic by default. It has no effect without a
    /// rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<ByteCount>,
    /// The backlog in bytes above which a rate limit marks ECN-capable packets "congestion experienced". It is the
    /// backlog of a virtual queue, counted in full packets, which marked packets do not enter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_above: Option<ByteCount>,
    /// `true` if all packets are dropped silently: both ports stay up.
    pub black_hole: bool,
}

/// The directions of a link to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both directions.
    Both,
    /// Packets that leave the node of this name.
    From(String),
}
