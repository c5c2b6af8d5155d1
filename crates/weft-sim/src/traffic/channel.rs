//! A connection between two hosts as seen from outside the engines, and the order of the messages on it.

use std::collections::VecDeque;

use weft_topo::NodeId;
use weft_transport::{CloseReason, ConnectionId};

use super::MessageId;

/// The identifier of a channel of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// An end of a channel: the one that opened it, or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host that opened the channel.
    Opener,
    /// The opener's peer.
    Peer,
}

impl Side {
    /// Returns the index in an array of two.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the opposite end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Opener => Self::Peer,
            Self::Peer => Self::Opener,
        }
    }
}

/// The state of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// The handshake is in progress.
    Opening,
    /// Both ends know the channel.
    Open,
    /// The channel is closed.
    Closed,
}

/// A connection between two hosts, seen from outside.
#[derive(Debug)]
pub struct Channel {
    /// The workload that opened it.
    pub workload: u32,
    /// The channel's state.
    pub state: ChannelState,
    /// The channel's hosts, by [`Side`].
    pub hosts: [NodeId; 2],
    /// The channel's connection ids, by [`Side`], where they are known.
    pub connections: [Option<ConnectionId>; 2],
    /// The channel's messages; `None` once it is closed, which saves memory in runs of millions of flows.
    pub(super) queues: Option<Box<Queues>>,
    /// The reason for the close, as the end that noticed first saw it; `None` where a host restarted, or a messaging
    /// context has reasons of its own.
    pub closed_because: Option<CloseReason>,
    /// `true` if the channel has been open.
    pub was_open: bool,
    /// Number of messages on it that are not finished.
    pub(super) unfinished: u32,
}

/// Messages on a channel, by [`Side`].
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Messages that are submitted and not yet delivered, oldest first.
    pub(super) undelivered: [VecDeque<MessageId>; 2],
    /// The number of the next message to deliver.
    pub(super) next_delivery: [u32; 2],
    /// Messages that wait for the handshake, or until their sender learns of the channel.
    waiting: [Vec<MessageId>; 2],
}

impl Channel {
    /// Returns `true` if a side sent a message that is not yet delivered.
    pub fn has_undelivered(&self, from: Side) -> bool {
        self.queues.as_ref().is_some_and(|queues| !queues.undelivered[from.index()].is_empty())
    }

    /// Returns a side's messages that wait for the handshake, or until their sender learns of the channel.
    pub(crate) fn waiting(&self, side: Side) -> &[MessageId] {
        self.queues.as_ref().map_or(&[], |queues| &queues.waiting[side.index()])
    }

    /// Returns the messages of [`Self::waiting`] for modification.
    pub(crate) fn waiting_mut(&mut self, side: Side) -> &mut Vec<MessageId> {
        &mut self.queues().waiting[side.index()]
    }

    pub(super) fn queues(&mut self) -> &mut Queues {
        self.queues.get_or_insert_default()
    }

    /// Returns the number of messages on it that are not yet both delivered and acknowledged.
    pub fn unfinished(&self) -> u32 {
        self.unfinished
    }
}
