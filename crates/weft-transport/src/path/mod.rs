//! Which path the next packet takes.
//!
//! A path is an entropy value: the owner maps a [`PathId`] to a UDP source port, and the fabric's
//! switches hash it. A policy sees only [`Paths`]; whether a path is alive is kept there, by
//! `health.rs`, and not in any policy.

use core::fmt::Debug;

use weft_units::{Duration, Instant, Rng};

mod health;
mod lossy;
mod news;
mod paths;
mod peers;
mod probation;

pub(crate) use health::Health;
pub use news::PathNews;
pub use paths::Paths;
pub(crate) use peers::{PeerPaths, PeerPorts};
pub(crate) use probation::Probation;

/// Index of a path of one connection, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PathId(pub u16);

/// What the network said about a packet of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// It was placed.
    Acked {
        /// Its ACK reported a congestion mark.
        marked: bool,
        /// Round-trip time, where this packet was the one echoed.
        rtt: Option<Duration>,
    },
    /// It was lost: a later packet of the same path was acknowledged, or the reordering bound
    /// passed.
    Lost,
    /// Nothing was heard for the retransmission timeout.
    TimedOut,
}

/// How many of a connection's paths a policy keeps busy at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// One, though not always the same.
    One,
    /// The [`top_k`](crate::TransportConfig::top_k) it likes best.
    TopK,
    /// All of them.
    All,
}

/// Chooses the path of each spray unit.
pub trait PathPolicy: Debug {
    /// The path for the next packet. It is open ([`Paths::is_open`]). `None` when no path is, or
    /// when the policy waits for a path that has packets in flight: ask again after feedback, or at
    /// [`Self::holds_until`].
    fn select(&mut self, paths: &Paths, now: Instant, rng: &mut Rng) -> Option<PathId>;

    /// Learns what became of a packet; `paths` has counted it already.
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, now: Instant);

    /// A path the policy wants measured now. Asked after feedback, until the answer is `None`.
    #[inline]
    fn probe(&mut self, _paths: &Paths, _now: Instant, _rng: &mut Rng) -> Option<PathId> {
        None
    }

    /// Until when [`Self::select`] holds packets back though its path is open; `None` when it does
    /// not.
    #[inline]
    fn holds_until(&self) -> Option<Instant> {
        None
    }

    /// Packets by which a packet may be overtaken, whatever paths they took, before its ACK is kept from
    /// [`Self::on_feedback`]; `u32::MAX` where none is.
    fn reordering_bound(&self) -> u32 {
        u32::MAX
    }

    /// Whether it compares round-trip times, so that idle paths must be probed to stay known.
    fn compares_paths(&self) -> bool {
        false
    }
}

mod current;
mod marked_flow;
mod trend;

mod best_rtt;
mod dwrr;
mod flowbender;
mod hopper;
mod mp_rdma;
mod oblivious;
mod plb;
mod reps;
mod round_robin;
mod rtt_groups;
mod single;
mod strack;

#[cfg(test)]
mod conformance;

