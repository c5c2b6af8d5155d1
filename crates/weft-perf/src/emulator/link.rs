//! One direction of one path: a rate, a queue that marks and drops, a delay, a loss rate.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use weft_units::{BitRate, ByteCount, Duration, Instant, Rng, Seed};

use super::PathModel;

/// The settings and counters of a path, shared with the relay's thread. Changes take effect from
/// the next packet on.
#[derive(Debug)]
pub struct PathControl {
    up: AtomicBool,
    rate_bps: AtomicU64,
    delay: Duration,
    loss_per_million: AtomicU32,
    queue: ByteCount,
    mark_above: ByteCount,
    pub(super) delivered: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) overflowed: AtomicU64,
    pub(super) marked: AtomicU64,
}

/// The packet counts of one path, both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PathCounters {
    /// Packets forwarded.
    pub delivered: u64,
    /// Packets lost at random, or because the path was down.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub overflowed: u64,
    /// Packets forwarded with a congestion mark.
    pub marked: u64,
}

impl PathControl {
    pub(super) fn new(model: &PathModel) -> Self {
        Self {
            up: AtomicBool::new(true),
            rate_bps: AtomicU64::new(model.rate.as_bps()),
            delay: model.delay,
            loss_per_million: AtomicU32::new(model.loss_per_million),
            queue: model.queue,
            mark_above: model.mark_above,
            delivered: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            marked: AtomicU64::new(0),
        }
    }

    /// Sets the path up or down. While it is down, it drops packets that enter and packets that would arrive.
    pub fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
    }

    /// Returns `true` if packets pass.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Sets the loss rate, lost packets per million.
    pub fn set_loss_per_million(&self, loss: u32) {
        self.loss_per_million.store(loss, Ordering::Relaxed);
    }

    /// Sets the rate of both directions.
    pub fn set_rate(&self, rate: BitRate) {
        self.rate_bps.store(rate.as_bps(), Ordering::Relaxed);
    }

    /// Returns the numbers of packets forwarded, lost, dropped and marked.
    pub fn counters(&self) -> PathCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PathCounters {
            delivered: read(&self.delivered),
            lost: read(&self.lost),
            overflowed: read(&self.overflowed),
            marked: read(&self.marked),
        }
    }

    fn rate(&self) -> BitRate {
        BitRate::bps(self.rate_bps.load(Ordering::Relaxed)).expect("set from a rate, never zero")
    }

    fn loses(&self, rng: &mut Rng) -> bool {
        let loss = self.loss_per_million.load(Ordering::Relaxed);
        !self.is_up() || (loss > 0 && rng.chance(loss.into(), 1_000_000))
    }
}

/// Returns the path of a source port: one hash for both directions, as in a fabric whose switches
/// share a seed.
pub(super) fn path_of(seed: Seed, source_port: u16, paths: usize) -> usize {
    seed.child("ecmp", source_port.into()).rng().index(paths)
}

/// A packet in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) arrives_at: Instant,
    pub(super) marked: bool,
    pub(super) bytes: Vec<u8>,
}

/// One direction of one path.
#[derive(Debug)]
pub(super) struct Link {
    /// The departure time of the last packet accepted.
    busy_until: Instant,
    in_flight: VecDeque<InFlight>,
    rng: Rng,
}

impl Link {
    pub(super) fn new(seed: Seed) -> Self {
        Self { busy_until: Instant::EPOCH, in_flight: VecDeque::new(), rng: seed.rng() }
    }

    /// Enqueues or drops a packet. The queue holds a copy of `bytes` in a vector from `buffer`.
    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        path: &PathControl,
        bytes: &[u8],
        buffer: impl FnOnce() -> Vec<u8>,
    ) {
        if path.loses(&mut self.rng) {
            path.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let rate = path.rate();
        let size = ByteCount(bytes.len() as u64);
        let waiting = rate.bytes_in(self.busy_until.since(now));
        if waiting + size > path.queue {
            path.overflowed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.busy_until = self.busy_until.max(now) + rate.serialization_delay(size);
        let mut copy = buffer();
        copy.clear();
        copy.extend_from_slice(bytes);
        let arrives_at = self.busy_until + path.delay;
        let marked = waiting > path.mark_above;
        self.in_flight.push_back(InFlight { arrives_at, marked, bytes: copy });
    }

    /// Returns the arrival time of the next packet.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.front().map(|packet| packet.arrives_at)
    }

    /// Returns the next packet that has arrived, if the path is up.
    pub(super) fn dequeue(&mut self, now: Instant, path: &PathControl) -> Option<InFlight> {
        while self.next_arrival()? <= now {
            let packet = self.in_flight.pop_front()?;
            if path.is_up() {
                path.delivered.fetch_add(1, Ordering::Relaxed);
                path.marked.fetch_add(packet.marked.into(), Ordering::Relaxed);
                return Some(packet);
            }
            path.lost.fetch_add(1, Ordering::Relaxed);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(mbps: u64) -> PathControl {
        let rate = BitRate::bps(mbps * 1_000_000).unwrap();
        PathControl::new(&PathModel {
            queue: ByteCount(4_000),
            mark_above: ByteCount(1_500),
            ..PathModel::new(rate, Duration::from_micros(50))
        })
    }

    fn arrivals(link: &mut Link, path: &PathControl) -> Vec<(u64, bool)> {
        std::iter::from_fn(|| link.dequeue(Instant::FAR_FUTURE, path))
            .map(|packet| (packet.arrives_at.as_nanos() / 1_000, packet.marked))
            .collect()
    }

    #[test]
    fn packets_leave_at_the_rate_and_arrive_after_the_delay() {
        let (path, mut link) = (path(100), Link::new(Seed(1)));
        for _ in 0..5 {
            link.enqueue(Instant::EPOCH, &path, &[0; 1_000], Vec::new);
        }
        // 1000 bytes take 80 us at 100 Mb/s; the fifth finds 4000 bytes waiting and is dropped.
        let want = [(130, false), (210, false), (290, true), (370, true)];
        assert_eq!(arrivals(&mut link, &path), want);
        let counters = path.counters();
        assert_eq!((counters.delivered, counters.overflowed, counters.marked), (4, 1, 2));
    }

    #[test]
    fn a_path_that_fails_drops_its_packets_in_flight() {
        let (path, mut link) = (path(100), Link::new(Seed(1)));
        link.enqueue(Instant::EPOCH, &path, &[0; 1_000], Vec::new);
        path.set_up(false);
        link.enqueue(Instant::EPOCH, &path, &[0; 1_000], Vec::new);
        assert_eq!(arrivals(&mut link, &path), []);
        assert_eq!(path.counters().lost, 2);
    }

    #[test]
    fn the_loss_rate_is_the_configured_one() {
        let (path, mut link) = (path(1_000_000), Link::new(Seed(1)));
        path.set_loss_per_million(10_000);
        for second in 0..20_000 {
            let now = Instant::EPOCH + Duration::from_secs(second);
            link.enqueue(now, &path, &[0; 100], Vec::new);
        }
        let lost = path.counters().lost;
        assert!((140..=260).contains(&lost), "1 % of 20000 is 200, lost {lost}");
    }
}
