//! Hopper's decisions, on paths whose round trips are set.

use alloc::vec::Vec;

use weft_units::Seed;

use super::*;

const BASE: Duration = Duration::from_micros(10);
const PACKET: u32 = 1000;
/// The interval between acknowledgements.
const GAP: Duration = Duration::from_micros(1);

fn micros(span: u64) -> Duration {
    Duration::from_micros(span)
}

/// A flow with `window` packets in flight. Probes are answered after their round trip.
struct Rig {
    policy: Policy,
    paths: Paths,
    rng: Rng,
    now: Instant,
    in_flight: VecDeque<PathId>,
    probes: Vec<(PathId, Instant)>,
    answers: VecDeque<(Instant, PathId, Duration)>,
    moves: Vec<(PathId, Instant)>,
}

impl Rig {
    fn new(count: u16) -> Self {
        Self::with(HopperConfig::default(), count)
    }

    fn with(hopper: HopperConfig, count: u16) -> Self {
        let config = TransportConfig { base_rtt: BASE, hopper, ..TransportConfig::stellar() };
        Self {
            policy: Policy::new(&config),
            paths: Paths::new(count, 1000, Instant::EPOCH),
            rng: Seed(3).rng(),
            now: Instant::EPOCH + micros(1),
            in_flight: VecDeque::new(),
            probes: Vec::new(),
            answers: VecDeque::new(),
            moves: Vec::new(),
        }
    }

    fn send(&mut self, window: usize) {
        while self.in_flight.len() < window {
            let Some(path) = self.policy.select(&self.paths.candidates(), self.now, &mut self.rng)
            else {
                return;
            };
            if self.moves.last().is_none_or(|&(last, _)| last != path) {
                self.moves.push((path, self.now));
            }
            self.paths.state_mut(path).in_flight += PACKET;
            self.in_flight.push_back(path);
        }
    }

    fn feed(&mut self, path: PathId, rtt: Duration) {
        let feedback = Feedback::Acked { marked: false, rtt: Some(rtt) };
        self.policy.on_feedback(path, feedback, &self.paths, self.now);
    }

    /// Acknowledges a packet each [`GAP`] for `span`.
    fn run(&mut self, span: Duration, window: usize, rtt: impl Fn(PathId) -> Duration) {
        let until = self.now + span;
        while self.now < until {
            self.now += GAP;
            while let Some(&(at, path, rtt)) = self.answers.front()
                && at <= self.now
            {
                self.answers.pop_front();
                self.feed(path, rtt);
            }
            if let Some(path) = self.in_flight.pop_front() {
                self.paths.state_mut(path).in_flight -= PACKET;
                self.feed(path, rtt(path));
            }
            while let Some(path) = self.policy.probe(&self.paths, self.now, &mut self.rng) {
                self.probes.push((path, self.now));
                self.answers.push_back((self.now + rtt(path), path, rtt(path)));
            }
            self.send(window);
        }
    }

    fn path(&self) -> PathId {
        self.moves.last().expect("it sent").0
    }
}

/// Returns a rig whose flow is on its first path.
fn started(count: u16) -> (Rig, PathId) {
    let mut rig = Rig::new(count);
    rig.send(8);
    let first = rig.path();
    (rig, first)
}

#[test]
fn a_congested_path_is_left_once_for_one_of_two_that_were_probed() {
    let (mut rig, first) = started(8);
    rig.run(micros(300), 8, |path| if path == first { micros(30) } else { micros(12) });
    assert_eq!(rig.probes.len(), 2, "{:?}", rig.probes);
    assert_eq!(rig.moves.len(), 2, "{:?}", rig.moves);
    assert!(rig.probes.iter().any(|&(path, _)| path == rig.path()));
}

#[test]
fn the_better_of_the_two_is_taken() {
    let (mut rig, first) = started(3);
    let better = PathId((first.0 + 2) % 3);
    let rtt = |path| {
        let others = if path == better { micros(11) } else { micros(17) };
        if path == first { micros(30) } else { others }
    };
    rig.run(micros(300), 8, rtt);
    assert_eq!(rig.path(), better);
}

#[test]
fn where_all_paths_are_alike_none_is_left_and_two_are_probed_an_epoch() {
    let (mut rig, _) = started(64);
    rig.run(micros(3_000), 8, |_| micros(30));
    assert_eq!(rig.moves.len(), 1, "{:?}", rig.moves);
    // An epoch is 30 us.
    assert!((180..=200).contains(&rig.probes.len()), "{}", rig.probes.len());
}

