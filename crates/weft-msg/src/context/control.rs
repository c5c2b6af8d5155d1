//! Parameters, filters, carriers and counters: the control interface of a running context.

use alloc::string::String;
use alloc::vec::Vec;

use weft_units::{Histogram, Instant, unknown_name};
use weft_wire::FrameKind;

use super::{ChannelId, Context, Shared};
use crate::carrier::Carrier;
use crate::channel::{Channel, State};
use crate::event::CloseReason;
use crate::filter::{Rule, parse_rules, rules_text};
use crate::journal::Journal;
use crate::memory::{MemoryLimits, MemoryUse};
use crate::stats::{ChannelStatus, ContextStats, FlowStatus, TracedTimes};
use crate::trace::ClockEstimate;
use crate::verbs::{Qp, Verbs};
use crate::{Config, ConfigError, Parameter};

/// The parameter that is the filter.
const FILTER: &str = "filter";
/// The parameter that is the channels' carrier.
const CARRIER: &str = "carrier";
/// The parameter that is the time between attempts to return to RDMA.
const RDMA_RETRY: &str = "rdma_retry";

/// An error that prevents a change of carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// There is no such channel, or it is not open.
    #[error("the channel is not open")]
    NotOpen,
    /// No stream was attached to it.
    #[error("no stream is attached to the channel")]
    NoStream,
    /// The queue pair is broken.
    #[error("the channel's queue pair is broken")]
    RdmaLost,
}

/// Adds the filter to the known names of an error about an unknown name.
fn with_filter(name: &str, error: ConfigError) -> ConfigError {
    let ConfigError::Unknown(_) = error else { return error };
    let parameters = Config::default().parameters();
    let known: Vec<&str> = parameters.iter().map(|it| it.name).chain([FILTER]).collect();
    ConfigError::Unknown(unknown_name("parameter", name, &known))
}

