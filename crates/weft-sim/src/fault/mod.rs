//! What goes wrong: scheduled failures of links and hosts, and links that fail packets by chance.
//!
//! A fault is a row of a scenario. Before the run it is turned into dated [`Action`]s; the world
//! carries them out. The same faults serve scenarios and the swarm.

use serde::{Deserialize, Serialize};
use weft_topo::{NodeId, Topology};
use weft_units::{Duration, Rng, Seed};

use crate::registry::named_kinds;
use crate::time::{SimSpan, SimTime};

pub mod attack;
mod corruption;
mod duplication;
mod flap;
pub mod impairment;
mod link_down;
mod loss;
mod place;
mod reordering;
mod restart;
mod selector;
mod switch_down;

pub use impairment::Chance;
pub use place::Place;
pub(crate) use place::busiest;
pub use selector::LinkSelector;

/// Why a fault cannot be scheduled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// A probability outside 0 to 1.
    #[error("probability is {got}, expected 0 to 1")]
    Probability {
        /// What it is.
        got: f64,
    },
    /// A selector that matches nothing.
    #[error("links {selector:?} match no link of this topology")]
    NoSuchLink {
        /// The selector.
        selector: String,
    },
    /// The busiest cable, before any has carried anything.
    #[error(
        "links \"busiest-uplink\" at 0s: nothing is busy before the run, expected a later `at`"
    )]
    NothingCarriedYet,
    /// Packets are values, which nobody can forge byte for byte.
    #[error("an attack needs hosts that encrypt, as the swarm's sealed worlds have")]
    NothingSealed,
    /// A node that is not what the fault needs.
    #[error("node {got} is not a {expected} of this topology ({range})")]
    NoSuchNode {
        /// What was named.
        got: u32,
        /// "host" or "switch".
        expected: &'static str,
        /// Which numbers are.
        range: String,
    },
}

/// When a fault is in force.
#[derive(Clone, Copy, Debug)]
struct Window {
    at: Duration,
    /// Without it, to the end.
    duration: Option<Duration>,
}

/// One way in which a link fails packets, switched on or, with a chance of zero, off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Packets are lost.
    Loss(Chance),
    /// Packets arrive twice.
    Duplication(Chance),
    /// Packets are late.
    Reordering {
        /// How many.
        chance: Chance,
        /// How late at most.
        by: SimSpan,
    },
    /// Bits are flipped.
    Corruption {
        /// In how many packets.
        chance: Chance,
        /// Whether UDP checksums are used.
        checksum: bool,
    },
    /// Somebody looks at packets, and strikes at so many of them.
    Attack(Chance),
}

impl Change {
    /// The same way, off.
    fn off(self) -> Self {
        let never = Chance::default();
        match self {
            Self::Loss(_) => Self::Loss(never),
            Self::Duplication(_) => Self::Duplication(never),
            Self::Reordering { by, .. } => Self::Reordering { chance: never, by },
            Self::Corruption { .. } => Self::Corruption { chance: never, checksum: true },
            Self::Attack(_) => Self::Attack(never),
        }
    }
}

/// Something that happens to the network at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Both directions of a cable go down.
    LinkDown(Place),
    /// They come back.
    LinkUp(Place),
    /// A switch and all its cables go down.
    SwitchDown(NodeId),
    /// They come back.
    SwitchUp(NodeId),
    /// One direction of a cable gets better or worse.
    Impair {
        /// Which.
        link: Place,
        /// How.
        change: Change,
    },
    /// A host's engine forgets everything.
    Restart(NodeId),
}

impl Action {
    /// What ends it, if anything does.
    fn undo(self) -> Option<Self> {
        match self {
            Self::LinkDown(link) => Some(Self::LinkUp(link)),
            Self::SwitchDown(switch) => Some(Self::SwitchUp(switch)),
            Self::Impair { link, change } => Some(Self::Impair { link, change: change.off() }),
            Self::LinkUp(_) | Self::SwitchUp(_) | Self::Restart(_) => None,
        }
    }
}

/// Where faults write what they do and when.
#[derive(Debug)]
pub struct Plan<'a> {
    topology: &'a Topology,
    rng: Rng,
    actions: Vec<(SimTime, Action)>,
    /// Hosts encrypt.
    is_sealed: bool,
}

impl<'a> Plan<'a> {
    /// An empty plan. `seed` decides what selectors that draw choose.
    pub fn new(topology: &'a Topology, seed: Seed) -> Self {
        Self { topology, rng: seed.rng(), actions: Vec::new(), is_sealed: false }
    }

