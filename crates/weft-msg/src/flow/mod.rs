//! Flow control (X-RDMA, section V.C): the limit N on the work of a whole context in flight, in bytes, once for SENDs and
//! once for READs, whose payloads travel in opposite directions.
//!
//! N follows the measured bandwidth-delay product. By Little's law the bytes in flight of any mix of channels are the sum
//! of their rates, each multiplied by its round-trip time. With each channel's shortest round trip in place of the
//! current one, the sum is what fills the network without a queue. [`Posted`] measures round trips, [`FlowLimit`] sums
//! them up over a round, the time in which N bytes complete. `docs/design/messages.md` has the reasons.

use weft_units::Instant;

mod base;
mod posted;

use base::BaseRtt;
pub(crate) use posted::Posted;

/// The bounds of N in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) min: u64,
    /// The most; it applies even below `min`.
    pub(crate) max: u64,
}

impl Bounds {
    fn clamp(self, limit: u64) -> u64 {
        limit.max(self.min).min(self.max)
    }
}

/// The limit of a context in one direction.
#[derive(Debug)]
pub(crate) struct FlowLimit {
    bounds: Bounds,
    /// N in bytes.
    limit: u64,
    /// Bytes of work requests in flight.
    in_flight: u64,
    /// Bytes among them whose completion no request will report.
    unsignaled: u64,
    /// `true` until a round has a queue: N doubles with each round.
    starting: bool,
    /// Number of rounds in which work waited for N.
    rounds: u32,
    /// N of before a round that drains the queue.
    drained_from: Option<u64>,
    /// The bandwidth-delay product of the last round in bytes.
    product: u64,
    /// The shortest round trip of all channels.
    base: BaseRtt,
    /// Bytes and duration in ns of the fastest round since the last that drained the queue.
    fastest: Option<(u64, u64)>,
    round: Round,
}

/// The sums of a round.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Instant,
    /// Bytes completed.
    bytes: u64,
    /// Sum of the completed bytes, each multiplied by its channel's shortest round trip in ns.
    shortest: u128,
    /// The same sum with the measured round trips.
    measured: u128,
    /// The longest work request in bytes.
    longest: u64,
    /// `true` if work waited for N.
    limited: bool,
}

impl Round {
    const fn new(began: Instant) -> Self {
        Self { began, bytes: 0, shortest: 0, measured: 0, longest: 0, limited: false }
    }
}

/// N before the first measurement in bytes: two fragments of the default length.
const INITIAL: u64 = 128 << 10;
/// Interval of the rounds in which N is divided, so that the queue empties and the shortest round trip shows again.
const DRAIN_EVERY: u32 = 64;
/// The divisor in those rounds.
const DRAIN_TO: u64 = 4;

