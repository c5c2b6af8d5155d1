//! The queue of the host's own link: datagrams of an outbox that the kernel has accepted and not
//! sent. Where the link is slower than the host, a full queue drops datagrams, and a long one
//! delays all later ones. Therefore it is kept as short as with TCP small queues: the bytes
//! that the link sends in a millisecond, estimated from the rate at which the queue drains.

use weft_units::{Duration, Instant};

/// Minimum limit of the queue, bytes: the datagrams of one message.
const MIN_LIMIT: u64 = 64 << 10;
/// Maximum limit of the queue, bytes: a socket's send buffer.
const MAX_LIMIT: u64 = 4 << 20;
/// The queue's limit in time, which is longer than most pauses of a thread.
const QUEUE_TIME: Duration = Duration::from_millis(1);
/// The minimum and maximum time until a full queue is measured again; between these, it is measured when it should be
/// half empty. A measurement takes one system call for each path, and a wake-up for it costs more.
const MEASURE_INTERVAL: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
/// The time after which bytes that have not left are assumed to wait for something other than the
/// link, such as ARP: they no longer block others.
const STALL: Duration = Duration::from_millis(10);

/// The part of the queue that belongs to this outbox.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Upper bound of the queued bytes: those at the last measurement, and those added since.
    held: u64,
    /// Sockets that may own some of these bytes.
    sockets: Vec<u16>,
    /// For each socket, `true` if it is in `sockets`.
    is_listed: Vec<bool>,
    /// Bytes of the queue that do not wait for the link.
    stuck: u64,
    /// The time at which bytes last left the queue, while it is full.
    moved_at: Instant,
    /// Maximum bytes of the queue.
    limit: u64,
    /// Estimated rate at which the queue drains, bytes per millisecond; zero while unknown.
    drain_rate: u64,
    /// Bytes that have left since `since`.
    left: u64,
    /// The start of the current interval of the rate's estimate.
    since: Instant,
    /// The time of the next measurement, if the queue was full.
    room_at: Option<Instant>,
}

impl Backlog {
    pub(super) fn new(sockets: usize) -> Self {
        Self {
            held: 0,
            sockets: Vec::new(),
            is_listed: vec![false; sockets],
            stuck: 0,
            moved_at: Instant::EPOCH,
            limit: MIN_LIMIT,
            drain_rate: 0,
            left: 0,
            since: Instant::EPOCH,
            room_at: None,
        }
    }

    /// Makes room for a socket after the last one.
    pub(super) fn add_socket(&mut self) {
        self.is_listed.push(false);
    }

    /// Adds bytes that the kernel accepted from a socket.
    pub(super) fn take(&mut self, socket: u16, bytes: usize) {
        self.held += bytes as u64;
        if !std::mem::replace(&mut self.is_listed[usize::from(socket)], true) {
            self.sockets.push(socket);
        }
    }

    /// Returns the bytes for which the queue has room; once it was full, zero until it is half empty, so that bursts
    /// stay whole. `held` returns the queued bytes of a socket.
    pub(super) fn room(&mut self, now: Instant, held: impl Fn(u16) -> u64) -> u64 {
        match self.room_at {
            Some(at) if now < at => return 0,
            Some(_) => {}
            None => self.moved_at = now,
        }
        if self.waiting() > self.limit / 2 {
            self.measure(now, held);
        }
        let excess = self.waiting().saturating_sub(self.limit / 2);
        self.room_at = (excess > 0).then(|| now + self.drains_in(excess));
        if excess > 0 { 0 } else { self.limit - self.waiting() }
    }

    /// Returns the time until this number of bytes should have left, within [`MEASURE_INTERVAL`].
    fn drains_in(&self, bytes: u64) -> Duration {
        let [min, max] = MEASURE_INTERVAL;
        let nanos = bytes.saturating_mul(QUEUE_TIME.as_nanos()).checked_div(self.drain_rate);
        nanos.map_or(min, |nanos| Duration::from_nanos(nanos).clamp(min, max))
    }

    /// Returns the bytes that wait for the link.
    const fn waiting(&self) -> u64 {
        self.held.saturating_sub(self.stuck)
    }

    /// Returns the time to call [`room`](Self::room) again, if there was none.
    pub(super) const fn room_at(&self) -> Option<Instant> {
        self.room_at
    }

