//! The set-up and the end of channels.

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
use crate::journal::NoteKind;
use crate::shared_receives::SharedReceives;
use crate::verbs::{DeviceError, Qp, QpSizes, Verbs};

/// An error in the set-up of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The device has no room, or cannot reach the peer.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The peer's offer is invalid.
    #[error("the peer's offer has {field} {got}, expected at least {min}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// Its value.
        got: u32,
        /// The minimum.
        min: u32,
    },
    /// No such channel waits for an offer.
    #[error("no such channel waits for its peer's offer")]
    NotWaiting,
}

impl<V: Verbs> Context<V> {
    /// Begins a channel and returns its offer for the peer. Pass the peer's answer to [`establish`](Self::establish).
    ///
    /// # Errors
    /// The device has no resources left.
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
            attempt: 0,
            shared: config.srq > 0,
        };
        self.shared.stats.channels += 1;
        self.activity += 1;
        let secret = self.secret;
        let id = self.channels.insert_with_key(|id| {
            let token = token(&secret, id);
            #[expect(clippy::cast_possible_truncation, reason = "any 32 bits of the token serve")]
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

    /// Opens an offered channel with the peer's answer.
    ///
    /// # Errors
    /// The peer's offer is invalid, or the peer is unreachable; the channel has ended then.
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
        self.shared.note(now, Some(peer), NoteKind::Opened);
        // The peer's end opens when it receives the first frame.
        self.with(now, id, |channel, shared| channel.send_control(now, shared, FrameKind::Nop));
        self.service_touched(now);
        Ok(())
    }

    /// Accepts a peer's offer and returns the answer. The channel opens when the peer's first frame arrives.
    ///
    /// # Errors
    /// The offer is invalid, the device has no resources left, or it cannot reach the peer.
    pub fn accept(
        &mut self,
        now: Instant,
        peer: &ChannelOffer,
    ) -> Result<(ChannelId, ChannelOffer), OfferError> {
        validate(peer)?;
        let (id, offer) = self.offer(now)?;
        self.connect(now, id, peer)?;
        self.reschedule(id);
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
        let connected = validate(peer).and_then(|()| {
            self.shared.verbs.connect_qp(now, channel.qp, psn, peer).map_err(OfferError::from)
        });
        match connected {
            Ok(()) => {
                channel.apply_offer(peer);
                channel.last_received = now;
                Ok(())
            }
            Err(error) => {
                self.end_silently(now, id);
                Err(error)
            }
        }
    }

    /// Closes a channel: waiting messages are still sent, no new ones are accepted. `Closed` follows. A channel that is
    /// not open yet is aborted, and its waiting messages are discarded.
    pub fn close(&mut self, now: Instant, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        match channel.state {
            State::Offered | State::Connected => return self.end(now, id, CloseReason::Aborted),
            State::Closing { .. } | State::PeerClosed { .. } => return,
            State::Open => {}
        }
        channel.state = State::Closing { until: now + self.shared.config.close_timeout };
        // The close is the last frame: messages that a filter rule delays must not follow it.
        channel.backlog.extend(self.shared.take_held(id));
        self.with(now, id, |channel, shared| {
            let close = shared.control(FrameKind::Close).map_err(CloseReason::Device)?;
            channel.backlog.push_back(close);
            Ok(())
        });
        self.service_touched(now);
    }

    /// Ends a channel immediately, without notifying the peer.
    pub fn abort(&mut self, now: Instant, id: ChannelId) {
        if self.channels.contains_key(id) {
            self.end(now, id, CloseReason::Aborted);
        }
    }

    /// Returns all channels.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.channels.keys()
    }

    /// Ends all channels and frees all memory and queue pairs. The owner must release its messages and blocks before: a
    /// later release panics in debug builds.
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

    /// Ends a channel, records it in the journal, and reports `Closed`.
    pub(super) fn end(&mut self, now: Instant, id: ChannelId, reason: CloseReason) {
        let peer = self.channels.get(id).map(|channel| channel.peer.gid);
        self.shared.current = id;
        self.shared.note(now, peer, NoteKind::Closed(reason));
        self.end_silently(now, id);
        self.shared.events.push_back(Event::Closed { channel: id, reason });
    }

    /// Ends a channel without an event, and frees its resources.
    fn end_silently(&mut self, now: Instant, id: ChannelId) {
        let Some(mut channel) = self.channels.remove(id) else { return };
        // It ends, whether its close is acknowledged or not.
        let _ = channel.release_acknowledged(now, &mut self.shared);
        if let Some(at) = channel.timer {
            self.timers.remove(&(at, id));
        }
        self.shared.stats.closed += 1;
        self.activity += 1;
        self.forget_qp(id, channel.qp);
        if channel.stream.attached && !channel.in_stream_queue {
            self.pending_streams.push_back(id);
        }
        // The queue pair is reset first, so that the device no longer uses the memory.
        if channel.has_qp() {
            self.return_qp(now, channel.qp);
        }
        let Shared { memory, reads, sends, .. } = &mut self.shared;
        channel.reads.abandon(reads);
        channel.sends.abandon(sends);
        let fetches = channel.fetches.into_iter().chain(channel.cancelled);
        let fetched = fetches.filter_map(|fetch| fetch.to);
        let early = channel.stream.early.drain(..).map(|(block, ..)| block);
        for block in channel.posted.into_iter().chain(fetched).chain(early) {
            memory.release(now, block);
        }
        let waiting = channel.tx.drain().chain(channel.backlog);
        waiting.for_each(|frame| self.shared.drop_frame(now, frame));
    }

    /// Removes the channel of a queue pair, unless the queue pair is another channel's by now.
    pub(super) fn forget_qp(&mut self, id: ChannelId, qp: Qp) {
        if self.by_qp.get(&qp) == Some(&id) {
            self.by_qp.remove(&qp);
        }
    }

    /// Returns a queue pair from the cache, or a new one (section IV.E).
    pub(super) fn take_qp(&mut self, now: Instant) -> Result<Qp, DeviceError> {
        if let Some(qp) = self.qps.pop() {
            self.shared.stats.qps_reused += 1;
            return Ok(qp);
        }
        self.share_receives()?;
        let config = &self.shared.config;
        let (depth, acks) = (u32::from(config.depth), u32::from(config.ack_frames()));
        let sizes = QpSizes {
            // A request leaves the queue when a later signalled one completes.
            send: 2 * (depth + acks) + u32::from(config.reads) + 8,
            receive: depth + acks,
            reads: config.reads,
            shared: config.srq > 0,
        };
        self.shared.stats.qps_created += 1;
        self.shared.verbs.create_qp(now, sizes)
    }

    /// Creates and fills the shared receive queue, if it is configured.
    fn share_receives(&mut self) -> Result<(), DeviceError> {
        let Shared { verbs, config, receives, .. } = &mut self.shared;
        if config.srq > 0 && receives.is_none() {
            verbs.create_shared_receives(config.srq)?;
            *receives = Some(SharedReceives::new(config.srq));
            self.shared.fill_shared();
        }
        Ok(())
    }

    /// Destroys queue pairs beyond the cache's limit.
    pub(super) fn trim_qps(&mut self, now: Instant) {
        let keep = self.shared.config.qp_cache as usize;
        while self.qps.len() > keep
            && let Some(qp) = self.qps.pop()
        {
            self.shared.verbs.destroy_qp(now, qp);
        }
    }

    /// Resets a queue pair and puts it into the cache, or destroys it.
    pub(super) fn return_qp(&mut self, now: Instant, qp: Qp) {
        self.shared.reclaim_shared(now, qp);
        let room = self.qps.len() < self.shared.config.qp_cache as usize;
        if room && self.shared.verbs.reset_qp(now, qp).is_ok() {
            self.qps.push(qp);
        } else {
            self.shared.verbs.destroy_qp(now, qp);
        }
    }
}

