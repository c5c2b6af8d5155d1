//! Channels begin and end.

use alloc::vec::Vec;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;
use slotmap::Key;
use weft_units::Instant;
use weft_wire::{ChannelOffer, FrameKind, U24};

use super::{ChannelId, Context, Shared};
use crate::Config;
use crate::channel::{Body, Channel, Outgoing, State};
use crate::event::{CloseReason, Event};
use crate::journal::Noted;
use crate::shared_receives::SharedReceives;
use crate::verbs::{Qp, QpSizes, Refused, Verbs};

/// Why a channel could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The device has no room, or cannot reach the peer.
    #[error(transparent)]
    Device(#[from] Refused),
    /// The peer's offer makes no sense.
    #[error("the peer's offer has {field} {got}, expected at least {least}")]
    Senseless {
        /// Which field.
        field: &'static str,
        /// What it says.
        got: u32,
        /// The least it may say.
        least: u32,
    },
    /// There is no channel that waits for an offer.
    #[error("no such channel waits for its peer's offer")]
    NotWaiting,
}

impl<V: Verbs> Context<V> {
    /// Begins a channel: the offer goes to the peer, whose answer is for [`establish`](Self::establish).
    ///
    /// # Errors
    /// The device has no room.
    pub fn offer(&mut self, now: Instant) -> Result<(ChannelId, ChannelOffer), OfferError> {
        let qp = self.take_qp(now)?;
        let config = &self.shared.config;
        let described = ChannelOffer {
            qp: U24::truncate(qp.0),
            psn: U24::truncate(0),
            gid: self.shared.verbs.gid(),
            depth: config.depth,
            ack_frames: config.ack_frames(),
            small: config.small,
            longest: config.longest,
            token: 0,
            shared: config.srq > 0,
        };
        self.shared.stats.channels += 1;
        self.activity += 1;
        let secret = self.secret;
        let id = self.channels.insert_with_key(|id| {
            let token = token(&secret, id);
            #[expect(clippy::cast_possible_truncation, reason = "some bits of it will do")]
            let psn = U24::truncate((token >> 32) as u32 ^ token as u32);
            Channel::new(now, qp, ChannelOffer { token, psn, ..described })
        });
        self.shared.current = id;
        if described.shared {
            self.by_qp.insert(qp, id);
        }
        let channel = self.channels.get_mut(id).expect("it was made just now");
        let posted = channel.post_receives(&mut self.shared);
        let offer = channel.offer;
        if let Err(reason) = posted {
            self.end_silently(now, id);
            let CloseReason::Device(refused) = reason else { unreachable!("posting only") };
            return Err(refused.into());
        }
        Ok((id, offer))
    }

    /// The peer's answer to an offer came: the channel is open.
    ///
    /// # Errors
    /// The offer makes no sense, or the peer cannot be reached; the channel is gone then.
    pub fn establish(
        &mut self,
        now: Instant,
        id: ChannelId,
        peer: &ChannelOffer,
    ) -> Result<(), OfferError> {
        self.connect(now, id, peer)?;
        let channel = self.channels.get_mut(id).expect("it was connected just now");
        channel.state = State::Open;
        let peer = channel.peer.gid;
        self.shared.current = id;
        self.shared.events.push_back(Event::Open { channel: id });
        self.shared.note(now, Some(peer), Noted::Opened);
        // The peer's end opens with the first frame.
        self.with(now, id, |channel, shared| channel.send_control(now, shared, FrameKind::Nop));
        self.attend(now);
        Ok(())
    }

    /// A peer's offer came: the answer goes back. The channel is open when the peer's first frame is there.
    ///
    /// # Errors
    /// The offer makes no sense, the device has no room, or cannot reach the peer.
    pub fn accept(
        &mut self,
        now: Instant,
        peer: &ChannelOffer,
    ) -> Result<(ChannelId, ChannelOffer), OfferError> {
        sensible(peer)?;
        let (id, offer) = self.offer(now)?;
        self.connect(now, id, peer)?;
        self.note(id);
        Ok((id, offer))
    }

    fn connect(
        &mut self,
        now: Instant,
        id: ChannelId,
        peer: &ChannelOffer,
    ) -> Result<(), OfferError> {
        let waiting = self.channels.get_mut(id).filter(|channel| channel.state == State::Offered);
        let channel = waiting.ok_or(OfferError::NotWaiting)?;
        let psn = channel.offer.psn.into();
        let connected = sensible(peer).and_then(|()| {
            self.shared.verbs.connect_qp(now, channel.qp, psn, peer).map_err(OfferError::from)
        });
        match connected {
            Ok(()) => {
                channel.meet(peer);
                channel.last_heard = now;
                Ok(())
            }
            Err(error) => {
                self.end_silently(now, id);
                Err(error)
            }
        }
    }

    /// Closes a channel: what was handed in is still sent, nothing more is taken. `Closed` follows.
    pub fn close(&mut self, now: Instant, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        match channel.state {
            State::Offered | State::Connected => return self.end(now, id, CloseReason::Aborted),
            State::Closing { .. } | State::PeerClosed { .. } => return,
            State::Open => {}
        }
        channel.state = State::Closing { until: now + self.shared.config.close_timeout };
        self.with(now, id, |channel, shared| {
            let close = shared.control(FrameKind::Close).map_err(CloseReason::Device)?;
            channel.backlog.push_back(close);
            Ok(())
        });
        self.attend(now);
    }