/// Table 1: probes above 1.5 times the base, congestion above 2.5 times, margin 80 %.
#[test]
fn the_thresholds_are_those_of_table_1() {
    let outcome = |current: u64, others: u64| {
        let (mut rig, first) = started(8);
        let (current, others) = (micros(current), micros(others));
        rig.run(micros(400), 8, |path| if path == first { current } else { others });
        (!rig.probes.is_empty(), rig.moves.len() > 1)
    };
    assert_eq!(outcome(15, 10), (false, false));
    assert_eq!(outcome(16, 10), (true, false));
    assert_eq!(outcome(25, 10), (true, false));
    assert_eq!(outcome(26, 20), (true, true));
    assert_eq!(outcome(26, 21), (true, false));
}

#[test]
fn no_path_is_probed_twice_within_four_base_round_trips() {
    let (mut rig, _) = started(6);
    rig.run(micros(2_000), 8, |_| micros(20));
    assert!(rig.probes.len() > 40, "{}", rig.probes.len());
    for (index, &(path, at)) in rig.probes.iter().enumerate() {
        let again = rig.probes[index + 1..].iter().find(|probe| probe.0 == path);
        assert!(again.is_none_or(|&(_, again)| again.since(at) >= BASE * 4), "{path:?}");
    }
}

#[test]
fn a_pair_that_is_closer_than_the_configured_base_is_measured_by_its_own() {
    let (mut rig, first) = started(8);
    rig.run(micros(50), 8, |_| micros(4));
    rig.run(micros(200), 8, |path| if path == first { micros(11) } else { micros(4) });
    assert_eq!(rig.moves.len(), 2, "11 us is more than 2.5 times 4 us");
}

/// Section 3.3: the rise of the epoch, extended by the packets in flight, minus the new path's round trip.
#[test]
fn the_first_packet_on_the_new_path_waits_for_the_last_on_the_old() {
    // The latest round trip is 28.4 us, each of the eight packets in flight adds 0.1 us, and the new path's round trip
    // is 12 us: 17.2 us, or `delay_percent` of it. With zero the flow moves at the end of the epoch.
    for (delay_percent, wait) in [(100, 17_200), (50, 8_600), (0, 24_000)] {
        assert_eq!(wait_of(delay_percent), Duration::from_nanos(wait), "{delay_percent} %");
    }
}

/// Returns the time from the latest packet, 24 us before the epoch ends, until the next may leave.
fn wait_of(delay_percent: u16) -> Duration {
    let mut rig = Rig::with(HopperConfig { delay_percent, ..HopperConfig::default() }, 2);
    rig.send(8);
    let first = rig.path();
    let other = PathId(1 - first.0);
    rig.now += micros(60);
    rig.policy.flow.average = micros(24);
    rig.policy.flow.begin_epoch(rig.now);
    let probed = Explored { path: other, at: rig.now, rtt: Some(micros(12)) };
    rig.policy.flow.explored.push_back(probed);
    let last_sent = rig.now;
    rig.policy.flow.last_sent = last_sent;
    rig.in_flight.iter().for_each(|&path| assert_eq!(path, first));
    for sample in 1..=24 {
        rig.now += GAP;
        rig.feed(first, Duration::from_nanos(26_000 + sample * 100));
    }
    rig.policy.holds_until().expect("it changes its path").since(last_sent)
}

#[test]
fn nothing_is_sent_while_the_switch_waits_and_no_longer_than_the_old_path_holds_packets() {
    let rtt = |first, path| if path == first { micros(60) } else { micros(12) };
    let (mut rig, first) = started(8);
    rig.run(micros(1_000), 8, |path| rtt(first, path));
    let &[(_, _), (_, late)] = &rig.moves[..] else { panic!("{:?}", rig.moves) };
    // Eight packets in flight are acknowledged in 8 us; the delay alone would be 48 us.
    let decided = rig.probes[1].1 + micros(60);
    assert!(late.since(decided) <= micros(10), "{late:?} after {decided:?}");

    let (mut rig, first) = started(80);
    rig.send(80);
    rig.run(micros(1_000), 80, |path| rtt(first, path));
    let (_, late) = rig.moves[1];
    let waited = late.since(rig.probes[1].1 + micros(60));
    assert!((micros(46)..=micros(52)).contains(&waited), "{waited}");
}

#[test]
fn a_timeout_leaves_the_path_without_a_probe() {
    let (mut rig, first) = started(8);
    rig.policy.on_feedback(first, Feedback::TimedOut, &rig.paths, rig.now);
    let next = rig.policy.select(&rig.paths.candidates(), rig.now, &mut rig.rng);
    assert!(next.is_some_and(|path| path != first), "{next:?}");
}
