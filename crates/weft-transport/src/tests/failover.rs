//! The interruption of a steady stream by a path that becomes a black hole, at the settings of an agent.
//!
//! Each run is made twice with the same messages and pauses, once without the death: a message is late by what the
//! death adds to its latency.

use alloc::boxed::Box;
use alloc::vec::Vec;
use std::println;

use weft_units::{BitRate, Duration, Instant, Rng, Seed};

use super::pair::{Fate, Pair, address};
use crate::path::PathId;
use crate::{ConnectionId, Endpoint, Event, RecoveryConfig, Stats, TransportConfig, congestion};

/// Number of deaths in each case.
const DEATHS: u64 = 24;
/// The latency that a death adds to a late message.
const LATE: Duration = Duration::from_micros(200);

pub(super) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns the configuration of an agent on an Ethernet with four paths.
fn agent() -> TransportConfig {
    TransportConfig {
        paths: 4,
        congestion: congestion::Kind::Weft,
        spray_unit: 44,
        line_rate: BitRate::gbps(40).expect("not zero"),
        base_rtt: Duration::from_micros(300),
        first_window: 64 << 10,
        queue_target: millis(2),
        send_window: 2048,
        reorder_window: 4096,
        ack_every: 44,
        keepalive_interval: Duration::ZERO,
        recovery: RecoveryConfig { suspend_silent: true, ..RecoveryConfig::default() },
        ..TransportConfig::bifrost()
    }
}

/// The conditions of a stream over four paths with a round trip of 150 us.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) spray_unit: u16,
    /// Length of a message, bytes. One is submitted each millisecond.
    pub(super) message: u32,
    /// The mean time between pauses of each end, 0.5 to 2 ms each; zero has none.
    pub(super) pause_every: Duration,
    /// Per mille of the packets lost on a path that lives.
    pub(super) loss_per_mille: u64,
    /// The directions in which a path dies, by the sending end.
    pub(super) dies: [bool; 2],
    pub(super) suspends: bool,
}

/// The stream of `weft-perf`'s bench.
pub(super) const STEADY: Conditions = Conditions {
    spray_unit: 8,
    message: 25_000,
    pause_every: Duration::ZERO,
    loss_per_mille: 0,
    dies: [true; 2],
    suspends: true,
};

pub(super) const PAUSED: Conditions = Conditions { pause_every: millis(10), ..STEADY };

/// Two ends that are paused now and then, and a stream of messages with the times of their submission and delivery.
pub(super) struct Stream {
    pub(super) pair: Pair,
    pub(super) id: ConnectionId,
    conditions: Conditions,
    pauses: Rng,
    next_pause: [Instant; 2],
    next_message: Instant,
    submitted: Vec<Instant>,
    delivered: Vec<Instant>,
}

impl Stream {
    pub(super) fn open(conditions: Conditions, seed: u64) -> Self {
        let Conditions { spray_unit, suspends, .. } = conditions;
        let recovery = RecoveryConfig { suspend_silent: suspends, ..RecoveryConfig::default() };
        let config = TransportConfig { spray_unit, recovery, ..agent() };
        let mut pair = Pair::new(&config);
        pair.ends = pair.ends.map(|end| end.with_shared_ports(1));
        pair.one_way = Duration::from_micros(75);
        let [a, b] = &mut pair.ends;
        let (id, _) = Endpoint::join(pair.now, (a, address(0)), (b, address(1))).unwrap();
        let now = pair.now;
        let mut stream = Self {
            pair,
            id,
            conditions,
            pauses: Seed(seed).child("pauses", 0).rng(),
            next_pause: [now; 2],
            next_message: now,
            submitted: Vec::new(),
            delivered: Vec::new(),
        };
        (0..2).for_each(|end| stream.schedule_pause(end));
        stream
    }

    fn schedule_pause(&mut self, end: usize) {
        let every = self.conditions.pause_every.as_nanos();
        self.next_pause[end] = match every {
            0 => Instant::FAR_FUTURE,
            every => self.pair.now + Duration::from_nanos(self.pauses.below(every * 2)),
        };
    }

