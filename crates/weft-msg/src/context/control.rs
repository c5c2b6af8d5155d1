//! Parameters, filters, carriers and counts: what is asked of a running context from outside its data path.

use alloc::vec::Vec;

use weft_units::{Histogram, Instant};
use weft_wire::FrameKind;

use super::{ChannelId, Context};
use crate::channel::{Carrier, Channel, State};
use crate::event::CloseReason;
use crate::filter::Rule;
use crate::journal::Journal;
use crate::memory::MemoryLimits;
use crate::stats::{ChannelStatus, ContextStats};
use crate::verbs::{Qp, Verbs};
use crate::{Config, ConfigError};

/// Why a channel's carrier does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// There is no such channel, or it is not open.
    #[error("the channel is not open")]
    NotOpen,
    /// No stream was attached to it.
    #[error("no stream is attached to the channel")]
    NoStream,
    /// Its queue pair broke.
    #[error("the channel's queue pair is broken")]
    RdmaLost,
}

impl<V: Verbs> Context<V> {
    /// The parameters.
    pub const fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Gives an on-line parameter a value (`set_flag`).
    ///
    /// # Errors
    /// There is no such parameter, it is off-line, or the value is none of it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let shared = &mut self.shared;
        shared.config.set_online(name, value)?;
        shared.memory.limit(MemoryLimits {
            region: shared.config.memory_region,
            total: shared.config.memory_limit,
            keep: shared.config.memory_keep,
        });
        // Deadlines may be sooner than they were noted.
        let all: Vec<_> = self.channels.keys().collect();
        all.into_iter().for_each(|id| self.note(id));
        Ok(())
    }

    /// Replaces the filter's rules; the first that strikes a message decides.
    pub fn set_filter(&mut self, rules: &[Rule]) {
        self.shared.filter.rules = rules.into();
    }

    /// Counts since the context began.
    pub fn stats(&self) -> ContextStats {
        ContextStats { filtered: self.shared.filter.hits, ..self.shared.stats }
    }

    /// What happened lately.
    pub const fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Grows whenever a message is handed in, something completes, or a channel begins or ends.
    pub const fn activity(&self) -> u64 {
        self.activity
    }

    /// How long a channel's answered calls took, from request to response.
    pub fn calls(&self, id: ChannelId) -> Option<&Histogram> {
        self.channels.get(id).map(|channel| &channel.calls)
    }

    /// Bytes of registered memory, and bytes of them in use.
    pub const fn memory(&self) -> (u64, u64) {
        self.shared.memory.bytes()
    }

    /// Queue pairs that wait for the next channels.
    pub const fn cached_qps(&self) -> usize {
        self.qps.len()
    }

    /// The device.
    pub const fn verbs(&self) -> &V {
        &self.shared.verbs
    }

    /// The device, for its owner's own calls.
    pub const fn verbs_mut(&mut self) -> &mut V {
        &mut self.shared.verbs
    }

    #[cfg(test)]
    pub(crate) fn qp_of(&self, id: ChannelId) -> Qp {
        self.channels[id].qp
    }

    /// What a channel is like now.
    pub fn status(&self, id: ChannelId) -> Option<ChannelStatus> {
        let channel = self.channels.get(id)?;
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let frame = u64::from(self.shared.frame_len());
        Some(ChannelStatus {
            state: channel.state.into(),
            qp: channel.qp,
            peer: channel.peer.gid,
            peer_qp: Qp(channel.peer.qp.into()),
            stats: channel.stats,
            in_flight: channel.tx.in_flight(),
            depth: channel.peer.depth,
            backlog: count(channel.backlog.len()),
            fetching: count(channel.fetches.len()),
            asked: count(channel.asked.len()),
            to_answer: count(channel.to_answer.len()),
            receive_bytes: channel.posted.len() as u64 * frame,
            clock_offset: channel.clock.offset(),
            carrier: channel.stream.sending,
        })
    }

    /// A channel's token, which its peer knows: whoever shows it may attach a stream.
    pub fn channel_of_token(&self, token: u64) -> Option<ChannelId> {
        let mut all = self.channels.iter();
        all.find(|(_, channel)| channel.offer.token == token).map(|(id, _)| id)
    }

    /// The token by which the peer knows its end of the channel.
    pub fn peer_token(&self, id: ChannelId) -> Option<u64> {
        self.channels.get(id).map(|channel| channel.peer.token)
    }

    /// The owner has a stream to the channel's peer now. From then on a broken queue pair does not end it.
    pub fn attach_stream(&mut self, id: ChannelId) -> bool {
        let channel = self.channels.get_mut(id);
        channel.is_some_and(|channel| !core::mem::replace(&mut channel.stream.attached, true))
    }

    /// Has the channel's frames leave by the other carrier from now on, and the peer's too.
    ///
    /// # Errors
    /// The channel is not open, has no stream, or its queue pair is broken.
    pub fn switch(&mut self, now: Instant, id: ChannelId, to: Carrier) -> Result<(), SwitchError> {
        let channel = self.channels.get_mut(id).filter(|channel| channel.state == State::Open);
        let channel = channel.ok_or(SwitchError::NotOpen)?;
        if !channel.stream.attached {
            return Err(SwitchError::NoStream);
        }
        if channel.stream.rdma_lost {
            return if to == Carrier::Stream { Ok(()) } else { Err(SwitchError::RdmaLost) };
        }
        channel.stream.wanted = to;
        self.touch(id);
        self.attend(now);
        Ok(())
    }

    /// Takes in bytes of a channel's stream.
    pub fn handle_stream(&mut self, now: Instant, id: ChannelId, bytes: &[u8]) {
        self.with(now, id, |channel, shared| channel.stream_received(now, shared, bytes));
        self.attend(now);
    }

    /// A channel's stream ended.
    pub fn stream_ended(&mut self, now: Instant, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        channel.stream.attached = false;
        if channel.stream.in_use() {
            self.fail(now, id, CloseReason::StreamBroken);
        }
    }

    /// Fills `buffer` with what wants to leave by a channel's stream next, and says with how many bytes.
    pub fn poll_stream(&mut self, id: ChannelId, buffer: &mut [u8]) -> usize {
        let Some(channel) = self.channels.get_mut(id) else { return 0 };
        channel.stream.fill(buffer)
    }

    /// Whether a channel's stream may be read: what comes too early waits, and is not to wait without bounds.
    pub fn stream_wants_to_read(&self, id: ChannelId) -> bool {
        self.channels.get(id).is_some_and(Channel::stream_has_room)
    }

    /// Whether bytes wait to leave by a channel's stream.
    pub fn stream_wants_to_write(&self, id: ChannelId) -> bool {
        self.channels.get(id).is_some_and(|channel| channel.stream.wants_to_write())
    }

    /// Asks the peer for an acknowledgement now, as a keepalive that does not wait for silence.
    pub fn nudge(&mut self, now: Instant, id: ChannelId) {
        self.with(now, id, |channel, shared| channel.send_control(now, shared, FrameKind::Nop));
        self.attend(now);
    }
}
