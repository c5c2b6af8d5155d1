//! The schedule of faults: a function of the seed and of the duration, so that a run can be repeated.

use std::fmt;
use std::time::Duration;

use weft_units::Seed;

use crate::{HOSTS, SPINES};

/// A fault that is made and repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A cable between two switches loses 1 % of its packets in both directions.
    Loss(String),
    /// A cable between two switches loses its carrier.
    Cable(String),
    /// All cables of a spine lose their carrier.
    Spine(usize),
    /// A daemon is killed by `kill -9`; its supervisor starts it again.
    Kill(String),
    /// etcd does not run for a while, but its connections stay (SIGSTOP).
    EtcdStop,
    /// etcd is killed, and started again later with what it has on its disk.
    EtcdKill,
    /// The wall clock of a daemon jumps, and later jumps back.
    Clock(String, i64),
    /// The disk with a host's state files is full.
    Disk(usize),
    /// A daemon's memory is limited to little more than it uses.
    Memory(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(link) => write!(f, "1 % loss on {link}"),
            Self::Cable(link) => write!(f, "cable {link} dies"),
            Self::Spine(spine) => write!(f, "spine s{spine} dies"),
            Self::Kill(daemon) => write!(f, "kill -9 of {daemon}"),
            Self::EtcdStop => write!(f, "etcd is stopped"),
            Self::EtcdKill => write!(f, "etcd is killed"),
            Self::Clock(daemon, by) => write!(f, "clock of {daemon} jumps by {by:+} s"),
            Self::Disk(host) => write!(f, "disk of h{host} is full"),
            Self::Memory(daemon) => write!(f, "memory of {daemon} is scarce"),
        }
    }
}

impl Kind {
    /// Returns the time after the repair in which everything must be healthy again.
    pub(crate) fn bound(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Loss(_) | Self::Disk(_) => 30,
            Self::Cable(_) | Self::Spine(_) | Self::Kill(_) | Self::Memory(_) => 45,
            Self::EtcdStop | Self::EtcdKill | Self::Clock(..) => 60,
        })
    }
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The time at which it is made, after everything was healthy for the first time. A recovery that takes longer than the
    /// quiet period delays the faults after it.
    pub(crate) at: Duration,
    /// The time after which it is repaired; zero for a fault that a supervisor repairs.
    pub(crate) lasts: Duration,
}

/// The period after each fault in which there is none, if everything is healthy soon enough.
pub(crate) const QUIET: Duration = Duration::from_secs(12);

/// Returns the faults of a run. Every kind occurs once before any occurs again, each time in another order.
pub(crate) fn plan(seed: u64, duration: Duration) -> Vec<Fault> {
    let seed = Seed(seed).child("soak", 0);
    let (mut faults, mut at) = (Vec::new(), QUIET);
    for round in 0.. {
        for (kind, lasts) in deck(seed.child("round", round)) {
            let end = at + lasts + QUIET;
            if end > duration {
                return faults;
            }
            faults.push(Fault { kind, at, lasts });
            at = end;
        }
    }
    faults
}

/// Returns one fault of each kind, with its duration, in random order.
fn deck(seed: Seed) -> Vec<(Kind, Duration)> {
    let mut rng = seed.rng();
    let mut link = || format!("l{}-s{}", rng.index(HOSTS), rng.index(SPINES));
    let (lossy, dead) = (link(), link());
    let mut host = || rng.index(HOSTS);
    let (vpc, device, monitor, disk) = (host(), host(), host(), host());
    let squeezed = ["vpc", "device"][rng.index(2)];
    let squeezed = format!("{squeezed} h{}", rng.index(HOSTS));
    let skewed =
        vec!["route a".to_owned(), format!("vpc h{}", HOSTS - 1)].swap_remove(rng.index(2));
    let jump = [3600, -3600, 86_400, -600][rng.index(4)];
    let mut seconds = |least, most: u64| Duration::from_secs(least + rng.below(most - least + 1));
    let mut deck = vec![
        (Kind::Loss(lossy), seconds(8, 15)),
        (Kind::Cable(dead), seconds(5, 12)),
        (Kind::EtcdStop, seconds(10, 30)),
        (Kind::EtcdKill, seconds(10, 30)),
        (Kind::Clock(skewed, jump), seconds(8, 15)),
        (Kind::Disk(disk), seconds(8, 15)),
        (Kind::Memory(squeezed), seconds(8, 15)),
        (Kind::Kill(format!("vpc h{vpc}")), Duration::ZERO),
        (Kind::Kill(format!("device h{device}")), Duration::ZERO),
        (Kind::Kill(format!("monitor agent h{monitor}")), Duration::ZERO),
        (Kind::Kill("monitor".into()), Duration::ZERO),
        (Kind::Kill("route a".into()), Duration::ZERO),
        (Kind::Kill("route b".into()), Duration::ZERO),
        (Kind::Kill("route agent".into()), Duration::ZERO),
    ];
    let spine = seconds(5, 12);
    deck.push((Kind::Spine(rng.index(SPINES)), spine));
    rng.shuffle(&mut deck);
    deck
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::mem::discriminant;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_schedule_is_a_function_of_its_seed() {
        assert_eq!(plan(7, HOUR), plan(7, HOUR));
        assert_ne!(plan(7, HOUR), plan(8, HOUR));
        // A shorter run has the first faults of a longer one.
        let short = plan(7, HOUR / 6);
        assert_eq!(short, plan(7, HOUR)[..short.len()]);
    }

    #[test]
    fn faults_do_not_overlap_and_every_kind_occurs_in_each_round() {
        let faults = plan(1, HOUR);
        for pair in faults.windows(2) {
            assert_eq!(pair[1].at, pair[0].at + pair[0].lasts + QUIET);
        }
        let last = faults.last().unwrap();
        assert!(last.at + last.lasts + QUIET <= HOUR);
        let first = &faults[..15];
        for kind in first {
            let of_kind = |it: &&Fault| discriminant(&it.kind) == discriminant(&kind.kind);
            let expected = if matches!(kind.kind, Kind::Kill(_)) { 7 } else { 1 };
            assert_eq!(first.iter().filter(of_kind).count(), expected, "{}", kind.kind);
        }
        let killed: BTreeSet<String> = faults.iter().map(|it| it.kind.to_string()).collect();
        for host in 0..HOSTS {
            for daemon in ["vpc", "device"] {
                let wanted = format!("kill -9 of {daemon} h{host}");
                assert!(killed.contains(&wanted), "an hour of seed 1 lacks {wanted}");
            }
        }
    }
}