impl<V: Verbs> Shared<V> {
    /// Frees the memory of a frame that will not be sent or acknowledged.
    pub(super) fn drop_frame(&mut self, now: Instant, frame: Outgoing) {
        self.memory.release(now, frame.frame);
        if let Some(Body::Copied(block, _)) = frame.body {
            self.memory.release(now, block);
        }
    }
}

impl Channel {
    /// Checks the channel's deadlines.
    ///
    /// # Errors
    /// The peer did not acknowledge the close, did not read the acknowledgement of its own close, or did not answer on
    /// the stream, within the time limit.
    pub(super) fn expire(&self, now: Instant, config: &Config) -> Result<(), CloseReason> {
        match self.state {
            State::Closing { until } if until <= now => Err(CloseReason::CloseTimedOut),
            State::PeerClosed { until } if until <= now => Err(CloseReason::ByPeer),
            _ if self.stream_silent(now, config) => Err(CloseReason::StreamBroken),
            _ => Ok(()),
        }
    }
}

fn validate(peer: &ChannelOffer) -> Result<(), OfferError> {
    let at_least = |field, got: u32, min: u32| {
        if got < min { Err(OfferError::Invalid { field, got, min }) } else { Ok(()) }
    };
    at_least("depth", peer.depth.into(), 3)?;
    at_least("ack_frames", peer.ack_frames.into(), 1)?;
    at_least("small", peer.small, 64)?;
    at_least("longest", peer.longest, peer.small)
}

/// Returns an unpredictable number for a channel.
fn token(secret: &[u8; 16], id: ChannelId) -> u64 {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write_u64(id.data().as_ffi());
    hasher.finish()
}
