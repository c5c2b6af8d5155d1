//! REPS, recycled entropies packet spraying (Bonato et al. 2024): the path of a packet whose ACK was unmarked is kept
//! in a small circular buffer and used again, once; if the buffer is empty the path is random. So load moves to paths
//! without congestion, without state per path.
//!
//! When a packet times out, random paths may be dead, so for a while (*freezing*) the buffer's paths are used
//! repeatedly instead, valid or not. Afterwards, and in the beginning, a bandwidth-delay product of packets explores.
//!
//! The differences from the paper: freezing lasts `path_down_after` timeouts, the time until the shared path health has
//! taken the dead path down; and with spray units of several packets a unit's ACKs keep its path once, otherwise one
//! path would fill the buffer. Ultra Ethernet's public simulator (uet-htsim) freezes for 10 ms, then forgets all paths
//! and explores with 16 packets: [`RepsConfig`].

use alloc::vec;
use alloc::vec::Vec;

use weft_units::{Duration, Instant, Rng};

use super::{Candidates, Feedback, PathId, PathPolicy, Paths};
use crate::TransportConfig;
use crate::config::{Range, Settings};

/// The settings of REPS after a timeout. Zeros are this implementation's own; Ultra Ethernet's public simulator has
/// 10 ms, 16 packets and `forget`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct RepsConfig {
    /// The time for which only kept paths are used; zero is `path_down_after` timeouts.
    pub freeze: Duration,
    /// The number of packets on random paths in the beginning and after that time; zero is a bandwidth-delay product.
    pub explore: u16,
    /// `true` forgets all kept paths at the end of that time.
    pub forget: bool,
}

impl Settings for RepsConfig {
    fn ranges(&self) -> Vec<Range> {
        vec![("reps.freeze", self.freeze.as_nanos(), 0, 10_000_000_000, "at most 10s")]
    }
}

/// Number of entries of the circular buffer, as in the paper.
const ENTRIES: u8 = 8;

/// A kept path, valid for one packet.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    path: PathId,
    valid: bool,
}

/// The policy: reuses paths whose ACKs were unmarked.
#[derive(Debug)]
pub struct Policy {
    entries: [Entry; ENTRIES as usize],
    /// The index at which the next path is kept.
    head: u8,
    /// Number of entries ever filled.
    filled: u8,
    /// Number of valid entries; the oldest is that many before `head`.
    valid: u8,
    /// The next entry to be used whether valid or not.
    again: u8,
    /// Number of units still to be sent at random before kept paths are used.
    explore: u32,
    frozen_until: Option<Instant>,
    /// The initial value of `explore`.
    product: u32,
    freeze_for: Duration,
    /// `true` if a spray unit has several packets.
    units_of_many: bool,
    /// `true` if all paths are forgotten after freezing.
    forgets: bool,
}

impl Policy {
    pub(super) fn new(config: &TransportConfig) -> Self {
        let RepsConfig { freeze, explore, forget } = config.reps;
        let unit = u64::from(config.mtu) * u64::from(config.spray_unit.max(1));
        let product = u32::try_from(config.bdp().0.div_ceil(unit.max(1))).unwrap_or(u32::MAX);
        let product = if explore == 0 { product } else { explore.into() };
        let timeouts = config.retransmission.rto_min * u64::from(config.path_down_after);
        Self {
            entries: [Entry::default(); ENTRIES as usize],
            head: 0,
            filled: 0,
            valid: 0,
            again: 0,
            explore: product,
            frozen_until: None,
            product,
            freeze_for: if freeze == Duration::ZERO { timeouts } else { freeze },
            units_of_many: config.spray_unit > 1,
            forgets: forget,
        }
    }

    fn keep(&mut self, path: PathId) {
        let newest = self.entries[self.back(1)];
        if self.units_of_many && newest.valid && newest.path == path {
            return;
        }
        self.entries[usize::from(self.head)] = Entry { path, valid: true };
        self.head = (self.head + 1) % ENTRIES;
        self.filled = (self.filled + 1).min(ENTRIES);
        self.valid = (self.valid + 1).min(ENTRIES);
    }

    /// Returns the index that lies `entries` before `head`.
    fn back(&self, entries: u8) -> usize {
        usize::from((self.head + ENTRIES - entries) % ENTRIES)
    }

    /// Removes and returns the oldest valid path.
    fn recycle(&mut self) -> Option<PathId> {
        let oldest = self.back(self.valid);
        self.valid = self.valid.checked_sub(1)?;
        self.entries[oldest].valid = false;
        Some(self.entries[oldest].path)
    }

    /// Returns the buffer's paths in turn, valid or not.
    fn reuse(&mut self) -> Option<PathId> {
        let index = self.again.checked_rem(self.filled)?;
        self.again = index + 1;
        Some(self.entries[usize::from(index)].path)
    }

    fn is_frozen(&self, now: Instant) -> bool {
        self.frozen_until.is_some_and(|until| now < until)
    }

    fn thaw(&mut self) {
        self.frozen_until = None;
        self.explore = self.product;
        if self.forgets {
            (self.head, self.filled, self.valid, self.again) = (0, 0, 0, 0);
        }
    }
}