impl FlowLimit {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            limit: bounds.clamp(INITIAL),
            in_flight: 0,
            unsignaled: 0,
            starting: true,
            rounds: 0,
            drained_from: None,
            product: 0,
            base: BaseRtt::default(),
            fastest: None,
            // The first request begins a round.
            round: Round::new(Instant::EPOCH),
        }
    }

    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.limit = bounds.clamp(self.limit);
        self.drained_from = None;
    }

    /// Returns N in bytes.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes in flight.
    pub(crate) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns `true` if a work request of `len` bytes may be posted. A single one always may, whatever its length.
    pub(crate) const fn has_room(&mut self, len: u64) -> bool {
        let room = self.in_flight == 0 || self.in_flight + len <= self.limit;
        self.round.limited |= !room;
        room
    }

    /// Returns `true` if the completion of a SEND of `len` bytes must be reported. A quarter of N may stay in flight
    /// until an acknowledgement of the peer's owner shows its arrival, so a channel with few messages has no completions.
    pub(crate) const fn needs_signal(&self, len: u64) -> bool {
        self.unsignaled + len > self.limit / 4
    }

    /// Returns `true` if `bytes` in flight cause no queue: a drained network has as many.
    fn is_little(&self, bytes: u64) -> bool {
        bytes <= self.drained_from.unwrap_or(self.limit) / DRAIN_TO
    }

    /// Returns the time in ns in which `bytes` arrive at the highest rate; `None` before the first round.
    fn queueing(&self, bytes: u64) -> Option<u64> {
        let (count, nanos) = self.fastest?;
        u64::try_from(u128::from(bytes) * u128::from(nanos) / u128::from(count)).ok()
    }

    /// Adds a request. Returns the bytes in flight before it.
    const fn on_posted(&mut self, now: Instant, len: u64) -> u64 {
        let ahead = self.in_flight;
        if self.in_flight == 0 {
            // The time before was idle.
            self.round = Round::new(now);
        }
        self.in_flight += len;
        if len > self.round.longest {
            self.round.longest = len;
        }
        ahead
    }

    const fn on_returned(&mut self, len: u64) {
        self.in_flight -= len;
    }

    /// Adds completed bytes to the round, and ends it if it is complete.
    fn on_completed(&mut self, now: Instant, len: u64, shortest: u64, measured: u64) {
        self.round.bytes += len;
        self.round.shortest += u128::from(len) * u128::from(shortest);
        self.round.measured += u128::from(len) * u128::from(measured);
        let elapsed = now.since(self.round.began).as_nanos();
        if self.round.bytes >= self.limit && elapsed > 0 {
            self.end_round(elapsed);
            self.round = Round { longest: self.round.longest, ..Round::new(now) };
        }
    }

    fn end_round(&mut self, elapsed: u64) {
        let Round { bytes, shortest, measured, longest, limited, .. } = self.round;
        let product = u64::try_from(shortest / u128::from(elapsed)).unwrap_or(u64::MAX);
        let before = core::mem::replace(&mut self.product, product);
        if let Some(limit) = self.drained_from.take() {
            self.limit = limit;
            self.fastest = None;
            return;
        }
        let is_faster = |(count, nanos): (u64, u64)| {
            u128::from(bytes) * u128::from(nanos) > u128::from(count) * u128::from(elapsed)
        };
        if self.fastest.is_none_or(is_faster) {
            self.fastest = Some((bytes, elapsed));
        }
        if !limited {
            // The owner had no more work: the round shows less than the network can do.
            return;
        }
        self.rounds = self.rounds.wrapping_add(1);
        let has_queue = measured * 4 > shortest * 5;
        self.starting &= !has_queue;
        let target = match (has_queue, self.starting) {
            // Half more, because a round trip is longer where a connection of the transport starts slowly.
            (true, _) => product.max(before).saturating_mul(3) / 2 + longest,
            (false, true) => product.saturating_mul(2),
            (false, false) => product.saturating_add(product / 4),
        };
        self.limit = self.bounds.clamp(target.max(longest));
        if self.rounds.is_multiple_of(DRAIN_EVERY) {
            self.drained_from = Some(self.limit);
            self.limit = self.bounds.clamp((self.limit / DRAIN_TO).max(longest));
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
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

        /// Returns the bytes that fill the path: one request is always under way from its first to its last byte.
        fn product(&self) -> u64 {
            self.rate * self.delay.as_nanos() / 1_000_000 + LEN
        }
    }

    const LEN: u64 = 64 << 10;
    const BOUNDS: Bounds = Bounds { min: 16 << 10, max: 64 << 20 };

    fn start() -> Instant {
        Instant::from_nanos(1_000_000_000)
    }

    /// Sends as much as N allows for `span`, over `count` channels in turn, which use the paths in turn. Returns the bytes
    /// that arrived in the second half.
    fn saturate(flow: &mut FlowLimit, paths: &mut [Path], count: usize, span: Duration) -> u64 {
        let mut channels: Vec<Posted> = (0..count).map(|_| Posted::default()).collect();
        let mut arrivals = BTreeMap::new();
        let (mut now, mut next, mut late) = (start(), 0, 0);
        while now < start() + span {
            while flow.has_room(LEN) {
                let at = paths[next % paths.len()].post(now, LEN);
                channels[next % count].post(flow, now, LEN, true);
                arrivals.insert((at, next), next % count);
                next += 1;
            }
            let ((at, _), channel) = arrivals.pop_first().expect("there is room for one");
            now = at;
            channels[channel].complete(flow, now, Duration::ZERO);
            late += if now >= start() + span / 2 { LEN } else { 0 };
        }
        late
    }

    fn settled(flow: &FlowLimit) -> u64 {
        flow.drained_from.unwrap_or(flow.limit)
    }

    #[test]
    fn the_limit_follows_the_bandwidth_delay_product_and_fills_the_path() {
        // 25 Gb/s over 10 us, 400 Gb/s over 20 us, and 10 Gb/s over 10 ms.
        for (rate, delay, millis) in
            [(3_125_000, 10_u64, 100_u64), (50_000_000, 20, 100), (1_250_000, 10_000, 8_000)]
        {
            // One channel, and two thousand, each of which has few requests.
            for channels in [1, 2000] {
                let mut flow = FlowLimit::new(BOUNDS);
                let mut paths = [Path::new(rate, Duration::from_micros(delay))];
                let span = Duration::from_millis(millis);
                let late = saturate(&mut flow, &mut paths, channels, span);
                let (limit, product) = (settled(&flow), paths[0].product());
                assert!(limit >= product, "{limit} of {product}");
                assert!(limit <= product * 8 / 5 + 2 * LEN, "{limit} of {product}");
                let possible = rate * millis / 2;
                assert!(late * 100 >= possible * 96, "{late} of {possible} bytes");
            }
        }
    }

    #[test]
    fn a_near_and_a_far_peer_share_a_limit_that_suits_both() {
        let mut flow = FlowLimit::new(BOUNDS);
        let mut paths =
            [10, 1000].map(|micros| Path::new(3_125_000, Duration::from_micros(micros)));
        let late = saturate(&mut flow, &mut paths, 8, Duration::from_millis(400));
        let (limit, product) = (settled(&flow), paths.iter().map(Path::product).sum::<u64>());
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
            saturate(&mut flow, &mut [Path::new(rate, Duration::from_micros(100))], 1, span);
            assert_eq!(settled(&flow), want);
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
}
