//! The messages of a group on X-RDMA channels. The channels to one peer are its lanes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_msg::{
    Block, ChannelId, CloseReason, Context, Event, Message, Payload, SendError, Slice, Verbs,
};
use weft_units::Instant;

use crate::{Channel, Link, LinkError};

/// Maximum length in bytes of a message that is copied into its frame. Longer ones are sent from registered memory,
/// which is lent to them.
const MAX_COPIED_BYTES: usize = 4096;

/// The channels to a rank's peers, and the memory lent to messages on them.
#[derive(Debug)]
pub struct Lanes {
    peers: Vec<Vec<ChannelId>>,
    ranks: BTreeMap<ChannelId, usize>,
    lent: BTreeMap<(ChannelId, u64), Block>,
    scratch: Vec<u8>,
}

/// An event for the group.
#[derive(Debug)]
pub enum GroupEvent {
    /// A message for [`Group::handle_message`](crate::Group::handle_message).
    Message {
        /// The sending rank.
        from: usize,
        /// The message.
        message: Message,
    },
    /// A rank that left, for [`Group::peer_left`](crate::Group::peer_left).
    Left {
        /// The rank that left.
        rank: usize,
    },
    /// An unreachable rank, for [`Group::peer_gone`](crate::Group::peer_gone).
    Gone {
        /// The unreachable rank.
        rank: usize,
        /// The reason.
        why: CloseReason,
    },
}

impl Lanes {
    /// Returns an empty set of channels for a group of `ranks` ranks.
    pub fn new(ranks: usize) -> Self {
        Self {
            peers: (0..ranks).map(|_| Vec::new()).collect(),
            ranks: BTreeMap::new(),
            lent: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Adds a channel to a rank. The two ends may add channels in different orders, because lanes need not match.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn add(&mut self, rank: usize, channel: ChannelId) {
        self.peers[rank].push(channel);
        self.ranks.insert(channel, rank);
    }

    /// Returns the channels to a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn to(&self, rank: usize) -> &[ChannelId] {
        &self.peers[rank]
    }

    /// Returns `true` if a channel is one of these.
    pub fn has(&self, channel: ChannelId) -> bool {
        self.ranks.contains_key(&channel)
    }

    /// Returns all channels.
    pub fn all(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.ranks.keys().copied()
    }

    /// Returns `true` if every long message was delivered, so that no memory is lent.
    pub fn is_idle(&self) -> bool {
        self.lent.is_empty()
    }

    /// Handles an event of a channel and returns an event for the group, if there is one.
    pub fn ingest<V: Verbs>(
        &mut self,
        now: Instant,
        context: &mut Context<V>,
        event: Event,
    ) -> Option<GroupEvent> {
        match event {
            Event::Message { channel, message } => match self.ranks.get(&channel) {
                Some(&from) => Some(GroupEvent::Message { from, message }),
                None => {
                    context.release(now, message);
                    None
                }
            },
            Event::Delivered { channel, number } => {
                let lent = self.lent.remove(&(channel, number));
                lent.into_iter().for_each(|block| context.free(now, block));
                None
            }
            Event::Closed { channel, reason } => {
                let (first, last) = ((channel, 0), (channel, u64::MAX));
                let lent: Vec<_> = self.lent.range(first..=last).map(|(key, _)| *key).collect();
                for key in lent {
                    let block = self.lent.remove(&key);
                    block.into_iter().for_each(|block| context.free(now, block));
                }
                let rank = self.ranks.remove(&channel)?;
                self.peers[rank].retain(|one| *one != channel);
                match reason {
                    // Messages on other lanes may still be in flight.
                    CloseReason::ByPeer | CloseReason::Finished => {
                        self.peers[rank].is_empty().then_some(GroupEvent::Left { rank })
                    }
                    why => Some(GroupEvent::Gone { rank, why }),
                }
            }
            _ => None,
        }
    }
}

/// A context and its lanes as a group's link. All messages use the network channel.
#[derive(Debug)]
pub struct MessageLink<'a, V> {
    /// The messaging context.
    pub context: &'a mut Context<V>,
    /// The channels to the peers.
    pub lanes: &'a mut Lanes,
    /// The current time.
    pub now: Instant,
}

impl<V: Verbs> MessageLink<'_, V> {
    /// Sends a message from registered memory, which is lent to it until it is delivered.
    fn lend(&mut self, to: ChannelId, header: &[u8], body: &[u8]) -> Result<(), SendError> {
        let len = u32::try_from(header.len() + body.len()).unwrap_or(u32::MAX);
        let block = self.context.allocate(len)?;
        let bytes = self.context.bytes_mut(&block);
        bytes[..header.len()].copy_from_slice(header);
        bytes[header.len()..header.len() + body.len()].copy_from_slice(body);
        let slice = Slice { len, ..block.slice() };
        match self.context.send(self.now, to, Payload::Lent(slice)) {
            Ok(number) => {
                self.lanes.lent.insert((to, number), block);
                Ok(())
            }
            Err(error) => {
                self.context.free(self.now, block);
                Err(error)
            }
        }
    }
}

impl<V: Verbs> Link for MessageLink<'_, V> {
    type Message = Message;

    fn send(
        &mut self,
        to: usize,
        _: Channel,
        lane: u64,
        header: &[u8],
        body: &[u8],
    ) -> Result<bool, LinkError> {
        let lanes = &self.lanes.peers[to];
        if lanes.is_empty() {
            return Err(LinkError::NoChannel);
        }
        let lane = usize::try_from(lane % lanes.len() as u64).expect("fewer than there are");
        let to = lanes[lane];
        let sent = if header.len() + body.len() <= MAX_COPIED_BYTES {
            let mut scratch = core::mem::take(&mut self.lanes.scratch);
            scratch.clear();
            scratch.extend_from_slice(header);
            scratch.extend_from_slice(body);
            let sent = self.context.send(self.now, to, Payload::Copy(&scratch)).map(drop);
            self.lanes.scratch = scratch;
            sent
        } else {
            self.lend(to, header, body)
        };
        match sent {
            Ok(()) => Ok(true),
            // When a channel closes, its `Closed` event states whether the peer left or is unreachable.
            Err(SendError::Full { .. } | SendError::Memory(_) | SendError::Closed) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn bytes<'a>(&'a self, message: &'a Message) -> &'a [u8] {
        self.context.body(message)
    }

    fn release(&mut self, message: Message) {
        self.context.release(self.now, message);
    }
}