    /// Measures the queue, and updates the rate and the limit once in an interval.
    fn measure(&mut self, now: Instant, held: impl Fn(u16) -> u64) {
        let before = std::mem::take(&mut self.held);
        self.sockets.retain(|&socket| {
            let bytes = held(socket);
            self.held += bytes;
            self.is_listed[usize::from(socket)] = bytes > 0;
            bytes > 0
        });
        let left = before.saturating_sub(self.held);
        self.left += left;
        if left > 0 {
            self.moved_at = now;
        } else if now.since(self.moved_at) >= STALL {
            self.stuck = self.held;
        }
        self.stuck = self.stuck.min(self.held);
        let span = now.since(self.since);
        if span >= QUEUE_TIME {
            let rate = u128::from(self.left) * u128::from(QUEUE_TIME.as_nanos());
            let rate = u64::try_from(rate / u128::from(span.as_nanos())).unwrap_or(MAX_LIMIT);
            (self.drain_rate, self.limit) = (rate, rate.clamp(MIN_LIMIT, MAX_LIMIT));
            (self.since, self.left) = (now, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_micros(100);
    const BURST: u64 = 60_000;

    /// Fills the queue for a second of turns, over a link that sends `bytes_a_turn` in each.
    /// Returns the maximum bytes queued, the turns in which the link was idle, and the calls of
    /// `held`.
    fn saturate(bytes_a_turn: u64) -> (u64, u32, usize) {
        let (mut backlog, mut queue) = (Backlog::new(8), [0_u64; 8]);
        let (mut max, mut idle, mut measured) = (0, 0, 0);
        for turn in 0..10_000_u64 {
            let now = Instant::from_nanos(turn * TURN.as_nanos());
            let calls = std::cell::Cell::new(0);
            let mut room = backlog.room(now, |socket| {
                calls.set(calls.get() + 1);
                queue[usize::from(socket)]
            });
            while room > 0 {
                let (socket, bytes) = (turn % 8, room.min(BURST));
                backlog.take(u16::try_from(socket).unwrap(), usize::try_from(bytes).unwrap());
                queue[usize::try_from(socket).unwrap()] += bytes;
                room -= bytes;
            }
            max = max.max(queue.iter().sum());
            measured += calls.get();
            let mut sends = bytes_a_turn;
            for bytes in &mut queue {
                let sent = sends.min(*bytes);
                (*bytes, sends) = (*bytes - sent, sends - sent);
            }
            idle += u32::from(sends > 0);
        }
        (max, idle, measured)
    }

    #[test]
    fn the_queue_of_a_slow_link_stays_short_and_is_never_empty() {
        // 200 Mb/s.
        let (max, idle, measured) = saturate(2_500);
        assert!(max <= MIN_LIMIT && idle == 0, "{max} bytes, {idle} turns idle");
        assert!(measured < 5_000, "{measured} system calls in a second");
    }

    #[test]
    fn the_queue_of_a_fast_link_grows_to_a_millisecond() {
        // 10 Gb/s.
        let (max, idle, _) = saturate(125_000);
        assert!((600_000..=1_500_000).contains(&max), "{max} bytes");
        assert!(idle < 100, "{idle} of 10000 turns idle");
    }

    #[test]
    fn an_empty_queue_is_measured_rarely() {
        let mut backlog = Backlog::new(8);
        let measured = std::cell::Cell::new(0);
        for turn in 0..1_000 {
            let now = Instant::from_nanos(turn * 10_000);
            let room = backlog.room(now, |_| {
                measured.set(measured.get() + 1);
                0
            });
            assert!(room > 0 && backlog.room_at().is_none());
            backlog.take(u16::try_from(turn % 8).unwrap(), 60_000);
        }
        // 6 GB/s: the limit soon is 4 MB.
        assert!(measured.get() < 500, "{} times", measured.get());
    }

    #[test]
    fn bytes_that_do_not_wait_for_the_link_block_others_only_briefly() {
        let mut backlog = Backlog::new(2);
        let stuck = |socket| if socket == 0 { 100_000 } else { 0 };
        backlog.take(0, 100_000);
        let mut passed = 0;
        for turn in 0..1_000 {
            let now = Instant::from_nanos(turn * TURN.as_nanos());
            if backlog.room(now, stuck) > 0 {
                passed += 1;
                backlog.take(1, 60_000);
            }
        }
        assert!((890..=900).contains(&passed), "{passed} of 1000 turns");
        // When those bytes have left, the queue works as before.
        backlog.take(1, 4 << 20);
        assert_eq!(backlog.room(Instant::from_nanos(1_000_000_000), |_| 0), backlog.limit);
        assert_eq!(backlog.stuck, 0);
    }

    #[test]
    fn a_pause_of_the_thread_does_not_raise_the_limit() {
        let mut backlog = Backlog::new(1);
        for pause in 1..50 {
            let now = Instant::from_nanos(pause * 10_000_000);
            assert!(backlog.room(now, |_| 0) <= MIN_LIMIT);
            backlog.take(0, usize::try_from(MIN_LIMIT).unwrap());
        }
    }
}
