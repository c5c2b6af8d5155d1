//! The state of each path of one connection: its round-trip time, the bytes in flight, and whether it is up.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_units::{Duration, Instant, Rng};

use super::PathId;
use super::suspension::Suspension;

/// The paths of one connection, as a policy sees them.
#[derive(Debug)]
pub struct Paths {
    table: Vec<PathState>,
    /// The fields that few connections need; empty until one is needed.
    rare: Vec<Rare>,
    /// The time from which the times in `table` count.
    start: Instant,
    /// The time of the last loss counted against a path, if any.
    suspected_at: BTreeMap<PathId, Instant>,
    /// The numbers of packets lost on a path, if any.
    lost: BTreeMap<PathId, Lost>,
    /// The suspended paths.
    suspended: BTreeMap<PathId, Suspension>,
    up: u16,
    pub(super) mtu: u32,
}

/// The numbers of packets lost on a path.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    /// Number since the connection last became active.
    all: u64,
    /// Number of certain losses since the last call of [`Paths::take_counts`].
    latest: u32,
}

/// The state of a path that every packet changes: a quarter of a cache line, because a sprayed packet's path is in no
/// cache, and the paths of a simulation's hosts took more memory than anything but packets in flight.
///
/// Times are nanoseconds since [`Paths::start`], and zero before it. 32 bits hold 4.29 s, longer than any timeout.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(crate) struct PathState {
    /// The smoothed round-trip time; zero until measured.
    srtt_ns: u32,
    /// Bytes sent and not yet acknowledged or lost.
    pub(crate) in_flight: u32,
    /// The time at which the latest acknowledged packet of this path was sent.
    acked_sent_at: u32,
    /// The time of the last acknowledgement or probe answer for this path.
    last_response_at: u32,
}

/// The state of a path under a controller of its own, after a loss, or where connections share what they find.
#[derive(Clone, Copy, Debug)]
struct Rare {
    /// Bytes that may be in flight on this path.
    window: u32,
    /// Number of packets acknowledged since [`Paths::take_counts`]; saturates.
    acked: u16,
    /// Number of consecutive losses without an acknowledgement between them.
    losses: u8,
    state: State,
}

/// The use of a path for new packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// It carries none until it responds, or is down.
    Suspended,
    /// It carries none, as far as known.
    Down,
}

impl Rare {
    const INITIAL: Self = Self { window: u32::MAX, acked: 0, losses: 0, state: State::Open };
}

impl Paths {
    pub(crate) fn new(count: u16, mtu: u16, now: Instant) -> Self {
        let path = PathState { srtt_ns: 0, in_flight: 0, acked_sent_at: 0, last_response_at: 0 };
        Self {
            table: alloc::vec![path; usize::from(count)],
            rare: Vec::new(),
            start: now,
            suspected_at: BTreeMap::new(),
            lost: BTreeMap::new(),
            suspended: BTreeMap::new(),
            up: count,
            mtu: mtu.into(),
        }
    }

    /// Starts to count acknowledged packets for [`Self::take_counts`].
    pub(crate) fn count_packets(&mut self) {
        self.rare.resize(self.table.len(), Rare::INITIAL);
    }

    #[inline]
    fn rare(&self, path: PathId) -> &Rare {
        self.rare.get(usize::from(path.0)).unwrap_or(&Rare::INITIAL)
    }

    fn rare_mut(&mut self, path: PathId) -> &mut Rare {
        self.rare.resize(self.table.len(), Rare::INITIAL);
        &mut self.rare[usize::from(path.0)]
    }

    /// Returns the number of paths; at least one.
    pub fn count(&self) -> u16 {
        u16::try_from(self.table.len()).expect("at most 4096 paths")
    }

