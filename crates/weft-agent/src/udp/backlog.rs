//! The queue in front of the host's own link: what the kernel has taken of an outbox's datagrams and not sent. Where
//! the link is slower than the host, what the queue has no room for is dropped there, and what it has room for
//! delays all that comes after. So it is kept as short as TCP keeps its own (TCP small queues): what the link sends in
//! a millisecond. How much that is shows in how fast the queue empties.

use weft_units::{Duration, Instant};

/// What the queue may hold in any case: what one call hands to the kernel.
const LEAST: u64 = 64 << 10;
/// And at most: a socket's send buffer.
const MOST: u64 = 4 << 20;
/// The queue may hold what leaves in this time, which is longer than most pauses of a thread.
const AHEAD: Duration = Duration::from_millis(1);
/// When a full queue is looked at again at the earliest and at the latest; between, when it should be half empty. A look is a
/// system call for each path, and to wake for it costs more.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
/// What has not moved for so long waits for something else than the link, such as a neighbour that does not answer ARP:
/// it holds up nothing else.
const STALL: Duration = Duration::from_millis(10);

/// The queue, as far as it is this outbox's.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Bytes that it held at the last look, and those given since: it does not hold more.
    held: u64,
    /// Sockets that some of them may be of; and which are listed.
    sockets: Vec<u16>,
    is_listed: Vec<bool>,
    /// Bytes of these that do not wait for the link.
    stuck: u64,
    /// When the queue was last seen to move, while it is full.
    moved_at: Instant,
    /// Bytes that it may hold, and that leave in a millisecond.
    limit: u64,
    pace: u64,
    /// Bytes that were seen to leave since then.
    left: u64,
    since: Instant,
    /// When to look again, if it was full.
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

    /// The kernel took so many bytes from a socket.
    pub(super) fn take(&mut self, socket: u16, bytes: usize) {
        self.held += bytes as u64;
        if !std::mem::replace(&mut self.is_listed[usize::from(socket)], true) {
            self.sockets.push(socket);
        }
    }

    /// Bytes that it has room for; none until it is half empty, so that bursts stay whole. `held` says how many of a
    /// socket's bytes it holds.
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

    /// Offers all that there is room for, for a second of turns, over a link that sends so many bytes in each. Says the
    /// most that the queue held, how many turns the link had nothing to send in, and how often a socket was asked.
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
        // Once it is gone all is as before.
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
