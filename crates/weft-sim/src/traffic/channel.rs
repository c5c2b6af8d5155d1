//! A connection between two hosts as everything but the engines sees it, and the order of what is on it.

use std::collections::VecDeque;

use weft_topo::NodeId;
use weft_transport::{CloseReason, ConnectionId};

use super::MessageId;

/// Names a channel of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// Which end of a channel: the one that opened it, or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host that opened the channel.
    Opener,
    /// Its peer.
    Peer,
}

impl Side {
    /// The position in an array of two.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The end across.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Opener => Self::Peer,
            Self::Peer => Self::Opener,
        }
    }
}

/// Where a channel stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// The handshake is under way.
    Opening,
    /// Both ends know it.
    Open,
    /// It is no more.
    Closed,
}

/// A connection between two hosts, seen from outside.
#[derive(Debug)]
pub struct Channel {
    /// The workload that opened it.
    pub workload: u32,
    /// Where it stands.
    pub state: ChannelState,
    /// Its hosts, by [`Side`].
    pub hosts: [NodeId; 2],
    /// Its connection ids, by [`Side`], where they are known.
    pub connections: [Option<ConnectionId>; 2],
    /// Its messages, none once it is closed: of millions of flows most are over.
    pub(super) queues: Option<Box<Queues>>,
    /// Why it closed, as the end that noticed first saw it; `None` where a host restarted, or a messaging
    /// context has reasons of its own.
    pub closed_because: Option<CloseReason>,
    /// Whether it was open once.
    pub was_open: bool,
    /// Messages on it that are not finished.
    pub(super) unfinished: u32,
}

/// Messages on a channel, by [`Side`].
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Submitted and not yet delivered, oldest first.
    pub(super) undelivered: [VecDeque<MessageId>; 2],
    /// Number of the next to be delivered.
    pub(super) next_delivery: [u32; 2],
    /// Those that wait for the handshake or for word to reach their sender.
    waiting: [Vec<MessageId>; 2],
}

impl Channel {
    /// Whether a side sent something that was not delivered yet.
    pub fn has_undelivered(&self, from: Side) -> bool {
        self.queues.as_ref().is_some_and(|queues| !queues.undelivered[from.index()].is_empty())
    }

    /// Messages of a side that wait for the handshake or for word to reach their sender.
    pub(crate) fn waiting(&self, side: Side) -> &[MessageId] {
        self.queues.as_ref().map_or(&[], |queues| &queues.waiting[side.index()])
    }

    /// Likewise, to be changed.
    pub(crate) fn waiting_mut(&mut self, side: Side) -> &mut Vec<MessageId> {
        &mut self.queues().waiting[side.index()]
    }

    pub(super) fn queues(&mut self) -> &mut Queues {
        self.queues.get_or_insert_default()
    }

    /// Messages on it that were not both delivered and acknowledged yet.
    pub fn unfinished(&self) -> u32 {
        self.unfinished
    }
}