    /// Returns an iterator over all paths, lowest first.
    pub fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.count()).map(PathId)
    }

    /// Returns `true` if the path may carry new packets: it is neither down nor suspended. If all are, all count as up:
    /// sending is better than waiting.
    #[inline]
    pub fn is_up(&self, path: PathId) -> bool {
        self.up == 0 || self.rare(path).state == State::Open
    }

    /// Returns `true` if the path carries no packets, as far as known.
    #[inline]
    pub(crate) fn is_down(&self, path: PathId) -> bool {
        self.rare(path).state == State::Down
    }

    /// Returns a uniformly random path, open or not.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> PathId {
        PathId(u16::try_from(rng.index(self.table.len())).expect("at most 4096 paths"))
    }

    /// Returns the path after this one, the first after the last.
    #[inline]
    pub fn after(&self, path: PathId) -> PathId {
        if path.0 + 1 < self.count() { PathId(path.0 + 1) } else { PathId(0) }
    }

    /// Returns the time of the last loss counted against the path; the epoch if there was none.
    pub(crate) fn suspected_at(&self, path: PathId) -> Instant {
        self.suspected_at.get(&path).copied().unwrap_or(Instant::EPOCH)
    }

    /// Counts a loss against the path.
    pub(crate) fn mark_suspected(&mut self, path: PathId, now: Instant) {
        self.suspected_at.insert(path, now);
        let losses = &mut self.rare_mut(path).losses;
        *losses = losses.saturating_add(1);
    }

    /// Counts a packet lost on the path. Only a `certain` loss counts against the path: while queues grow, many packets
    /// that other paths overtake are only late.
    pub(crate) fn count_lost(&mut self, path: PathId, certain: bool) {
        let lost = self.lost.entry(path).or_default();
        lost.all += 1;
        lost.latest = lost.latest.saturating_add(certain.into());
    }

    /// Returns the number of packets lost on the path since the connection last became active.
    pub fn lost(&self, path: PathId) -> u64 {
        self.lost.get(&path).map_or(0, |lost| lost.all)
    }

    /// Returns the number of consecutive losses without an acknowledgement between them.
    pub(crate) fn losses(&self, path: PathId) -> u8 {
        self.rare(path).losses
    }

    /// Records the acknowledgement of a packet that was sent on the path at `sent_at`. Returns `true` if the path is
    /// suspended.
    #[inline]
    pub(crate) fn note_acked(&mut self, path: PathId, sent_at: Instant, now: Instant) -> bool {
        let (sent_at, now) = (self.stored(sent_at), self.stored(now));
        let state = self.state_mut(path);
        state.acked_sent_at = state.acked_sent_at.max(sent_at);
        state.last_response_at = now;
        let Some(rare) = self.rare.get_mut(usize::from(path.0)) else { return false };
        rare.losses = 0;
        rare.acked = rare.acked.saturating_add(1);
        rare.state == State::Suspended
    }

    /// Records the answer to a probe of the path.
    pub(crate) fn note_answered(&mut self, path: PathId, now: Instant) {
        self.note_response(path, now);
        if let Some(rare) = self.rare.get_mut(usize::from(path.0)) {
            rare.losses = 0;
        }
    }

    /// Records that a packet came through the path, though not to its end.
    pub(crate) fn note_response(&mut self, path: PathId, now: Instant) {
        let now = self.stored(now);
        self.state_mut(path).last_response_at = now;
    }

    /// Returns the time at which the latest acknowledged packet of the path was sent; the start if there was none.
    #[inline]
    pub(crate) fn acked_sent_at(&self, path: PathId) -> Instant {
        self.start + Duration::from_nanos(self.state(path).acked_sent_at.into())
    }

    /// Returns the time of the last acknowledgement or probe answer for the path; the start if there was none.
    pub(crate) fn last_response_at(&self, path: PathId) -> Instant {
        self.start + Duration::from_nanos(self.state(path).last_response_at.into())
    }

    /// Returns a time as the table stores it.
    #[inline]
    fn stored(&mut self, at: Instant) -> u32 {
        let nanos = at.since(self.start).as_nanos();
        u32::try_from(nanos).unwrap_or_else(|_| self.move_start(at))
    }

    /// Moves the start to half the range before `at`, and with it all earlier times; returns the new form of `at`.
    #[cold]
    fn move_start(&mut self, at: Instant) -> u32 {
        const BEFORE: u32 = 1 << 31;
        let start = at - Duration::from_nanos(BEFORE.into());
        let by = u32::try_from(start.since(self.start).as_nanos()).unwrap_or(u32::MAX);
        for state in &mut self.table {
            state.acked_sent_at = state.acked_sent_at.saturating_sub(by);
            state.last_response_at = state.last_response_at.saturating_sub(by);
        }
        self.start = start;
        BEFORE
    }

    /// Returns and resets the numbers of packets acknowledged and lost since the last call; zeros if the first
    /// saturated, because the share of lost packets is unknown then.
    pub(crate) fn take_counts(&mut self, path: PathId) -> (u16, u32) {
        let acked = core::mem::take(&mut self.rare_mut(path).acked);
        let lost = self.lost.get_mut(&path).map_or(0, |lost| core::mem::take(&mut lost.latest));
        if acked == u16::MAX { (0, 0) } else { (acked, lost) }
    }

    /// Returns the smoothed round-trip time; `None` until measured.
    #[inline]
    pub fn rtt(&self, path: PathId) -> Option<Duration> {
        let nanos = self.state(path).srtt_ns;
        (nanos > 0).then(|| Duration::from_nanos(nanos.into()))
    }

    /// Sets the smoothed round-trip time that another connection measured, nanoseconds.
    pub(crate) fn set_rtt(&mut self, path: PathId, srtt_ns: u32) {
        self.state_mut(path).srtt_ns = srtt_ns;
    }

    /// Returns the bytes sent on this path and not yet acknowledged or lost.
    #[inline]
    pub fn in_flight(&self, path: PathId) -> u32 {
        self.state(path).in_flight
    }

    /// Returns the bytes in flight as a number of full-size packets.
    pub fn packets_in_flight(&self, path: PathId) -> u32 {
        self.in_flight(path).div_ceil(self.mtu)
    }

    /// Returns the bytes that may be in flight on this path; `u32::MAX` if one window covers all paths.
    #[inline]
    pub fn window(&self, path: PathId) -> u32 {
        self.rare(path).window
    }

    /// Sets the bytes that may be in flight on this path; returns the previous value.
    pub(crate) fn set_window(&mut self, path: PathId, window: u32) -> u32 {
        core::mem::replace(&mut self.rare_mut(path).window, window)
    }

    /// Returns the number of paths that may carry new packets.
    pub fn up_count(&self) -> u16 {
        self.up
    }

    pub(crate) fn set_up(&mut self, path: PathId, up: bool) {
        if self.is_down(path) == up {
            let was_open = self.suspended.remove(&path).is_none() && !up;
            let rare = self.rare_mut(path);
            (rare.state, rare.losses) = (if up { State::Open } else { State::Down }, 0);
            self.up = self.up + u16::from(up) - u16::from(was_open);
        }
    }

    /// Returns `true` if the path may be suspended: it is up, and so is another.
    pub(crate) fn can_suspend(&self, path: PathId) -> bool {
        self.rare(path).state == State::Open && self.up > 1
    }

    /// Suspends a path for which [`Self::can_suspend`] returns `true`.
    pub(crate) fn suspend(&mut self, path: PathId, suspension: Suspension) {
        self.rare_mut(path).state = State::Suspended;
        self.suspended.insert(path, suspension);
        self.up -= 1;
    }

    /// Returns `true` if a path is suspended.
    #[inline]
    pub(crate) fn has_suspended(&self) -> bool {
        !self.suspended.is_empty()
    }

    /// Returns the suspensions of all paths.
    pub(crate) fn suspensions(&mut self) -> impl Iterator<Item = &mut Suspension> {
        self.suspended.values_mut()
    }

    /// Returns the path's suspension; `None` if it is not suspended.
    pub(crate) fn suspension(&mut self, path: PathId) -> Option<&mut Suspension> {
        self.suspended.get_mut(&path)
    }

    /// Returns `true` if the path is suspended and silent, while others are up: what is in flight on it is lost.
    pub(crate) fn is_silent(&self, path: PathId) -> bool {
        self.up > 0 && self.suspended.get(&path).is_some_and(|suspension| suspension.is_silent)
    }

    /// Ends the suspension of a path, which may carry new packets again. Returns the number of losses on it that
    /// congestion control was not notified of.
    pub(crate) fn resume(&mut self, path: PathId) -> u32 {
        let Some(suspension) = self.suspended.remove(&path) else { return 0 };
        self.rare_mut(path).state = State::Open;
        self.up += 1;
        suspension.losses
    }

    /// Adds a round-trip sample: exponential smoothing with gain 1/8 (BIFROST, section 4.1; the gain is RFC 6298's).
    #[inline]
    pub(crate) fn sample_rtt(&mut self, path: PathId, rtt: Duration) {
        let state = &mut self.table[usize::from(path.0)];
        let sample = u32::try_from(rtt.as_nanos()).unwrap_or(u32::MAX).max(1);
        if state.srtt_ns == 0 {
            state.srtt_ns = sample;
        } else {
            let smoothed = u64::from(state.srtt_ns) * 7 + u64::from(sample);
            state.srtt_ns = u32::try_from(smoothed / 8).expect("a mean of two u32").max(1);
        }
    }

    #[inline]
    pub(crate) fn state_mut(&mut self, path: PathId) -> &mut PathState {
        &mut self.table[usize::from(path.0)]
    }
}