impl<V: Verbs> Context<V> {
    /// Returns the parameters.
    pub const fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Sets an on-line parameter (`set_flag`), or the rules of the `filter`, separated by semicolons. A new `carrier` is
    /// requested for all channels that have a stream, at the next poll.
    ///
    /// # Errors
    /// There is no such parameter, it is off-line, or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let shared = &mut self.shared;
        if name == FILTER {
            shared.filter.rules = parse_rules(value)?;
            return Ok(());
        }
        shared.config.set_online(name, value).map_err(|error| with_filter(name, error))?;
        shared.memory.set_limits(MemoryLimits {
            region: shared.config.memory_region,
            total: shared.config.memory_limit,
            keep: shared.config.memory_keep,
        });
        let bounds = shared.config.flow_bounds();
        shared.sends.set_bounds(bounds);
        shared.reads.set_bounds(bounds);
        let carrier = (name == CARRIER).then_some(shared.config.carrier);
        let all: Vec<_> = self.channels.keys().collect();
        for id in all {
            if let Some(carrier) = carrier {
                self.want_carrier(id, carrier);
            }
            if name == RDMA_RETRY
                && let Some(channel) = self.channels.get_mut(id)
            {
                let now = self.last_poll.unwrap_or(Instant::EPOCH);
                channel.restart_renewal(now, &self.shared.config);
            }
            // Its deadline may be earlier than the registered one.
            self.reschedule(id);
        }
        Ok(())
    }

    /// Returns every parameter that [`set`](Self::set) knows, with its value: those of the configuration, and the filter.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut all = self.shared.config.parameters();
        all.push(Parameter {
            name: FILTER,
            value: rules_text(&self.shared.filter.rules),
            min: String::new(),
            max: String::new(),
            online: true,
            about: "Faults to inject, as in `out drop 1/100; in delay 5ms responses`; none: no faults.",
        });
        all
    }

    /// Requests a carrier for a channel that can choose.
    fn want_carrier(&mut self, id: ChannelId, to: Carrier) {
        let channel = self.channels.get_mut(id);
        if let Some(channel) = channel.filter(|it| it.stream.attached && !it.stream.rdma_lost) {
            channel.stream.wanted = to;
            channel.congestion.reset();
            self.touch(id);
        }
    }

    /// Replaces the filter's rules; the first rule that matches a message decides.
    pub fn set_filter(&mut self, rules: &[Rule]) {
        self.shared.filter.rules = rules.into();
    }

    /// Returns the counters since the context began.
    pub fn stats(&self) -> ContextStats {
        ContextStats { filtered: self.shared.filter.faults_injected, ..self.shared.stats }
    }

    /// Returns the recent events.
    pub const fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Returns a count that grows with every message submitted, completion, and beginning or end of a channel.
    pub const fn activity(&self) -> u64 {
        self.activity
    }

    /// Returns the durations of a channel's answered calls, from request to response.
    pub fn calls(&self, id: ChannelId) -> Option<&Histogram> {
        self.channels.get(id).map(|channel| &channel.calls)
    }

    /// Returns the times of traced calls of all channels.
    pub const fn traced(&self) -> &TracedTimes {
        &self.shared.traced
    }

    /// Returns the limits of work in flight.
    pub const fn flow(&self) -> FlowStatus {
        let Shared { sends, reads, .. } = &self.shared;
        FlowStatus {
            sends_limit: sends.limit(),
            sends_in_flight: sends.in_flight(),
            reads_limit: reads.limit(),
            reads_in_flight: reads.in_flight(),
        }
    }

    /// Returns an estimate of the clock of a channel's peer; `None` if no call was traced recently.
    pub fn clock(&self, now: Instant, id: ChannelId) -> Option<ClockEstimate> {
        self.channels.get(id)?.clock.estimate(now)
    }

    /// Returns the registered memory and its use.
    pub const fn memory(&self) -> MemoryUse {
        self.shared.memory.usage()
    }

    /// Returns the number of cached queue pairs.
    pub const fn cached_qps(&self) -> usize {
        self.qps.len()
    }

    /// Returns the device.
    pub const fn verbs(&self) -> &V {
        &self.shared.verbs
    }

    /// Returns the device for the owner's own calls.
    pub const fn verbs_mut(&mut self) -> &mut V {
        &mut self.shared.verbs
    }

    #[cfg(test)]
    pub(crate) fn qp_of(&self, id: ChannelId) -> Qp {
        self.channels[id].qp
    }

    #[cfg(test)]
    pub(crate) fn mapped_qps(&self) -> usize {
        self.by_qp.len()
    }

    /// Returns the current status of a channel.
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
            fetching: count(channel.fetches.len() + channel.cancelled.len()),
            pending_calls: count(channel.pending_calls.len()),
            to_answer: count(channel.to_answer.len()),
            receive_bytes: channel.posted.len() as u64 * frame,
            round_trip: channel.congestion.smoothed(),
            carrier: channel.stream.sending,
        })
    }

    /// Returns the channel with this token. A peer that presents the token may attach a stream.
    pub fn channel_of_token(&self, token: u64) -> Option<ChannelId> {
        let mut all = self.channels.iter();
        all.find(|(_, channel)| channel.offer.token == token).map(|(id, _)| id)
    }

    /// Returns the peer's token of the channel.
    pub fn peer_token(&self, id: ChannelId) -> Option<u64> {
        self.channels.get(id).map(|channel| channel.peer.token)
    }

    /// Records that the owner has a stream to the channel's peer. From then on a broken queue pair does not end
    /// the channel. Returns `true` if the channel exists and had no stream.
    pub fn attach_stream(&mut self, id: ChannelId) -> bool {
        let channel = self.channels.get_mut(id);
        let attached =
            channel.is_some_and(|channel| !core::mem::replace(&mut channel.stream.attached, true));
        if attached && self.shared.config.carrier == Carrier::Stream {
            self.want_carrier(id, Carrier::Stream);
        }
        attached
    }

    /// Switches the channel to the carrier `to`, in both directions.
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
        self.want_carrier(id, to);
        self.service_touched(now);
        Ok(())
    }

    /// Handles received bytes of a channel's stream. Bytes that arrive while
    /// [`stream_wants_to_read`](Self::stream_wants_to_read) is `false` end the channel.
    pub fn handle_stream(&mut self, now: Instant, id: ChannelId, bytes: &[u8]) {
        self.with(now, id, |channel, shared| channel.stream_received(now, shared, bytes));
        self.service_touched(now);
    }

    /// Handles the end of a channel's stream. A channel that uses the stream ends with it.
    pub fn handle_stream_end(&mut self, now: Instant, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        channel.stream.attached = false;
        // A switch to it that has not begun is withdrawn.
        channel.stream.wanted = channel.stream.sending;
        channel.congestion.reset();
        if channel.stream.in_use() {
            self.fail(now, id, CloseReason::StreamBroken);
        }
    }

    /// Returns the next channel whose stream needs its owner: it has bytes to write, or the channel has ended. A channel is
    /// returned once for all bytes that it has, and again for later ones.
    #[inline]
    pub fn poll_pending_stream(&mut self) -> Option<ChannelId> {
        let id = self.pending_streams.pop_front()?;
        if let Some(channel) = self.channels.get_mut(id) {
            channel.in_stream_queue = false;
        }
        Some(id)
    }

    /// Returns `true` if [`poll_pending_stream`](Self::poll_pending_stream) returns a channel.
    #[inline]
    pub fn has_pending_stream(&self) -> bool {
        !self.pending_streams.is_empty()
    }

    /// Returns `true` if the channel has not ended.
    pub fn has_channel(&self, id: ChannelId) -> bool {
        self.channels.contains_key(id)
    }

    /// Fills `buffer` with the next bytes to write to a channel's stream. Returns their number.
    pub fn poll_stream(&mut self, id: ChannelId, buffer: &mut [u8]) -> usize {
        let Some(channel) = self.channels.get_mut(id) else { return 0 };
        channel.stream.fill(buffer)
    }

    /// Returns `true` if a channel's stream may be read; the limit bounds the bytes queued before their turn.
    pub fn stream_wants_to_read(&self, id: ChannelId) -> bool {
        self.channels.get(id).is_some_and(Channel::stream_has_room)
    }

    /// Returns `true` if bytes wait to be written to a channel's stream.
    pub fn stream_wants_to_write(&self, id: ChannelId) -> bool {
        self.channels.get(id).is_some_and(|channel| channel.stream.wants_to_write())
    }

    /// Requests an acknowledgement from the peer with a NOP, without waiting for the keepalive time. It does nothing if
    /// the window is full.
    pub fn request_ack(&mut self, now: Instant, id: ChannelId) {
        self.with(now, id, |channel, shared| channel.send_control(now, shared, FrameKind::Nop));
        self.service_touched(now);
    }
}
