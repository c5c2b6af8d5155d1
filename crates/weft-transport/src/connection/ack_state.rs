//! The state from which a receiver writes its next ACK. `ack_sent.rs` schedules ACKs, `nack.rs` NACKs.

use weft_units::Instant;
use weft_wire::{AckType, U3};

use crate::path::PathId;

/// The packet that the next ACK echoes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    pub(crate) psn: u32,
    pub(crate) path_id: U3,
    pub(crate) timestamp: u32,
    pub(crate) received_at: Instant,
    pub(crate) hops: u8,
    pub(crate) marked: bool,
}

/// The contents of the last NACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nacked {
    /// The first missing packet.
    pub(super) psn: u32,
    /// The time before which no other NACK is sent for it.
    pub(super) until: Instant,
}

impl Nacked {
    pub(crate) const NONE: Self = Self { psn: 0, until: Instant::EPOCH };
}

/// The state of the next ACK.
#[derive(Debug)]
pub(crate) struct AckState {
    /// The packet to echo: the latest one, or the latest marked one if any was marked, so that a mark is attributed to
    /// its path.
    pub(super) echo: Option<Echo>,
    /// `true` once an ACK echoed it. A packet placed after the ACK for its neighbours left may have no other packet to
    /// echo, and needs an ACK all the same.
    pub(super) echoed: bool,
    /// `true` if that packet was already placed when it arrived.
    pub(super) echo_is_duplicate: bool,
    /// A packet to be answered at once: a duplicate, or one that arrived too early.
    pub(super) answer: Option<(Echo, AckType)>,
    /// The last NACK.
    pub(super) nacked: Nacked,
    /// Number of packets placed since the last ACK.
    pub(super) placed: u16,
    /// `true` if a packet requested an immediate ACK.
    pub(super) at_once: bool,
    /// `true` if an ACK must be sent.
    pub(super) due: bool,
    /// The path of the next ACK.
    pub(super) next_ack_path: PathId,
    /// The path of the next answer to a probe. With one common sequence, ACKs and answers that alternate would each
    /// keep to one half of the paths, and never leave it where that half is dead.
    pub(super) next_answer_path: PathId,
    /// Number of blocks of a wide window reported; selects the next block.
    pub(super) reported: u32,
    /// Number of blocks of a wide window that still get an ACK each, the last block first.
    pub(super) sweep: u8,
    /// `true` if only some blocks of a wide window were described since a packet was placed.
    pub(super) owes_sweep: bool,
}

impl AckState {
    pub(crate) const fn new() -> Self {
        Self {
            echo: None,
            echoed: false,
            echo_is_duplicate: false,
            answer: None,
            nacked: Nacked::NONE,
            placed: 0,
            at_once: false,
            due: false,
            next_ack_path: PathId(0),
            next_answer_path: PathId(0),
            reported: 0,
            sweep: 0,
            owes_sweep: false,
        }
    }
}
