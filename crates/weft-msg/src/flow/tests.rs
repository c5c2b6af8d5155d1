//! N on paths of one bottleneck.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use weft_units::Duration;

use super::*;

/// A path of one bottleneck: a request occupies it for its length at `rate`, and takes `delay` besides.
struct Path {
    /// Bytes in 1 ms.
    rate: u64,
    delay: Duration,
    free_at: Instant,
}

impl Path {
    fn new(rate: u64, delay: Duration) -> Self {
        Self { rate, delay, free_at: start() }
    }

    /// Returns the completion of a request that is posted now.
    fn post(&mut self, now: Instant, len: u64) -> Instant {
        let takes = Duration::from_nanos(len * 1_000_000 / self.rate);
        self.free_at = self.free_at.max(now) + takes;
        self.free_at + self.delay
    }

    /// Returns the bytes that fill the path with requests of a length: one is always under way from its first to its
    /// last byte.
    fn product(&self, len: u64) -> u64 {
        self.rate * self.delay.as_nanos() / 1_000_000 + len
    }
}

const LEN: u64 = 64 << 10;
const BOUNDS: Bounds = Bounds { min: 16 << 10, max: 64 << 20 };

fn start() -> Instant {
    Instant::from_nanos(1_000_000_000)
}

/// Requests of a length over channels in turn.
#[derive(Clone, Copy)]
struct Load {
    len: u64,
    channels: usize,
    /// SENDs, whose completion is reported as often as needed, and of which a channel has one at a time. READs have a
    /// completion each.
    sends: bool,
}

const READS: Load = Load { len: LEN, channels: 1, sends: false };

/// Posts as much as N allows for `span`, over the paths in turn. Returns the bytes that arrived in the second half.
fn saturate(flow: &mut FlowLimit, paths: &mut [Path], load: Load, span: Duration) -> u64 {
    let Load { len, channels: count, sends } = load;
    let mut channels: Vec<Posted> = (0..count).map(|_| Posted::default()).collect();
    let mut free: VecDeque<usize> = (0..count).collect();
    let mut arrivals = BTreeMap::new();
    let began = paths[0].free_at;
    let (mut now, mut next, mut late) = (began, 0, 0);
    while now < began + span {
        while !free.is_empty() && flow.has_room(len) {
            let channel = free.pop_front().expect("it is not empty");
            let at = paths[next % paths.len()].post(now, len);
            let signaled = !sends || flow.needs_signal(len);
            channels[channel].post(flow, now, len, signaled);
            arrivals.insert((at, next), (channel, signaled));
            next += 1;
            if !sends {
                free.push_back(channel);
            }
        }
        let ((at, _), (channel, signaled)) = arrivals.pop_first().expect("there is room for one");
        now = at;
        if signaled {
            channels[channel].complete(flow, now, Duration::ZERO);
        } else {
            channels[channel].acknowledge(flow);
        }
        if sends {
            free.push_back(channel);
        }
        late += if now >= began + span / 2 { len } else { 0 };
    }
    channels.iter_mut().for_each(|channel| channel.abandon(flow));
    late
}

/// Checks that N suits a path of a rate in bytes in 1 ms, a delay in us, and a span in ms: at least what fills it, and
/// not much more.
fn suits(flow: &mut FlowLimit, path: &mut Path, load: Load, millis: u64) {
    let late = saturate(flow, core::slice::from_mut(path), load, Duration::from_millis(millis));
    let (limit, product) = (flow.undrained(), path.product(load.len));
    let of_all = if load.sends { 4 } else { 5 };
    assert!(limit >= product * of_all / 5, "{limit} of {product}");
    assert!(limit <= product * 8 / 5 + 2 * load.len, "{limit} of {product}");
    let possible = path.rate * millis / 2;
    assert!(late * 100 >= possible * 95, "{late} of {possible} bytes");
}

/// 25 Gb/s over 10 us, 400 Gb/s over 20 us, and 10 Gb/s over 10 ms; in ms for how long.
const PATHS: [(u64, u64, u64); 3] =
    [(3_125_000, 10, 100), (50_000_000, 20, 100), (1_250_000, 10_000, 8_000)];

#[test]
fn the_limit_follows_the_bandwidth_delay_product_and_fills_the_path() {
    for (rate, delay, millis) in PATHS {
        // One channel, and two thousand, each of which has few requests.
        for channels in [1, 2000] {
            let mut flow = FlowLimit::new(BOUNDS);
            let mut path = Path::new(rate, Duration::from_micros(delay));
            suits(&mut flow, &mut path, Load { channels, ..READS }, millis);
        }
    }
}

#[test]
fn sends_without_completions_neither_shrink_the_limit_nor_count() {
    for (rate, delay, millis) in [(3_125_000, 50, 100), (12_500_000, 20, 100)] {
        let mut flow = FlowLimit::new(BOUNDS);
        let mut path = Path::new(rate, Duration::from_micros(delay));
        suits(&mut flow, &mut path, Load { len: 4096, channels: 2000, sends: true }, millis);
    }
}

#[test]
fn a_limit_of_one_or_two_requests_is_still_measured() {
    // 25 Gb/s over 20 us, whose drained limit is between one fragment and two, then a far longer path.
    let mut flow = FlowLimit::new(BOUNDS);
    let mut path = Path::new(3_125_000, Duration::from_micros(20));
    suits(&mut flow, &mut path, READS, 400);
    path.delay = Duration::from_micros(500);
    saturate(&mut flow, core::slice::from_mut(&mut path), READS, Duration::from_secs(25));
    suits(&mut flow, &mut path, READS, 400);
    // Requests of more than half of the first limit.
    let mut flow = FlowLimit::new(BOUNDS);
    let mut path = Path::new(12_500_000, Duration::from_micros(100));
    suits(&mut flow, &mut path, Load { len: 100_000, ..READS }, 100);
}

