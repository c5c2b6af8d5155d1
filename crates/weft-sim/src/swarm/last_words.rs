//! The end of a case: the network is repaired, all messages have arrived, and some time has passed. Then each end of
//! each channel sends a few messages ("words"), one at a time, into an idle network. The last of them must arrive
//! promptly and without a retransmission.
//!
//! This shows slow leaks of a transport, and state that it loses while it is idle: before this phase, a retransmission
//! timeout may hide them.

use std::sync::{Arc, Mutex, PoisonError};

use weft_transport::congestion::Congestion as _;
use weft_transport::path::{self, Spread};
use weft_transport::{TransportConfig, recovery};
use weft_units::{ByteCount, Duration, Rng};

use super::draw::pick;
use super::path_return_time;
use crate::switch;
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, ChannelState, Notice, SendRequest, Side};
use crate::workload::Workload;
use crate::world::{Session, WorldConfig};

/// Number of words of each end of a channel. The first may meet a timeout that has no measured round trip yet; the
/// ACKs of it and of its retransmission provide the measurement.
const WORDS: u32 = 4;

/// Number of packets of a long word.
const LONG_WORD: u32 = 30;

/// An upper bound of the bytes around a packet's payload.
const HEADERS: u32 = 100;

/// Interval at which a sender checks that its channel still exists.
const CHECK_INTERVAL: SimSpan = SimSpan::from_picos(100_000_000_000);

/// The workload that sends words when the network is idle.
#[derive(Clone, Debug)]
pub(super) struct LastWords {
    /// The earliest start.
    from: SimTime,
    /// The time for which the network must have been idle before.
    idle_time: SimSpan,
    /// Number of words of each end: [`WORDS`], or zero, so that an idle end is tested too.
    words: u32,
    /// Bytes of a word.
    length: u32,
    /// Maximum number of packets of a word.
    packets: u32,
    /// The time in which a packet must be acknowledged.
    prompt: Duration,
    /// Maximum time that one packet delays the next.
    pace: Duration,
    /// `true` if the timeout can adapt to that time.
    is_timeout_fair: bool,
    /// `true` if the reordering bound is longer than that time: then no path is so much faster than another that its
    /// packets seem to overtake lost ones.
    is_order_fair: bool,
    /// `true` if packets arrive in the order in which they left, or need not. Go-back-N under a spray restarts at each
    /// packet that is overtaken, and finally waits for its timeout.
    is_pace_fair: bool,
    state: State,
    /// Number of words sent by all ends.
    count: u64,
    violations: Arc<Mutex<Vec<String>>>,
}

/// The phase of the workload.
#[derive(Clone, Debug)]
enum State {
    Waiting { idle_since: Option<SimTime> },
    Sending { word: Word, others: Vec<(ChannelId, Side)> },
    Done,
}

/// The word in flight, with the counters before it.
#[derive(Clone, Copy, Debug)]
struct Word {
    channel: ChannelId,
    side: Side,
    /// The number of the word at this end, from 1.
    number: u32,
    sent_at: SimTime,
    /// Packets that this end had retransmitted before the word.
    retransmissions: u64,
    /// Packets of its host that had been detected as overtaken before.
    overtaken: u64,
    /// Packets that the network had lost before.
    lost: u64,
}

