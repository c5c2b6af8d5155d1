//! The queue of the host's own link: datagrams of an outbox that the kernel has accepted and not
//! sent. Where the link is slower than the host, a full queue drops datagrams, and a long one
//! delays all later ones. So it is kept as short as TCP keeps its own (TCP small queues): the bytes
//! that the link sends in a millisecond, estimated from the rate at which the queue drains.

use weft_units::{Duration, Instant};

/// Minimum limit of the queue, bytes: one call's datagrams.
const LEAST: u64 = 64 << 10;
/// Maximum limit of the queue, bytes: a socket's send buffer.
const MOST: u64 = 4 << 20;
/// The queue's limit in time, which is longer than most pauses of a thread.
const AHEAD: Duration = Duration::from_millis(1);
/// The shortest and longest time until a full queue is measured again; between these, the time at
/// which it should be half empty. A measurement is a system call for each path, and a wake-up for
/// it costs more.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
/// The time after which bytes that have not moved are assumed to wait for something other than the
/// link, such as ARP: they no longer hold up others.
const STALL: Duration = Duration::from_millis(10);

/// The part of the queue that belongs to this outbox.
#[derive(Debug)]
pub(super) struct Backlog {
    /// An upper bound: bytes held at the last measurement and those given since.
    held: u64,
    /// Sockets that may own some of these bytes; and which are listed.
    sockets: Vec<u16>,
    is_listed: Vec<bool>,
    /// Bytes of these that do not wait for the link.
    stuck: u64,
    /// The time at which the queue last moved, while it is full.
    moved_at: Instant,
    /// Bytes that it may hold, and that leave in a millisecond.
    limit: u64,
    pace: u64,
    /// Bytes that left since then.
    left: u64,
    since: Instant,
    /// The time of the next measurement, if it was full.
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
            limit: LEAST,
            pace: 0,
            left: 0,
            since: Instant::EPOCH,
            room_at: None,
        }
    }

    /// Adds bytes that the kernel accepted from a socket.
    pub(super) fn take(&mut self, socket: u16, bytes: usize) {
        self.held += bytes as u64;
        if !std::mem::replace(&mut self.is_listed[usize::from(socket)], true) {
            self.sockets.push(socket);
        }
    }

    /// Returns the bytes that it has room for; zero until it is half empty, so that bursts stay
    /// whole. `held` returns the bytes that the queue holds of a socket.
    pub(super) fn room(&mut self, now: Instant, held: impl Fn(u16) -> u64) -> u64 {
        match self.room_at {
            Some(at) if now < at => return 0,
            Some(_) => {}
            None => self.moved_at = now,
        }
        if self.waiting() > self.limit / 2 {
            self.look(now, held);
        }
        let excess = self.waiting().saturating_sub(self.limit / 2);
        self.room_at = (excess > 0).then(|| now + self.drains_in(excess));
        if excess > 0 { 0 } else { self.limit - self.waiting() }
    }

    fn drains_in(&self, bytes: u64) -> Duration {
        let [least, most] = LOOK_AGAIN;
        let nanos = bytes.saturating_mul(AHEAD.as_nanos()).checked_div(self.pace);
        nanos.map_or(least, |nanos| Duration::from_nanos(nanos).clamp(least, most))
    }

    const fn waiting(&self) -> u64 {
        self.held.saturating_sub(self.stuck)
    }

    pub(super) const fn room_at(&self) -> Option<Instant> {
        self.room_at
    }

    fn look(&mut self, now: Instant, held: impl Fn(u16) -> u64) {
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
        if span >= AHEAD {
            let in_time = u128::from(self.left) * u128::from(AHEAD.as_nanos());
            let in_time = u64::try_from(in_time / u128::from(span.as_nanos())).unwrap_or(MOST);
            (self.pace, self.limit) = (in_time, in_time.clamp(LEAST, MOST));
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
        let (mut most, mut idle, mut asked) = (0, 0, 0);
        for turn in 0..10_000_u64 {
            let now = Instant::from_nanos(turn * TURN.as_nanos());
            let looks = std::cell::Cell::new(0);
            let mut room = backlog.room(now, |socket| {
                looks.set(looks.get() + 1);
                queue[usize::from(socket)]
            });
            while room > 0 {
                let (socket, bytes) = (turn % 8, room.min(BURST));
                backlog.take(u16::try_from(socket).unwrap(), usize::try_from(bytes).unwrap());
                queue[usize::try_from(socket).unwrap()] += bytes;
                room -= bytes;
            }
            most = most.max(queue.iter().sum());
            asked += looks.get();
            let mut sends = bytes_a_turn;
            for bytes in &mut queue {
                let sent = sends.min(*bytes);
                (*bytes, sends) = (*bytes - sent, sends - sent);
            }
            idle += u32::from(sends > 0);
        }
        (most, idle, asked)
    }

    #[test]
    fn a_slow_links_queue_stays_short_and_never_runs_dry() {
        // 200 Mb/s.
        let (most, idle, asked) = saturate(2_500);
        assert!(most <= LEAST && idle == 0, "{most} bytes, {idle} turns idle");
        assert!(asked < 5_000, "{asked} system calls in a second");
    }

    #[test]
    fn a_fast_links_queue_grows_to_a_millisecond_and_no_more() {
        // 10 Gb/s.
        let (most, idle, _) = saturate(125_000);
        assert!((600_000..=1_500_000).contains(&most), "{most} bytes");
        assert!(idle < 100, "{idle} of 10000 turns idle");
    }

    #[test]
    fn a_queue_that_is_always_empty_is_seldom_asked_for() {
        let mut backlog = Backlog::new(8);
        let asked = std::cell::Cell::new(0);
        for turn in 0..1_000 {
            let now = Instant::from_nanos(turn * 10_000);
            let room = backlog.room(now, |_| {
                asked.set(asked.get() + 1);
                0
            });
            assert!(room > 0 && backlog.room_at().is_none());
            backlog.take(u16::try_from(turn % 8).unwrap(), 60_000);
        }
        // 6 GB/s: the limit is 4 MB soon.
        assert!(asked.get() < 500, "{} times", asked.get());
    }

    #[test]
    fn what_does_not_wait_for_the_link_holds_up_nothing_else_for_long() {
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
        // Once it is gone the queue works as before.
        backlog.take(1, 4 << 20);
        assert_eq!(backlog.room(Instant::from_nanos(1_000_000_000), |_| 0), backlog.limit);
        assert_eq!(backlog.stuck, 0);
    }

    #[test]
    fn a_pause_of_the_thread_makes_no_queue_longer() {
        let mut backlog = Backlog::new(1);
        for pause in 1..50 {
            let now = Instant::from_nanos(pause * 10_000_000);
            assert!(backlog.room(now, |_| 0) <= LEAST);
            backlog.take(0, usize::try_from(LEAST).unwrap());
        }
    }
}