    /// Ends a channel at once; the peer finds out by itself.
    pub fn abort(&mut self, now: Instant, id: ChannelId) {
        if self.channels.contains_key(id) {
            self.end(now, id, CloseReason::Aborted);
        }
    }

    /// Channels there are.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.channels.keys()
    }

    /// Ends all channels and gives back all memory and queue pairs.
    pub fn shut_down(&mut self, now: Instant) {
        let all: Vec<_> = self.channels.keys().collect();
        all.into_iter().for_each(|id| self.end(now, id, CloseReason::Aborted));
        for qp in self.qps.drain(..) {
            self.shared.verbs.destroy_qp(now, qp);
        }
        let Shared { memory, verbs, receives, .. } = &mut self.shared;
        if receives.take().is_some() {
            verbs.destroy_shared_receives();
        }
        memory.free_all(verbs);
    }

    pub(super) fn end(&mut self, now: Instant, id: ChannelId, reason: CloseReason) {
        let peer = self.channels.get(id).map(|channel| channel.peer.gid);
        self.shared.current = id;
        self.shared.note(now, peer, Noted::Closed(reason));
        self.end_silently(now, id);
        self.shared.events.push_back(Event::Closed { channel: id, reason });
    }

    fn end_silently(&mut self, now: Instant, id: ChannelId) {
        let Some(mut channel) = self.channels.remove(id) else { return };
        if let Some(at) = channel.timer {
            self.timers.remove(&(at, id));
        }
        self.shared.stats.closed += 1;
        self.activity += 1;
        self.by_qp.remove(&channel.qp);
        // First of all the device forgets the memory.
        if !channel.stream.rdma_lost {
            self.give_back_qp(now, channel.qp);
        }
        let Shared { memory, reading, .. } = &mut self.shared;
        *reading -= u32::from(channel.reading);
        let fetched = channel.fetches.into_iter().filter_map(|fetch| fetch.to);
        let early = channel.stream.early.drain(..).map(|(block, ..)| block);
        for block in channel.posted.into_iter().chain(fetched).chain(early) {
            memory.release(now, block);
        }
        let waiting = channel.tx.drain().chain(channel.backlog);
        waiting.for_each(|frame| self.shared.drop_frame(now, frame));
    }

    /// A queue pair: one that another channel had, or a new one (section IV.E).
    fn take_qp(&mut self, now: Instant) -> Result<Qp, Refused> {
        if let Some(qp) = self.qps.pop() {
            self.shared.stats.qps_reused += 1;
            return Ok(qp);
        }
        self.share_receives()?;
        let config = &self.shared.config;
        let (depth, acks) = (u32::from(config.depth), u32::from(config.ack_frames()));
        let sizes = QpSizes {
            // A request is gone from the queue when a later one that was signalled has completed.
            send: 2 * (depth + acks) + u32::from(config.reads) + 8,
            receive: depth + acks,
            reads: config.reads,
            shared: config.srq > 0,
        };
        self.shared.stats.qps_created += 1;
        self.shared.verbs.create_qp(now, sizes)
    }

    /// Makes and fills the queue that channels share, if there is to be one.
    fn share_receives(&mut self) -> Result<(), Refused> {
        let Shared { verbs, config, receives, .. } = &mut self.shared;
        if config.srq > 0 && receives.is_none() {
            verbs.create_shared_receives(config.srq)?;
            *receives = Some(SharedReceives::new(config.srq));
            self.shared.fill_shared();
        }
        Ok(())
    }

    /// Destroys what the cache may no longer keep.
    pub(super) fn trim_qps(&mut self, now: Instant) {
        let keep = self.shared.config.qp_cache as usize;
        while self.qps.len() > keep
            && let Some(qp) = self.qps.pop()
        {
            self.shared.verbs.destroy_qp(now, qp);
        }
    }

    fn give_back_qp(&mut self, now: Instant, qp: Qp) {
        let room = self.qps.len() < self.shared.config.qp_cache as usize;
        if room && self.shared.verbs.reset_qp(now, qp).is_ok() {
            self.qps.push(qp);
        } else {
            self.shared.verbs.destroy_qp(now, qp);
        }
    }
}

impl<V: Verbs> Shared<V> {
    /// Gives back the memory of a frame that will not leave, or never be acknowledged.
    pub(super) fn drop_frame(&mut self, now: Instant, frame: Outgoing) {
        self.memory.release(now, frame.frame);
        if let Some(Body::Copied(block, _)) = frame.body {
            self.memory.release(now, block);
        }
    }
}

impl Channel {
    /// A close that the peer does not answer, and a peer that does not read the answer to its own.
    pub(super) fn expire(&self, now: Instant, config: &Config) -> Result<(), CloseReason> {
        match self.state {
            State::Closing { until } if until <= now => Err(CloseReason::CloseTimedOut),
            State::PeerClosed { until } if until <= now => Err(CloseReason::ByPeer),
            _ if self.stream_silent(now, config) => Err(CloseReason::StreamBroken),
            _ => Ok(()),
        }
    }
}

fn sensible(peer: &ChannelOffer) -> Result<(), OfferError> {
    let least = |field, got: u32, least: u32| {
        if got < least { Err(OfferError::Senseless { field, got, least }) } else { Ok(()) }
    };
    least("depth", peer.depth.into(), 3)?;
    least("ack_frames", peer.ack_frames.into(), 1)?;
    least("small", peer.small, 64)?;
    least("longest", peer.longest, peer.small)
}

/// A number for a channel that nobody can guess.
fn token(secret: &[u8; 16], id: ChannelId) -> u64 {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write_u64(id.data().as_ffi());
    hasher.finish()
}
