//! The messages of a group on X-RDMA's channels: as many as wanted to each peer, which are the lanes.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weft_msg::{
    Block, ChannelId, CloseReason, Context, Event, Message, Payload, SendError, Slice, Verbs,
};
use weft_units::Instant;

use crate::{Channel, Link};

/// Messages up to so many bytes are copied into their frame. Longer ones lie in memory of their own, which is lent.
const COPIED: usize = 4096;

/// The channels to a rank's peers, and the memory that is lent to messages on them.
#[derive(Debug)]
pub struct Lanes {
    peers: Vec<Vec<ChannelId>>,
    ranks: BTreeMap<ChannelId, usize>,
    lent: BTreeMap<(ChannelId, u64), Block>,
    scratch: Vec<u8>,
}

/// What a group is to be told.
#[derive(Debug)]
pub enum Heard {
    /// [`Group::handle_message`](crate::Group::handle_message).
    Message {
        /// Who sent it.
        from: usize,
        /// The message.
        message: Message,
    },
    /// [`Group::peer_left`](crate::Group::peer_left).
    Left {
        /// Who.
        rank: usize,
    },
    /// [`Group::peer_gone`](crate::Group::peer_gone).
    Gone {
        /// Who.
        rank: usize,
        /// Why.
        why: CloseReason,
    },
}

impl Lanes {
    /// For a group of so many, without channels yet.
    pub fn new(ranks: usize) -> Self {
        Self {
            peers: (0..ranks).map(|_| Vec::new()).collect(),
            ranks: BTreeMap::new(),
            lent: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// One more channel to a rank. Both ends add their channels in the same order, or any: lanes need not be the same
    /// at both.
    pub fn add(&mut self, rank: usize, channel: ChannelId) {
        self.peers[rank].push(channel);
        self.ranks.insert(channel, rank);
    }

    /// Channels to a rank.
    pub fn to(&self, rank: usize) -> &[ChannelId] {
        &self.peers[rank]
    }

    /// Whether a channel is one of these.
    pub fn has(&self, channel: ChannelId) -> bool {
        self.ranks.contains_key(&channel)
    }

    /// All channels.
    pub fn all(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.ranks.keys().copied()
    }

    /// Whether every long message was taken, so that no memory is lent.
    pub fn is_settled(&self) -> bool {
        self.lent.is_empty()
    }

    /// Takes in what happened on one of these channels, and says what concerns the group.
    pub fn take_in<V: Verbs>(
        &mut self,
        now: Instant,
        context: &mut Context<V>,
        event: Event,
    ) -> Option<Heard> {
        match event {
            Event::Message { channel, message } => match self.ranks.get(&channel) {
                Some(&from) => Some(Heard::Message { from, message }),
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
                    // What came on other lanes may not be here yet.
                    CloseReason::ByPeer | CloseReason::Finished => {
                        self.peers[rank].is_empty().then_some(Heard::Left { rank })
                    }
                    why => Some(Heard::Gone { rank, why }),
                }
            }
            _ => None,
        }
    }
}

/// A context and its lanes, as a group's link. The channel is the network's, whatever is asked for.
#[derive(Debug)]
pub struct MessageLink<'a, V> {
    /// The context.
    pub context: &'a mut Context<V>,
    /// Its channels to the peers.
    pub lanes: &'a mut Lanes,
    /// The time.
    pub now: Instant,
}

impl<V: Verbs> MessageLink<'_, V> {
    /// Sends from memory of the message's own.
    fn lend(&mut self, to: ChannelId, head: &[u8], body: &[u8]) -> Result<(), SendError> {
        let len = u32::try_from(head.len() + body.len()).unwrap_or(u32::MAX);
        let block = self.context.allocate(len)?;
        let bytes = self.context.bytes_mut(&block);
        bytes[..head.len()].copy_from_slice(head);
        bytes[head.len()..head.len() + body.len()].copy_from_slice(body);
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
        head: &[u8],
        body: &[u8],
    ) -> Result<bool, String> {
        let lanes = &self.lanes.peers[to];
        if lanes.is_empty() {
            return Err("there is no channel to it any more".into());
        }
        let lane = usize::try_from(lane % lanes.len() as u64).expect("fewer than there are");
        let to = lanes[lane];
        let sent = if head.len() + body.len() <= COPIED {
            let mut scratch = core::mem::take(&mut self.lanes.scratch);
            scratch.clear();
            scratch.extend_from_slice(head);
            scratch.extend_from_slice(body);
            let sent = self.context.send(self.now, to, Payload::Copy(&scratch)).map(drop);
            self.lanes.scratch = scratch;
            sent
        } else {
            self.lend(to, head, body)
        };
        match sent {
            Ok(()) => Ok(true),
            // Of a channel that closed `Closed` tells, and whether the peer left or is gone.
            Err(SendError::Full { .. } | SendError::Memory(_) | SendError::Closed) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn bytes<'a>(&'a self, message: &'a Message) -> &'a [u8] {
        self.context.body(message)
    }

    fn release(&mut self, message: Message) {
        self.context.release(self.now, message);
    }
}