/// Declares every policy once: module, name on the command line, how many paths it keeps busy,
/// one-line description.
macro_rules! path_policies {
    ($($kind:ident => $module:ident, $name:literal, $spread:ident, $about:literal;)+) => {
        /// The name of a policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Kind { $(#[doc = $about] $kind),+ }

        impl Kind {
            /// Every policy, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$kind),+];
            /// Its name on the command line and in scenarios.
            pub const fn name(self) -> &'static str { match self { $(Self::$kind => $name),+ } }
            /// What it does, in one line.
            pub const fn about(self) -> &'static str { match self { $(Self::$kind => $about),+ } }
            /// How many paths it keeps busy at a time.
            pub const fn spread(self) -> Spread { match self { $(Self::$kind => Spread::$spread),+ } }
            /// A fresh policy.
            pub fn build(self, config: &crate::TransportConfig) -> Policy {
                match self { $(Self::$kind => Policy::$kind($module::Policy::new(config))),+ }
            }
        }

        /// A policy by value: no allocation and no indirect call on the hot path. Those that do more
        /// than draw or count are not inlined into it, or every policy would pay for them.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum Policy {
            $(#[doc = $about] $kind($module::Policy),)+
            /// One that is not in the table.
            External(alloc::boxed::Box<dyn PathPolicy + Send>),
        }

        impl PathPolicy for Policy {
            #[inline]
            fn select(&mut self, paths: &Paths, now: Instant, rng: &mut Rng) -> Option<PathId> {
                match self {
                    $(Self::$kind(policy) => policy.select(paths, now, rng),)+
                    Self::External(policy) => policy.select(paths, now, rng),
                }
            }
            #[inline(always)] // Most policies do nothing here.
            fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, now: Instant) {
                match self {
                    $(Self::$kind(policy) => policy.on_feedback(path, feedback, paths, now),)+
                    Self::External(policy) => policy.on_feedback(path, feedback, paths, now),
                }
            }
            #[inline]
            fn probe(&mut self, paths: &Paths, now: Instant, rng: &mut Rng) -> Option<PathId> {
                match self {
                    $(Self::$kind(policy) => policy.probe(paths, now, rng),)+
                    Self::External(policy) => policy.probe(paths, now, rng),
                }
            }
            #[inline]
            fn holds_until(&self) -> Option<Instant> {
                match self {
                    $(Self::$kind(policy) => policy.holds_until(),)+
                    Self::External(policy) => policy.holds_until(),
                }
            }
            fn reordering_bound(&self) -> u32 {
                match self {
                    $(Self::$kind(policy) => policy.reordering_bound(),)+
                    Self::External(policy) => policy.reordering_bound(),
                }
            }
            fn compares_paths(&self) -> bool {
                match self {
                    $(Self::$kind(policy) => policy.compares_paths(),)+
                    Self::External(policy) => policy.compares_paths(),
                }
            }
        }
    };
}

path_policies! {
    Single => single, "single", One, "one path for the connection's life, moved only when it dies (ECMP)";
    Oblivious => oblivious, "oblivious", All, "a random path for each unit, whatever the feedback (OBS; STELLAR, section 7.2)";
    RoundRobin => round_robin, "round-robin", All, "every open path in turn (RR; STELLAR, section 7.2)";
    Dwrr => dwrr, "dwrr", All, "turns by weights that follow each path's queueing delay (DWRR; STELLAR, section 7.2)";
    BestRtt => best_rtt, "best-rtt", One, "the path with the lowest smoothed round-trip time (BestRTT; STELLAR, section 7.2)";
    MpRdma => mp_rdma, "mp-rdma", All, "paths whose ACKs come back unmarked, again (MP-RDMA; Lu et al., NSDI 2018)";
    RttGroups => rtt_groups, "rtt-groups", TopK, "groups of packets over the top-k lowest round-trip times (BIFROST, section 4.1)";
    Hopper => hopper, "hopper", One, "one path, left when congested for one that probes found better (Nosrati and Ghaderi 2025)";
    FlowBender => flowbender, "flowbender", One, "one path, left for a random one when over 5 % of a round trip is marked (Kabbani et al., CoNEXT 2014)";
    Plb => plb, "plb", One, "one path, left after congested round trips, in a pause if there is one (PLB; Qureshi et al., SIGCOMM 2022)";
    Reps => reps, "reps", All, "the paths of unmarked ACKs again, frozen to them when packets time out (REPS; Bonato et al. 2024)";
    Strack => strack, "strack", All, "every path in turn, passing once over each that was marked (STrack; Le et al. 2024)";
}

crate::registry::named!(Kind, "path policy");

impl Kind {
    /// [`Self::spread`] as a number; never zero.
    pub(crate) fn paths_in_use(self, config: &crate::TransportConfig) -> u16 {
        let paths = config.paths.max(1);
        match self.spread() {
            Spread::One => 1,
            Spread::TopK => config.top_k.clamp(1, paths),
            Spread::All => paths,
        }
    }
}