impl LastWords {
    /// Returns the words after `from` in a world of this kind. `odd` is the configuration of some of its hosts, and
    /// has the smallest MTU of any.
    pub(super) fn new(
        from: SimTime,
        world: &WorldConfig,
        odd: &TransportConfig,
        rng: &mut Rng,
    ) -> Self {
        let (transport, mtu) = (&world.transport, odd.mtu);
        let length = pick(rng, &[0, 1, 64, LONG_WORD * u32::from(mtu)]);
        let path_return_time = path_return_time(transport);
        // By then an idle connection has released its memory.
        let memory_returns = Duration::from_millis(1_200);
        let idle_time = if rng.chance(1, 3) { memory_returns } else { path_return_time };
        let jitter = Duration::from_nanos(world.jitter.as_picos().div_ceil(1_000));
        let held = transport.ack_delay + world.place_delay;
        let prompt = (transport.base_rtt + held + jitter * 2) * 2;
        // If a retransmission reaches the peer before the first ACK has left, the first ACK arrives first and is
        // measured, without the peer's delay.
        let timeouts = transport.retransmission;
        // A switch that chooses a link for each packet reorders within a path too.
        let keeps_order = world.fabric.forwarding.kind == switch::Kind::Ecmp;
        // The recoveries of NICs declare every overtaken packet lost, on any path.
        let by_path = transport.recovery.kind == recovery::Kind::PerPath;
        let is_order_fair = by_path && keeps_order && timeouts.reorder_bound > prompt;
        let shortest = timeouts.rto_min.min(transport.recovery.rto_low);
        let is_timeout_fair =
            timeouts.rto_max >= prompt && if by_path { timeouts.rto_min } else { shortest } > held;
        // `best-rtt` changes its path as soon as another one seems faster, even between two packets of a word.
        let moves =
            |policy: path::Kind| policy.spread() != Spread::One || policy == path::Kind::BestRtt;
        let sprays = [transport, odd].iter().any(|config| moves(config.policy));
        let restarts_at_losses = transport.recovery.kind == recovery::Kind::GoBackN;
        Self {
            from,
            idle_time: idle_time.max(path_return_time).into(),
            words: pick(rng, &[0, WORDS, WORDS]),
            length,
            packets: length.div_ceil(mtu.into()).max(1),
            prompt,
            pace: pace(transport, length).max(pace(odd, length)),
            is_timeout_fair,
            is_order_fair,
            is_pace_fair: !(restarts_at_losses && sprays),
            state: State::Waiting { idle_since: None },
            count: 0,
            violations: Arc::default(),
        }
    }