impl PathPolicy for Policy {
    #[inline(never)]
    fn select(&mut self, paths: &Candidates<'_>, now: Instant, rng: &mut Rng) -> Option<PathId> {
        if self.frozen_until.is_some_and(|until| until <= now) {
            self.thaw();
        }
        if self.explore > 0 {
            self.explore -= 1;
            return paths.open_from(paths.draw(rng));
        }
        for _ in 0..ENTRIES {
            let kept = match self.recycle() {
                None if self.is_frozen(now) => self.reuse(),
                kept => kept,
            };
            match kept {
                Some(path) if paths.is_open(path) => return Some(path),
                Some(_) => {}
                None => break,
            }
        }
        paths.open_from(paths.draw(rng))
    }

    #[inline(never)]
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, _paths: &Paths, now: Instant) {
        match feedback {
            Feedback::Acked { marked: false, .. } => self.keep(path),
            Feedback::TimedOut if self.frozen_until.is_none() && self.explore == 0 => {
                self.frozen_until = Some(now + self.freeze_for);
            }
            Feedback::Acked { marked: true, .. }
            | Feedback::Lost
            | Feedback::Trimmed
            | Feedback::TimedOut => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use weft_units::{BitRate, Seed};

    use super::*;

    const CLEAN: Feedback = Feedback::Acked { marked: false, rtt: None };
    const MARKED: Feedback = Feedback::Acked { marked: true, rtt: None };

    struct Rig {
        policy: Policy,
        paths: Paths,
        rng: Rng,
        now: Instant,
    }

    impl Rig {
        /// Creates a rig with a bandwidth-delay product of 10 packets and timeouts of 100 us, three of them frozen.
        fn new() -> Self {
            Self::with(RepsConfig::default())
        }

        fn with(reps: RepsConfig) -> Self {
            let mut config = TransportConfig {
                reps,
                mtu: 1000,
                line_rate: BitRate::gbps(8).expect("not zero"),
                base_rtt: Duration::from_micros(10),
                ..TransportConfig::stellar()
            };
            config.retransmission.rto_min = Duration::from_micros(100);
            Self {
                policy: Policy::new(&config),
                paths: Paths::new(1000, 1000, Instant::EPOCH),
                rng: Seed(4).rng(),
                now: Instant::EPOCH,
            }
        }

        fn send(&mut self, count: usize) -> Vec<u16> {
            let Self { policy, paths, rng, now } = self;
            (0..count)
                .map(|_| policy.select(&paths.candidates(), *now, rng).expect("all open").0)
                .collect()
        }

        fn feed(&mut self, path: u16, feedback: Feedback) {
            self.policy.on_feedback(PathId(path), feedback, &self.paths, self.now);
        }
    }

    #[test]
    fn after_a_bandwidth_delay_product_clean_paths_are_taken_again_oldest_first_and_once() {
        let mut rig = Rig::new();
        (1..=4).for_each(|path| rig.feed(path, CLEAN));
        let explored = rig.send(10);
        assert!(explored.iter().all(|path| *path > 4), "{explored:?} are random");
        rig.feed(5, MARKED);
        rig.feed(6, CLEAN);
        assert_eq!(rig.send(5), [1, 2, 3, 4, 6]);
        let random = rig.send(4);
        assert!(random.iter().all(|path| *path > 6), "{random:?}");
    }

    #[test]
    fn the_buffer_keeps_the_latest_eight() {
        let mut rig = Rig::new();
        rig.send(10);
        (1..=11).for_each(|path| rig.feed(path, CLEAN));
        assert_eq!(rig.send(8), [4, 5, 6, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn a_timeout_freezes_the_kept_paths_and_thawing_explores() {
        let mut rig = Rig::new();
        rig.send(10);
        (1..=3).for_each(|path| rig.feed(path, CLEAN));
        rig.feed(900, Feedback::TimedOut);
        let sent = rig.send(9);
        assert!(sent.iter().all(|path| (1..=3).contains(path)), "{sent:?}");
        assert_eq!(sent[..3], [1, 2, 3]);

        rig.now += Duration::from_micros(300);
        rig.feed(7, CLEAN);
        let explored = rig.send(10);
        assert!(explored.iter().all(|path| *path > 7), "{explored:?} are random");
        assert_eq!(rig.send(1), [7]);
    }

    #[test]
    fn as_in_ultra_ethernet_it_freezes_for_10_ms_and_explores_anew_with_16_packets() {
        let freeze = Duration::from_millis(10);
        let mut rig = Rig::with(RepsConfig { freeze, explore: 16, forget: true });
        rig.send(16);
        (1..=3).for_each(|path| rig.feed(path, CLEAN));
        rig.feed(900, Feedback::TimedOut);
        rig.now += Duration::from_micros(9_999);
        assert_eq!(rig.send(6), [1, 2, 3, 1, 2, 3]);

        rig.now += Duration::from_micros(1);
        let explored = rig.send(1);
        rig.feed(4, CLEAN);
        let explored = [explored, rig.send(15)].concat();
        assert!(explored.iter().all(|path| *path > 4), "{explored:?} are random");
        assert_eq!(rig.send(1), [4], "and nothing older");
        assert!(rig.send(3).iter().all(|path| *path > 4));
    }

    #[test]
    fn a_trimmed_packet_keeps_its_path_no_longer() {
        let mut rig = Rig::new();
        rig.send(10);
        rig.feed(1, Feedback::Trimmed);
        assert!(rig.send(3).iter().all(|path| *path > 1));
    }

    #[test]
    fn a_timeout_while_exploring_freezes_nothing() {
        let mut rig = Rig::new();
        rig.feed(1, CLEAN);
        rig.feed(900, Feedback::TimedOut);
        rig.send(10);
        rig.send(1);
        let random = rig.send(5);
        assert!(random.iter().all(|path| *path > 1), "{random:?}");
    }
}