impl Paths {
    #[inline]
    pub(crate) fn state(&self, path: PathId) -> &PathState {
        &self.table[usize::from(path.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_takes_16_bytes() {
        assert_eq!(size_of::<PathState>(), 16);
    }

    #[test]
    fn a_suspended_path_is_not_up_and_the_last_one_is_not_suspended() {
        let (now, later) = (Instant::EPOCH, Duration::from_micros(500));
        let mut paths = Paths::new(3, 1000, now);
        paths.set_up(PathId(2), false);
        assert!(!paths.can_suspend(PathId(2)) && paths.can_suspend(PathId(0)));
        paths.suspend(PathId(0), Suspension::new(now, now, later, later));
        assert_eq!([0, 1, 2].map(|path| paths.is_up(PathId(path))), [false, true, false]);
        assert!(!paths.can_suspend(PathId(0)) && !paths.can_suspend(PathId(1)));
        paths.suspension(PathId(0)).unwrap().losses = 3;
        assert_eq!((paths.resume(PathId(0)), paths.up_count()), (3, 2));
        // A path that is down has no losses that congestion control should know of.
        paths.suspend(PathId(0), Suspension::new(now, now, later, later));
        paths.suspension(PathId(0)).unwrap().losses = 3;
        paths.set_up(PathId(0), false);
        assert_eq!((paths.resume(PathId(0)), paths.up_count()), (0, 1));
        paths.set_up(PathId(0), true);
        assert!(paths.is_up(PathId(0)) && paths.up_count() == 2);
    }

    #[test]
    fn times_are_exact_for_two_seconds_and_in_order_however_long_a_connection_sends() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000 + 7);
        let mut paths = Paths::new(3, 1000, at(1));
        paths.note_acked(PathId(1), at(50), at(60));
        for second in 1..20 {
            let now = at(second * 1000);
            paths.note_acked(PathId(0), now - Duration::from_millis(3), now);
            assert_eq!(paths.acked_sent_at(PathId(0)), now - Duration::from_millis(3));
            assert_eq!(paths.last_response_at(PathId(0)), now);
            let idle = now.since(paths.last_response_at(PathId(1)));
            assert!(idle >= Duration::from_secs(2.min(second - 1)), "after {second} s: {idle:?}");
            assert!(paths.acked_sent_at(PathId(1)) <= paths.acked_sent_at(PathId(0)));
        }
        assert!(at(19_000).since(paths.last_response_at(PathId(2))) >= Duration::from_secs(2));
    }
}