    /// Returns the violations as sentences. Clones share them.
    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn report(&self, text: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    fn woken(&mut self, token: u64, session: &mut Session<'_>) {
        let now = session.now();
        match &mut self.state {
            State::Waiting { idle_since } => {
                let is_idle = super::network(session).traffic.in_progress() == 0;
                *idle_since = is_idle.then(|| idle_since.unwrap_or(now));
                let has_idled = idle_since.is_some_and(|since| now.since(since) >= self.idle_time);
                if has_idled {
                    let ends = if self.words > 0 { every_end(session) } else { Vec::new() };
                    self.next_end(ends, session);
                } else {
                    session.wake(now + self.idle_time, 0);
                }
            }
            State::Sending { word, others } if token == self.count => {
                if is_open(word.channel, session) {
                    session.wake(now + CHECK_INTERVAL, token);
                } else {
                    let others = std::mem::take(others);
                    self.next_end(others, session);
                }
            }
            State::Sending { .. } | State::Done => {}
        }
    }

    fn next_end(&mut self, mut others: Vec<(ChannelId, Side)>, session: &mut Session<'_>) {
        while let Some((channel, side)) = others.pop() {
            if is_open(channel, session) {
                return self.send_word(channel, side, 1, others, session);
            }
        }
        self.state = State::Done;
    }

    fn send_word(
        &mut self,
        channel: ChannelId,
        side: Side,
        number: u32,
        others: Vec<(ChannelId, Side)>,
        session: &mut Session<'_>,
    ) {
        let sent_at = session.now();
        let (retransmissions, overtaken) = retransmissions(channel, side, session);
        let lost = lost(session);
        let word = Word { channel, side, number, sent_at, retransmissions, overtaken, lost };
        self.state = State::Sending { word, others };
        self.count += 1;
        session.wake(sent_at + CHECK_INTERVAL, self.count);
        session.send(SendRequest {
            channel,
            from: side,
            length: self.length,
            tag: 0,
            recorded: false,
        });
    }

    fn on_acknowledged(&mut self, session: &mut Session<'_>) {
        let State::Sending { word, others } = &mut self.state else { return };
        let (word, others) = (*word, std::mem::take(others));
        if word.number < self.words {
            return self.send_word(word.channel, word.side, word.number + 1, others, session);
        }
        self.evaluate(word, session);
        self.next_end(others, session);
    }

    fn evaluate(&self, word: Word, session: &Session<'_>) {
        let Word { channel, side, sent_at, .. } = word;
        let (retransmissions, overtaken) = retransmissions(channel, side, session);
        let (retransmissions, overtaken) =
            (retransmissions - word.retransmissions, overtaken - word.overtaken);
        let elapsed = session.now().since(sent_at);
        // A burst may still exceed the shortest queues.
        if !self.is_timeout_fair || lost(session) > word.lost {
            return;
        }
        // Several packets may exceed the timeout, or overtake each other and look lost.
        if retransmissions > 0 && self.packets == 1 {
            self.report(format!(
                "{channel:?}, {side:?}: the last word was retransmitted {retransmissions} times in an idle \
                 network"
            ));
        }
        if overtaken > 0 && self.is_order_fair {
            self.report(format!(
                "{channel:?}, {side:?}: {overtaken} packets of the last word seemed to be overtaken in \
                 an idle network"
            ));
        }
        // Even one packet at a time it is acknowledged by then.
        let limit = (self.prompt + self.pace) * self.packets.into();
        if elapsed > limit.into() && self.is_pace_fair {
            self.report(format!(
                "{channel:?}, {side:?}: the last word took {} us in an idle network, expected at \
                 most {limit}",
                elapsed.as_micros_f64(),
            ));
        }
    }
}

/// Returns the maximum time that a packet of up to `length` bytes delays the next at the lowest rate: congestion
/// control may recover slowly after the faults.
fn pace(transport: &TransportConfig, length: u32) -> Duration {
    let paces = transport.congestion.build(transport).rate().is_some();
    let slowest = transport.dcqcn.min_rate.min(transport.timely.min_rate);
    let bytes = u64::from(length.min(transport.mtu.into()) + HEADERS);
    if paces { slowest.serialization_delay(ByteCount(bytes)) } else { Duration::ZERO }
}

/// Returns both ends of every channel.
fn every_end(session: &Session<'_>) -> Vec<(ChannelId, Side)> {
    let channels = super::network(session).traffic.channels();
    channels.flat_map(|(id, _)| [(id, Side::Peer), (id, Side::Opener)]).collect()
}

fn is_open(channel: ChannelId, session: &Session<'_>) -> bool {
    let channel = super::network(session).traffic.channel(channel);
    channel.is_some_and(|channel| channel.state == ChannelState::Open)
}

/// Returns the number of packets that the network has lost.
fn lost(session: &Session<'_>) -> u64 {
    super::network(session).fabric.counters.lost.iter().sum()
}

/// Returns the number of packets that this end of the channel has retransmitted, and of those that its host has
/// retransmitted because later packets overtook them. Only the first is counted for the connection alone: other
/// connections of the host may still probe a peer that restarted.
fn retransmissions(channel: ChannelId, side: Side, session: &Session<'_>) -> (u64, u64) {
    let network = super::network(session);
    let channel = network.traffic.channel(channel).expect("only known channels speak");
    let endpoint = &network.hosts[channel.hosts[side.index()].index()].endpoint;
    let connection = channel.connections[side.index()].expect("what speaks is open");
    let stats = endpoint.connection_stats(connection).expect("what is open is held");
    (stats.packets_retransmitted, endpoint.stats().fast_retransmits)
}

impl Workload for LastWords {
    fn start(&mut self, session: &mut Session<'_>) {
        session.wake(self.from, 0);
    }

    fn on_notice(&mut self, notice: &Notice, session: &mut Session<'_>) {
        match notice {
            Notice::Woken { token } => self.woken(*token, session),
            Notice::Acknowledged { .. } => self.on_acknowledged(session),
            Notice::Delivered { .. } | Notice::Closed { .. } => {}
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }
}