#[test]
fn a_drain_ends_with_a_measured_round_trip_and_a_change_of_bounds() {
    let mut flow = FlowLimit::new(BOUNDS);
    let mut path = Path::new(3_125_000, Duration::from_micros(100));
    let mut longest = 0;
    let mut drains = 0;
    for _ in 0..4000 {
        let was = flow.drain.is_some();
        saturate(&mut flow, core::slice::from_mut(&mut path), READS, Duration::from_micros(200));
        drains += u32::from(flow.drain.is_some() && !was);
        longest = if flow.drain.is_some() { longest + 1 } else { 0 };
        assert!(longest < 8, "it lasts");
    }
    assert!(drains > 3, "{drains}");
    flow.drain = Some(Drain { began: start(), limit: 1 << 20, is_done: false });
    flow.limit = 256 << 10;
    flow.set_bounds(Bounds { max: 768 << 10, ..BOUNDS });
    assert_eq!((flow.limit(), flow.drain.is_none()), (768 << 10, true));
}

#[test]
fn a_near_and_a_far_peer_share_a_limit_that_suits_both() {
    let mut flow = FlowLimit::new(BOUNDS);
    let mut paths = [10, 1000].map(|micros| Path::new(3_125_000, Duration::from_micros(micros)));
    let load = Load { channels: 8, ..READS };
    let late = saturate(&mut flow, &mut paths, load, Duration::from_millis(400));
    let product = paths.iter().map(|path| path.product(LEN)).sum::<u64>();
    let limit = flow.undrained();
    assert!(limit <= product * 8 / 5 + 2 * LEN, "{limit} of {product}");
    // Bursts of the far peer's turns queue at the near one, so that the limit does not fill both.
    let possible = 2 * 3_125_000 * 200;
    assert!(late * 100 >= possible * 70, "{late} of {possible} bytes");
}

#[test]
fn the_limit_stays_within_its_bounds() {
    let span = Duration::from_millis(100);
    for (rate, min, max, want) in [
        // The path needs 5 MB, and 74 KB.
        (50_000_000, 4096, 1 << 20, 1 << 20),
        (100_000, 512 << 10, 1 << 20, 512 << 10),
        // The most applies even below the least: N is constant.
        (50_000_000, 16 << 10, 8 << 10, 8 << 10),
    ] {
        let mut flow = FlowLimit::new(Bounds { min, max });
        let mut path = Path::new(rate, Duration::from_micros(100));
        saturate(&mut flow, core::slice::from_mut(&mut path), READS, span);
        assert_eq!(flow.undrained(), want);
    }
}

#[test]
fn an_owner_with_little_work_or_late_polls_keeps_its_limit() {
    let mut flow = FlowLimit::new(BOUNDS);
    let mut posted = Posted::default();
    let mut now = start();
    for _ in 0..1000 {
        assert!(flow.has_room(LEN));
        posted.post(&mut flow, now, LEN, true);
        now += Duration::from_millis(1);
        posted.complete(&mut flow, now, Duration::ZERO);
    }
    assert_eq!(flow.limit(), INITIAL, "idle");
    // Every millisecond it finds everything complete that the network carried in 20 us.
    for round in 0..1000 {
        let mut count = 0;
        while flow.has_room(LEN) {
            posted.post(&mut flow, now, LEN, true);
            count += 1;
        }
        let gap = Duration::from_micros(if round == 0 { 20 } else { 1000 });
        now += gap;
        (0..count).for_each(|_| _ = posted.complete(&mut flow, now, gap));
    }
    assert!(flow.limit() >= INITIAL, "{}", flow.limit());
}

#[test]
fn few_sends_have_no_completion_and_many_have_one_in_a_quarter_of_the_limit() {
    let mut flow = FlowLimit::new(BOUNDS);
    let mut posted = Posted::default();
    for _ in 0..8 {
        assert!(!flow.needs_signal(4096));
        posted.post(&mut flow, start(), 4096, false);
    }
    assert!(flow.needs_signal(4096) && flow.in_flight() == 32 << 10);
    posted.post(&mut flow, start(), 4096, true);
    assert!(!flow.needs_signal(4096));
    posted.complete(&mut flow, start(), Duration::ZERO);
    assert_eq!(flow.in_flight(), 0, "it covers those before");
    posted.post(&mut flow, start(), 100, false);
    posted.acknowledge(&mut flow);
    assert_eq!(flow.in_flight(), 0);
}

#[test]
fn stuck_and_abandoned_work_leaves_the_limit_to_others() {
    let mut flow = FlowLimit::new(BOUNDS);
    let stuck_after = Duration::from_millis(10);
    let mut posted = Posted::default();
    while flow.has_room(4096) {
        posted.post(&mut flow, start(), 4096, true);
    }
    posted.release_stuck(&mut flow, start() + stuck_after / 2, stuck_after);
    assert!(!flow.has_room(4096), "it may still be under way");
    posted.release_stuck(&mut flow, start() + stuck_after, stuck_after);
    assert!(flow.has_room(4096) && flow.in_flight() == 0);
    posted.post(&mut flow, start(), 4096, false);
    posted.release_stuck(&mut flow, start() + stuck_after, stuck_after);
    assert_eq!(flow.in_flight(), 0, "without a signal");
    // Its late completions are not counted again.
    posted.complete(&mut flow, start() + stuck_after * 2, Duration::ZERO);
    posted.post(&mut flow, start(), 4096, true);
    posted.abandon(&mut flow);
    assert_eq!((flow.in_flight(), posted.len()), (0, 0));
}