    /// Advances to `until`, or to the next pause, which begins then.
    pub(super) fn advance(&mut self, until: Instant) {
        let [first, second] = self.next_pause;
        let until = until.min(first).min(second);
        while self.pair.step(until) {
            self.collect();
        }
        self.pair.now = until;
        self.collect();
        for end in (0..2).filter(|&end| self.next_pause[end] <= until).collect::<Vec<_>>() {
            let length = Duration::from_micros(500 + self.pauses.below(1_500));
            self.pair.paused_until[end] = until + length;
            self.schedule_pause(end);
        }
    }

    /// Continues the stream for `span`. A sender that is paused submits its message later.
    pub(super) fn run_for(&mut self, span: Duration) {
        let until = self.pair.now + span;
        while self.pair.now < until {
            let due = self.next_message.max(self.pair.paused_until[0]);
            self.advance(due.min(until));
            if self.pair.now >= due && !self.pair.is_paused(0) {
                let token = self.submitted.len() as u64;
                self.pair.submit(0, self.id, token, self.conditions.message);
                self.submitted.push(self.pair.now);
                self.next_message = self.next_message.max(self.pair.now - millis(1)) + millis(1);
            }
        }
    }

    fn collect(&mut self) {
        let events = core::mem::take(&mut self.pair.events[1]);
        let count = events.iter().filter(|event| matches!(event, Event::Delivered { .. })).count();
        self.delivered.extend(core::iter::repeat_n(self.pair.now, count));
    }

    pub(super) fn stats(&self) -> &Stats {
        self.pair.ends[0].stats()
    }

    /// Returns the submission and the latency of each message submitted from `since` on.
    pub(super) fn latencies(&self, since: Instant) -> impl Iterator<Item = (Instant, Duration)> {
        let both = self.submitted.iter().zip(&self.delivered);
        both.filter(move |(at, _)| **at >= since).map(|(at, done)| (*at, done.since(*at)))
    }
}

/// The effect of one death.
#[derive(Clone, Copy, Debug, Default)]
struct Interruption {
    /// The longest time from the submission of the first of consecutive late messages to the delivery of the last.
    interrupted: Duration,
    /// The longest time by which a message was late.
    longest: Duration,
    late: usize,
    spurious: u64,
    retransmitted: u64,
}

/// Returns the stream, 40 ms after one of its paths died, and the time of the death.
fn with_death(conditions: Conditions, seed: u64) -> (Stream, Instant) {
    let mut stream = Stream::open(conditions, seed);
    stream.run_for(millis(40));
    let mut rng = Seed(seed).child("death", 0).rng();
    let path = PathId(u16::try_from(rng.below(4)).unwrap());
    let lossy = PathId((path.0 + 1) % 4);
    let died_at = stream.pair.now + Duration::from_micros(rng.below(4_000));
    stream.pair.rule = Box::new(move |on_link| {
        let dead = on_link.path == path && conditions.dies[on_link.from] && on_link.now >= died_at;
        let lost = dead || on_link.path == lossy && rng.below(1000) < conditions.loss_per_mille;
        if lost { Fate::Drop } else { Fate::Pass }
    });
    stream.run_for(millis(40));
    (stream, died_at)
}

fn kill(conditions: Conditions, seed: u64) -> Interruption {
    let (control, died_at) = with_death(Conditions { dies: [false; 2], ..conditions }, seed);
    let (stream, _) = with_death(conditions, seed);
    let since = died_at - millis(5);
    let mut effect = Interruption {
        spurious: stream.stats().spurious_retransmits,
        retransmitted: stream.stats().retransmissions(),
        ..Interruption::default()
    };
    let mut first = None;
    for ((at, latency), (also_at, without)) in stream.latencies(since).zip(control.latencies(since))
    {
        assert_eq!(at, also_at, "both submit at the same times");
        effect.longest = effect.longest.max(latency.saturating_sub(without));
        if latency <= without + LATE {
            first = None;
            continue;
        }
        let first = *first.get_or_insert(at);
        effect.interrupted = effect.interrupted.max((at + latency).since(first));
        effect.late += 1;
    }
    effect
}

