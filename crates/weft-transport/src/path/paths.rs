//! The state of each path of one connection: its round-trip time, the bytes in flight, and whether it is up.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_units::{Duration, Instant, Rng};

use super::PathId;

/// The paths of one connection, as a policy sees them.
#[derive(Debug)]
pub struct Paths {
    table: Vec<PathState>,
    /// The time of the last loss counted against a path, if any.
    suspected_at: BTreeMap<PathId, Instant>,
    /// The numbers of packets lost on a path, if any.
    lost: BTreeMap<PathId, Lost>,
    up: u16,
    pub(super) mtu: u32,
}

/// The numbers of packets lost on a path.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    /// Number since the connection last became active.
    all: u64,
    /// Number since the last call of [`Paths::take_counts`].
    latest: u32,
}

/// The state of a path that every packet may change. Times are nanoseconds; 32 bits hold 4.29 s, longer than any
/// timeout.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))] // One cache line holds it: a sprayed packet's path is in no cache.
pub(crate) struct PathState {
    /// The smoothed round-trip time; zero until measured.
    srtt_ns: u32,
    /// Bytes sent and not yet acknowledged or lost.
    pub(crate) in_flight: u32,
    /// Bytes that may be in flight on this path.
    pub(crate) window: u32,
    /// The time at which the latest acknowledged packet of this path was sent.
    pub(crate) acked_sent_at: Instant,
    /// The time of the last acknowledgement or probe answer for this path.
    pub(crate) last_response_at: Instant,
    /// Number of consecutive losses without an acknowledgement between them.
    pub(crate) losses: u8,
    /// Number of packets acknowledged since [`Paths::take_counts`]; saturates.
    acked: u16,
    /// `true` if it carries packets, as far as known.
    pub(crate) up: bool,
}

impl Paths {
    pub(crate) fn new(count: u16, mtu: u16, now: Instant) -> Self {
        let path = PathState {
            srtt_ns: 0,
            in_flight: 0,
            window: u32::MAX,
            acked_sent_at: Instant::EPOCH,
            last_response_at: now,
            losses: 0,
            acked: 0,
            up: true,
        };
        let table = alloc::vec![path; usize::from(count)];
        let (suspected_at, lost) = (BTreeMap::new(), BTreeMap::new());
        Self { table, suspected_at, lost, up: count, mtu: mtu.into() }
    }

    /// Returns the number of paths; at least one.
    pub fn count(&self) -> u16 {
        u16::try_from(self.table.len()).expect("at most 4096 paths")
    }

    /// Returns an iterator over all paths, lowest first.
    pub fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.count()).map(PathId)
    }

    /// Returns `true` if the path carries packets, as far as known. If none does, all count as up: sending is better
    /// than waiting.
    #[inline]
    pub fn is_up(&self, path: PathId) -> bool {
        self.up == 0 || self.state(path).up
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
        let losses = &mut self.state_mut(path).losses;
        *losses = losses.saturating_add(1);
    }

    /// Counts a packet lost on the path.
    pub(crate) fn count_lost(&mut self, path: PathId) {
        let lost = self.lost.entry(path).or_default();
        lost.all += 1;
        lost.latest = lost.latest.saturating_add(1);
    }

    /// Returns the number of packets lost on the path since the connection last became active.
    pub fn lost(&self, path: PathId) -> u64 {
        self.lost.get(&path).map_or(0, |lost| lost.all)
    }

    /// Counts an acknowledged packet of the path.
    #[inline]
    pub(crate) fn count_acked(&mut self, path: PathId) {
        let state = self.state_mut(path);
        state.acked = state.acked.saturating_add(1);
    }

    /// Returns and resets the numbers of packets acknowledged and lost since the last call; zeros if the first
    /// saturated, because the share of lost packets is unknown then.
    pub(crate) fn take_counts(&mut self, path: PathId) -> (u16, u32) {
        let acked = core::mem::take(&mut self.state_mut(path).acked);
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
    pub fn window(&self, path: PathId) -> u32 {
        self.state(path).window
    }

    /// Returns the number of paths that carry packets, as far as known.
    pub fn up_count(&self) -> u16 {
        self.up
    }

    pub(crate) fn set_up(&mut self, path: PathId, up: bool) {
        let state = &mut self.table[usize::from(path.0)];
        if state.up != up {
            state.up = up;
            state.losses = 0;
            if up { self.up += 1 } else { self.up -= 1 }
        }
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
