//! Path selection for outgoing packets.
//!
//! A path is an entropy value: the owner maps a [`PathId`] to a UDP source port, and the fabric's switches hash it. A
//! policy sees only [`Paths`]; the liveness of paths is kept there, by `health.rs`, and not in any policy.

use core::fmt::Debug;

use weft_units::{Duration, Instant, Rng};

mod candidates;
mod health;
mod news;
mod paths;
mod peers;
mod probation;
mod suspension;
pub mod unit;

pub use candidates::Candidates;
pub(crate) use health::Health;
pub use news::PathNews;
pub(crate) use news::PeerPorts;
pub use paths::Paths;
pub(crate) use peers::PeerPaths;
pub(crate) use probation::Probation;
pub(crate) use suspension::Suspension;

/// The index of a path of one connection, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PathId(pub u16);

/// The network's feedback about a packet of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// The packet was placed.
    Acked {
        /// `true` if its ACK reported a congestion mark.
        marked: bool,
        /// The round-trip time, if this packet was the one echoed.
        rtt: Option<Duration>,
    },
    /// The packet was lost: a later packet of the same path was acknowledged, or the reordering window passed.
    Lost,
    /// A switch cut the packet to its headers: a queue on the path was full.
    Trimmed,
    /// No ACK covered the packet for the retransmission timeout.
    TimedOut,
}

/// The number of a connection's paths that a policy keeps busy at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// One path, though not always the same.
    One,
    /// [`top_k`](crate::TransportConfig::top_k) paths, the best as far as the policy knows.
    TopK,
    /// All paths.
    All,
}

/// A policy that chooses the path of each spray unit.
pub trait PathPolicy: Debug {
    /// Returns the path of the next packet. It is open ([`Candidates::is_open`]). Returns `None` if no path is open, or
    /// if the policy waits for a path that has packets in flight: call again after feedback, or at
    /// [`Self::holds_until`].
    fn select(&mut self, paths: &Candidates<'_>, now: Instant, rng: &mut Rng) -> Option<PathId>;

    /// Processes the feedback for a packet; `paths` already includes it.
    fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, now: Instant);

    /// Returns a path to probe now. Called after feedback, until it returns `None`.
    #[inline]
    fn probe(&mut self, _paths: &Paths, _now: Instant, _rng: &mut Rng) -> Option<PathId> {
        None
    }

    /// Returns the time until which [`Self::select`] holds packets back though its path is open; `None` if it does not.
    #[inline]
    fn holds_until(&self) -> Option<Instant> {
        None
    }

    /// Returns the number of packets by which a packet may be overtaken, whatever paths they took, before its ACK is
    /// withheld from [`Self::on_feedback`]; `u32::MAX` withholds none.
    fn reordering_bound(&self) -> u32 {
        u32::MAX
    }

    /// Returns `true` if the policy compares round-trip times, so that idle paths must be probed.
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
mod shortest_queue;
mod single;
mod strack;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

/// Passes the table of policies to the macro `$then`, after the tokens `$before`. A row is a policy's variant of
/// [`Kind`], its module, its name, the number of paths that it keeps busy at a time, and its description; then, where
/// it has settings, their key in [`TransportConfig`](crate::TransportConfig), their type in that module, and their
/// description.
macro_rules! policies {
    ($($then:ident)::+! $($before:tt)*) => { $($then)::+! { $($before)* {
        Single => single, "single", One, "one path for the connection's life, moved only when it dies (ECMP)";
        Oblivious => oblivious, "oblivious", All, "a random path for each unit, whatever the feedback (OBS; STELLAR, section 7.2)";
        RoundRobin => round_robin, "round-robin", All, "every open path in turn (RR; STELLAR, section 7.2)";
        Dwrr => dwrr, "dwrr", All, "turns by weights that follow each path's queueing delay (DWRR; STELLAR, section 7.2)",
            dwrr: DwrrConfig, "For the `dwrr` policy: the sharpness with which weights follow queues.";
        BestRtt => best_rtt, "best-rtt", One, "the path with the lowest smoothed round-trip time (BestRTT; STELLAR, section 7.2)";
        MpRdma => mp_rdma, "mp-rdma", All, "reuses the paths of unmarked ACKs (MP-RDMA; Lu et al., NSDI 2018)",
            mp_rdma: MpRdmaConfig, "For the `mp-rdma` policy and congestion control: the reordering they accept.";
        RttGroups => rtt_groups, "rtt-groups", TopK, "groups of packets over the top-k lowest round-trip times (BIFROST, section 4.1)";
        Hopper => hopper, "hopper", One, "one path, left when congested for one that probes found better (Nosrati and Ghaderi 2025)",
            hopper: HopperConfig, "For the `hopper` policy: the thresholds for probing and switching.";
        FlowBender => flowbender, "flowbender", One, "one path, left for a random one when over 5 % of a round trip is marked (Kabbani et al., CoNEXT 2014)",
            flowbender: FlowBenderConfig, "For the `flowbender` policy: the signs of congestion.";
        Plb => plb, "plb", One, "one path, left after congested round trips, in a pause if there is one (PLB; Qureshi et al., SIGCOMM 2022)";
        Reps => reps, "reps", All, "reuses the paths of unmarked ACKs, and only those after a timeout (REPS; Bonato et al. 2024)",
            reps: RepsConfig, "For the `reps` policy: the time it keeps to known paths after a timeout.";
        ShortestQueue => shortest_queue, "shortest-queue", TopK, "the shortest queue of four random paths in use: bytes in flight times round-trip time (JSQ; Mitzenmacher 2001)";
        Strack => strack, "strack", All, "every path in turn, passing once over each that was marked (STrack; Le et al. 2024)";
    }} };
}
pub(crate) use policies;

/// Declares what follows from the rows of [`policies`].
macro_rules! path_policies {
    ({$(
        $kind:ident => $module:ident, $name:literal, $spread:ident, $about:literal
        $(, $key:ident: $settings:ident, $doc:literal)?;
    )+}) => {
        weft_units::registry! {
            /// The name of a policy.
            #[non_exhaustive]
            pub enum Kind: "path policy" { $($kind => $name, $about;)+ }
        }

        $($(pub use $module::$settings;)?)+

        impl Kind {
            /// Returns the number of paths it keeps busy at a time.
            pub const fn spread(self) -> Spread { match self { $(Self::$kind => Spread::$spread),+ } }
            /// Creates a policy.
            pub fn build(self, config: &crate::TransportConfig) -> Policy {
                match self { $(Self::$kind => Policy::$kind($module::Policy::new(config))),+ }
            }
        }

        /// A policy by value: no allocation and no indirect call on the hot path. Policies that do more than draw or
        /// count are not inlined into it; otherwise every policy would pay for them.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum Policy {
            $(#[doc = $about] $kind($module::Policy),)+
            /// A policy that is not in the table.
            External(alloc::boxed::Box<dyn PathPolicy + Send>),
        }

        impl PathPolicy for Policy {
            #[inline]
            fn select(&mut self, paths: &Candidates<'_>, now: Instant, rng: &mut Rng) -> Option<PathId> {
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

policies!(path_policies!);

impl Kind {
    /// Returns [`Self::spread`] as a number; never zero.
    pub(crate) fn paths_in_use(self, config: &crate::TransportConfig) -> u16 {
        let paths = config.paths.max(1);
        match self.spread() {
            Spread::One => 1,
            Spread::TopK => config.top_k.clamp(1, paths),
            Spread::All => paths,
        }
    }
}
