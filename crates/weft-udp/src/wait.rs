//! The ways in which a thread waits between turns: it sleeps in the kernel, spins, or spins and then sleeps.

use std::io;
use std::os::fd::BorrowedFd;
use std::str::FromStr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_units::{Duration, Instant, UnknownName};

use crate::Clock;

/// The ways to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitMode {
    /// Sleeps in `ppoll` until a packet arrives or the deadline passes. It costs one wake-up for each packet, and no
    /// CPU time when idle.
    Block,
    /// Never sleeps: the lowest latency on a core of its own, and very slow without one.
    Poll,
    /// Spins briefly after work, then sleeps. The spin grows while work arrives soon after it and shrinks to
    /// zero while it does not, so a starved or idle thread behaves as with [`WaitMode::Block`].
    #[default]
    Hybrid,
}

impl WaitMode {
    /// Every mode.
    pub const ALL: &[Self] = &[Self::Block, Self::Poll, Self::Hybrid];

    const NAMES: &[&str] = &[Self::Block.name(), Self::Poll.name(), Self::Hybrid.name()];

    /// Returns its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Poll => "poll",
            Self::Hybrid => "hybrid",
        }
    }
}

impl FromStr for WaitMode {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let found = Self::ALL.iter().copied().find(|mode| mode.name() == name);
        found.ok_or_else(|| UnknownName::new("wait mode", name, Self::NAMES))
    }
}

/// The longest sleep, which bounds the time until a thread notices that it must stop.
pub const MAX_SLEEP: Duration = Duration::from_millis(100);

/// The longest spin. A wake-up from `ppoll` costs 5 to 20 us, so a longer spin costs more than it
/// saves.
const MAX_SPIN: Duration = Duration::from_micros(50);

/// The shortest spin worth starting.
const MIN_SPIN: Duration = Duration::from_micros(2);

/// Waits as its mode requires, and adapts the spin by the rule of KVM's halt polling (grow after a
/// short sleep, shrink after a spin without work).
#[derive(Debug)]
pub struct Waiter {
    mode: WaitMode,
    clock: Clock,
    spin: Duration,
    /// The start of the current spin; `None` after work or a sleep.
    idle_since: Option<Instant>,
    /// `true` once the thread's timer slack is reduced.
    slack_set: bool,
}

impl Waiter {
    /// Returns a waiter for the thread that calls it.
    pub fn new(mode: WaitMode, clock: Clock) -> Self {
        Self { mode, clock, spin: MIN_SPIN, idle_since: None, slack_set: false }
    }

    /// Records that a turn found work, so that the next wait begins with a spin.
    #[inline]
    pub fn worked(&mut self) {
        self.idle_since = None;
    }