/// The effects of [`DEATHS`] deaths: the longest interruption and lateness in milliseconds, and the sums.
#[derive(Debug)]
struct Effects {
    interrupted: f64,
    longest: f64,
    late: usize,
    spurious: u64,
    retransmitted: u64,
}

fn deaths(conditions: Conditions) -> Effects {
    let all: Vec<_> = (0..DEATHS).map(|seed| kill(conditions, seed)).collect();
    let max =
        |of: fn(&Interruption) -> Duration| all.iter().map(of).max().unwrap().as_micros_f64() / 1e3;
    Effects {
        interrupted: max(|it| it.interrupted),
        longest: max(|it| it.longest),
        late: all.iter().map(|it| it.late).sum(),
        spurious: all.iter().map(|it| it.spurious).sum(),
        retransmitted: all.iter().map(|it| it.retransmitted).sum(),
    }
}

/// `cargo test -p weft-transport --lib a_death_interrupts -- --nocapture` prints the table of `docs/design/loss.md`.
#[test]
fn a_death_interrupts_a_stream_for_less_than_5_ms() {
    // The limits are on the interruption and on the longest lateness, milliseconds.
    let cases = [
        ("25 KB", STEADY, [4.0, 2.0]),
        ("25 KB, units of 44", Conditions { spray_unit: 44, ..STEADY }, [4.0, 3.0]),
        ("25 KB, one way", Conditions { dies: [true, false], ..STEADY }, [4.0, 2.0]),
        ("25 KB, 1 % loss", Conditions { loss_per_mille: 10, ..STEADY }, [4.0, 2.0]),
        ("25 KB, pauses", PAUSED, [5.0, 4.0]),
        ("25 KB, pauses, 1 % loss", Conditions { loss_per_mille: 10, ..PAUSED }, [5.0, 4.0]),
        ("1 KB", Conditions { message: 1_000, ..STEADY }, [4.0, 3.0]),
        ("1 KB, pauses", Conditions { message: 1_000, ..PAUSED }, [5.0, 4.0]),
        ("400 KB", Conditions { message: 400_000, ..STEADY }, [4.0, 2.0]),
        ("400 KB, pauses", Conditions { message: 400_000, ..PAUSED }, [5.0, 4.0]),
    ];
    let mut failed = Vec::new();
    for (name, conditions, [interrupted, longest]) in cases {
        let [before, after] =
            [false, true].map(|suspends| deaths(Conditions { suspends, ..conditions }));
        let row = |it: &Effects| {
            std::format!(
                "{:.1}, {:.1}, {}, {} of {}",
                it.interrupted,
                it.longest,
                it.late,
                it.spurious,
                it.retransmitted
            )
        };
        println!("| {name} | {} | {} |", row(&before), row(&after));
        if after.interrupted > interrupted || after.longest > longest {
            failed.push((name, after));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// Pauses of 2 ms and losses raise suspicions of paths that work.
#[test]
fn suspicions_of_healthy_paths_cause_few_spurious_retransmissions() {
    for (message, loss_per_mille) in [(25_000, 0), (25_000, 10), (1_000, 0), (400_000, 10)] {
        let healthy = Conditions { message, loss_per_mille, dies: [false; 2], ..PAUSED };
        let [before, after] =
            [false, true].map(|suspends| deaths(Conditions { suspends, ..healthy }));
        println!("{message} bytes, {loss_per_mille} per mille lost: {before:?}, {after:?}");
        assert!(before.spurious > 24, "{}: nobody was suspected", before.spurious);
        assert!(after.spurious * 2 <= before.spurious * 3, "{message}: {after:?}, {before:?}");
    }
}