    /// The same for hosts that encrypt.
    #[must_use]
    pub fn of_sealed_hosts(mut self) -> Self {
        self.is_sealed = true;
        self
    }

    /// The actions in order of time; those of one moment in the order they were written.
    pub fn into_actions(mut self) -> Vec<(SimTime, Action)> {
        self.actions.sort_by_key(|(at, _)| *at);
        self.actions
    }

    fn at(&mut self, when: Duration, action: Action) {
        self.actions.push((SimTime::EPOCH + SimSpan::from(when), action));
    }

    /// `action` at the window's start and what undoes it at its end.
    fn during(&mut self, window: Window, action: Action) {
        self.at(window.at, action);
        if let (Some(duration), Some(undo)) = (window.duration, action.undo()) {
            let end =
                Duration::from_nanos(window.at.as_nanos().saturating_add(duration.as_nanos()));
            self.at(end, undo);
        }
    }

    /// The selected cables, each by its first direction, for a fault that begins at `at`.
    fn cables(&mut self, links: &LinkSelector, at: Duration) -> Result<Vec<Place>, FaultError> {
        let mut cables = self.directions(links, at)?;
        cables.iter_mut().for_each(|place| *place = place.cable());
        cables.dedup();
        Ok(cables)
    }

    /// The selected links in every direction the selector means, for a fault that begins at `at`.
    fn directions(&mut self, links: &LinkSelector, at: Duration) -> Result<Vec<Place>, FaultError> {
        if *links == LinkSelector::BusiestUplink && at == Duration::ZERO {
            return Err(FaultError::NothingCarriedYet);
        }
        links.select(self.topology, &mut self.rng)
    }

    fn check_node(&self, got: u32, host: bool) -> Result<NodeId, FaultError> {
        let (hosts, nodes) = (self.topology.hosts(), self.topology.nodes());
        let range = if host { 0..hosts } else { hosts..nodes };
        if range.contains(&got) {
            return Ok(NodeId(got));
        }
        let expected = if host { "host" } else { "switch" };
        Err(FaultError::NoSuchNode { got, expected, range: format!("{range:?}") })
    }
}

/// A kind of fault.
pub trait Scheduler {
    /// Writes what it does into the plan.
    ///
    /// # Errors
    /// It names a link or node that does not exist, or a number out of range.
    fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError>;
}

fn probability(got: f64) -> Result<Chance, FaultError> {
    if (0.0..=1.0).contains(&got) {
        Ok(Chance::new(got))
    } else {
        Err(FaultError::Probability { got })
    }
}

/// Declares every fault once: module, name, one-line description.
macro_rules! faults {
    ($($kind:ident => $module:ident, $name:literal, $about:literal;)+) => {
        named_kinds! {
            /// The name of a fault.
            Kind, "fault", { $($kind, $name, $about;)+ }
        }

        /// A fault with its parameters; in a file, `kind` names it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        #[non_exhaustive]
        pub enum FaultConfig {
            $(#[doc = $about] #[serde(rename = $name)] $kind($module::Fault)),+
        }

        impl Scheduler for FaultConfig {
            fn schedule(&self, plan: &mut Plan<'_>) -> Result<(), FaultError> {
                match self { $(Self::$kind(fault) => fault.schedule(plan)),+ }
            }
        }

        impl FaultConfig {
            /// Its name.
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind),+ }
            }
        }
    };
}

faults! {
    LinkDown => link_down, "link-down", "cables go down, for a while or for good";
    Flap => flap, "flap", "cables go down and come back, again and again";
    SwitchDown => switch_down, "switch-down", "a switch goes down with all its cables";
    Loss => loss, "loss", "packets on some links are lost by chance";
    Duplication => duplication, "duplication", "packets on some links arrive twice by chance";
    Reordering => reordering, "reordering", "packets on some links arrive late by chance";
    Corruption => corruption, "corruption", "bits of packets on some links are flipped by chance";
    Restart => restart, "restart", "a host's engine restarts and forgets its connections";
    Attack => attack, "attack", "somebody on some links replays, reflects, changes and makes up packets (the swarm's sealed worlds only)";
}

pub use attack::Fault as Attack;
pub use corruption::Fault as Corruption;
pub use duplication::Fault as Duplication;
pub use flap::Fault as Flap;
pub use link_down::Fault as LinkDown;
pub use loss::Fault as Loss;
pub use reordering::Fault as Reordering;
pub use restart::Fault as Restart;
pub use switch_down::Fault as SwitchDown;