    /// Waits until `readable` has packets, a `writable` has room, or `until` has passed. While the mode spins, it
    /// returns at once, and the caller takes another turn.
    pub fn wait<'a>(
        &mut self,
        readable: BorrowedFd<'a>,
        writable: impl Iterator<Item = BorrowedFd<'a>>,
        until: Instant,
    ) {
        let readable = std::iter::once(PollFd::from_borrowed_fd(readable, PollFlags::IN));
        let writable = writable.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::OUT));
        let _ = self.wait_for(readable.chain(writable), until);
    }

    /// Waits as [`wait`](Self::wait) does, and for datagrams at sockets that only send. Returns `true` if there are any.
    pub(crate) fn wait_for_strays<'a>(
        &mut self,
        readable: BorrowedFd<'a>,
        strays: BorrowedFd<'a>,
        writable: impl Iterator<Item = BorrowedFd<'a>>,
        until: Instant,
    ) -> bool {
        let readable = [readable, strays].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let writable = writable.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::OUT));
        self.wait_for(readable.into_iter().chain(writable), until)
    }

    /// Waits as [`wait`](Self::wait) does, for two sockets to read from.
    pub fn wait_for_either(
        &mut self,
        first: BorrowedFd<'_>,
        second: BorrowedFd<'_>,
        until: Instant,
    ) {
        let readable = [first, second];
        let _ = self.wait_for(
            readable.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            until,
        );
    }

    /// Returns `true` if the second socket is ready.
    fn wait_for<'a>(&mut self, sockets: impl Iterator<Item = PollFd<'a>>, until: Instant) -> bool {
        if self.mode == WaitMode::Poll {
            std::hint::spin_loop();
            return false;
        }
        let now = self.clock.now();
        if self.mode == WaitMode::Hybrid && self.continues_spin(now) {
            std::hint::spin_loop();
            return false;
        }
        let span = until.since(now);
        let ready = span > Duration::ZERO
            && self.sleep(sockets, (until != Instant::FAR_FUTURE).then_some(span));
        self.adapt(self.clock.now().since(now));
        ready
    }

    /// Returns `true` while the current spin is shorter than its limit; starts one if there is none.
    fn continues_spin(&mut self, now: Instant) -> bool {
        let idle_since = *self.idle_since.get_or_insert(now);
        now.since(idle_since) < self.spin
    }

    /// Adapts the length of the spin after a sleep of `slept`: doubles it after a short sleep, and halves it after a
    /// spin without work and a long sleep.
    fn adapt(&mut self, slept: Duration) {
        let spun = self.idle_since.take().is_some();
        if slept < MAX_SPIN {
            self.spin = (self.spin * 2).max(MIN_SPIN);
            if self.spin > MAX_SPIN {
                self.spin = MAX_SPIN;
            }
        } else if spun {
            self.spin = self.spin / 2;
            if self.spin < MIN_SPIN {
                self.spin = Duration::ZERO;
            }
        }
    }

    /// Returns `true` if the second socket is ready.
    fn sleep<'a>(
        &mut self,
        mut sockets: impl Iterator<Item = PollFd<'a>>,
        span: Option<Duration>,
    ) -> bool {
        if !self.slack_set {
            self.slack_set = true;
            sharpen_timers();
        }
        let Some(first) = sockets.next() else { return false };
        let mut watched: [_; MAX_WATCHED] = std::array::from_fn(|_| first.clone());
        let mut count = 1;
        for (slot, socket) in watched[1..].iter_mut().zip(sockets) {
            *slot = socket;
            count += 1;
        }
        // An interrupted or failed poll counts as a short sleep: the caller takes a turn again.
        let polled = poll(&mut watched[..count], span.map(timespec).as_ref());
        polled.is_ok() && count > 1 && !watched[1].revents().is_empty()
    }
}

/// Maximum number of descriptors watched at once: one or two to read from, and those that are full.
/// If more are full, the first watched one with room wakes the thread, which then tries all.
const MAX_WATCHED: usize = 8;

/// Waits until one of `readable` is readable, one of `writable` is writable, or `span` has passed. Returns for each of
/// `readable` whether it is ready.
///
/// # Errors
/// The kernel's error. A wait that a signal interrupts returns early, without an error.
pub fn wait<'fd>(
    readable: impl Iterator<Item = BorrowedFd<'fd>>,
    writable: impl Iterator<Item = BorrowedFd<'fd>>,
    span: Duration,
) -> io::Result<Vec<bool>> {
    let readable = readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let writable = writable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT));
    let mut watched: Vec<_> = readable.collect();
    let readable = watched.len();
    watched.extend(writable);
    match poll(&mut watched, Some(&timespec(span))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(watched[..readable].iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Reduces the calling thread's timer slack to 1 ns. By default timers may be 50 us late (prctl(2), PR_SET_TIMERSLACK),
/// which is as long as the delay of an ACK. If the kernel refuses, timers stay late.
pub fn sharpen_timers() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Converts a duration to the kernel's type; one that is too long becomes the maximum.
pub fn timespec(span: Duration) -> Timespec {
    let (seconds, nanos) = (span.as_nanos() / 1_000_000_000, span.as_nanos() % 1_000_000_000);
    Timespec {
        tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos).expect("below a thousand million"),
    }
}
