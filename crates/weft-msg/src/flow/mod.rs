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
#[cfg(test)]
mod tests;

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
    /// Bytes among them whose completion no request will report. They do not count against N: only the peer's owner frees them.
    unsignaled: u64,
    /// `true` until a round has a queue: N doubles with each round.
    starting: bool,
    /// Number of rounds in which work waited for N.
    rounds: u32,
    /// The rounds that drain the queue, while they last.
    drain: Option<Drain>,
    /// The bandwidth-delay product of the last round in bytes.
    product: u64,
    /// The shortest round trip of all channels.
    base: BaseRtt,
    /// Bytes and duration in ns of the fastest round since the last that drained the queue.
    fastest: Option<(u64, u64)>,
    round: Round,
}

/// N is divided so that the queue empties, until a request that was posted meanwhile has measured the round trip.
#[derive(Clone, Copy, Debug)]
struct Drain {
    began: Instant,
    /// N of before.
    limit: u64,
    /// `true` once a request has measured it.
    is_done: bool,
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
            drain: None,
            product: 0,
            base: BaseRtt::default(),
            fastest: None,
            // The first request begins a round.
            round: Round::new(Instant::EPOCH),
        }
    }

    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.limit = bounds.clamp(self.undrained());
        self.drain = None;
    }

    /// Returns N in bytes.
    pub(crate) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes in flight.
    pub(crate) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the bytes in flight that count against N.
    const fn counted(&self) -> u64 {
        self.in_flight - self.unsignaled
    }

    /// Returns N without a drain.
    fn undrained(&self) -> u64 {
        self.drain.map_or(self.limit, |drain| drain.limit)
    }

    /// Returns `true` if a work request of `len` bytes may be posted. A single one always may, whatever its length.
    #[inline]
    pub(crate) const fn has_room(&mut self, len: u64) -> bool {
        let room = self.counted() == 0 || self.counted() + len <= self.limit;
        self.round.limited |= !room;
        room
    }

    /// Returns `true` if the completion of a SEND of `len` bytes must be reported. A quarter of N more may be in flight
    /// until an acknowledgement of the peer's owner shows its arrival, so a channel with few messages has no completions.
    #[inline]
    pub(crate) const fn needs_signal(&self, len: u64) -> bool {
        self.unsignaled + len > self.limit / 4
    }

    /// Returns `true` if a request that was posted at `at` behind `ahead` bytes met no queue: a drained network has as many.
    fn met_no_queue(&mut self, at: Instant, ahead: u64) -> bool {
        if let Some(drain) = self.drain.as_mut().filter(|drain| drain.began <= at) {
            drain.is_done = true;
            return true;
        }
        ahead <= self.undrained() / DRAIN_TO
    }

    /// Returns the time in ns in which `bytes` arrive at the highest rate; `None` before the first round.
    fn queueing(&self, bytes: u64) -> Option<u64> {
        let (count, nanos) = self.fastest?;
        u64::try_from(u128::from(bytes) * u128::from(nanos) / u128::from(count)).ok()
    }

    /// Adds a request. Returns the counted bytes in flight before it.
    const fn on_posted(&mut self, now: Instant, len: u64) -> u64 {
        let ahead = self.counted();
        if ahead == 0 {
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
        // With room for one request at a time its completion ends the round, or none would.
        let is_whole = self.counted() == 0 && self.round.bytes + self.round.longest > self.limit;
        if (self.round.bytes >= self.limit || is_whole) && elapsed > 0 {
            self.end_round(now, elapsed);
            self.round = Round { longest: self.round.longest, ..Round::new(now) };
        }
    }

    fn end_round(&mut self, now: Instant, elapsed: u64) {
        let Round { bytes, shortest, measured, longest, limited, .. } = self.round;
        let product = u64::try_from(shortest / u128::from(elapsed)).unwrap_or(u64::MAX);
        let before = core::mem::replace(&mut self.product, product);
        if let Some(drain) = self.drain {
            if drain.is_done {
                self.limit = drain.limit;
                self.drain = None;
                self.fastest = None;
            }
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
            // Less than one request more admits none, and shows the same product again: then N grows slowly towards it.
            (false, false) => (self.limit.saturating_add(longest / 8))
                .min(product.saturating_add(longest))
                .max(product.saturating_add(product / 4)),
        };
        self.limit = self.bounds.clamp(target.max(longest));
        if self.rounds.is_multiple_of(DRAIN_EVERY) {
            self.drain = Some(Drain { began: now, limit: self.limit, is_done: false });
            self.limit = self.bounds.clamp((self.limit / DRAIN_TO).max(longest));
        }
    }
}
