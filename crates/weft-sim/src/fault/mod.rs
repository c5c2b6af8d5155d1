//! Faults: scheduled failures of links and hosts, and impairments of links.
//!
//! A fault is a row of a scenario. Before the run it becomes timed [`Action`]s, which the world executes. Scenarios
//! and the swarm use the same faults.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{NodeId, Topology};
use weft_units::{Duration, Rng, Seed};

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
pub use selector::{LinkSelector, ParseLinksError};

/// The error of a fault that cannot be scheduled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// A probability outside 0 to 1.
    #[error("probability is {got}, expected 0 to 1")]
    Probability {
        /// The given value.
        got: f64,
    },
    /// A selector that matches nothing.
    #[error("links {selector:?} match no link of this topology")]
    NoSuchLink {
        /// The selector.
        selector: String,
    },
    /// The busiest cable was selected for a time at which no cable has carried anything.
    #[error(
        "links \"busiest-uplink\" at 0s: nothing is busy before the run, expected a later `at`"
    )]
    NothingCarriedYet,
    /// An attack was selected, but packets are values without bytes.
    #[error("an attack needs hosts that encrypt, as the swarm's sealed worlds have")]
    NothingSealed,
    /// A node of the wrong kind.
    #[error("node {got} is not a {expected} of this topology ({range})")]
    NoSuchNode {
        /// The given node.
        got: u32,
        /// "host" or "switch".
        expected: &'static str,
        /// The valid numbers.
        range: String,
    },
}

/// The time in which a fault is in force.
#[derive(Clone, Copy, Debug)]
struct Window {
    at: Duration,
    /// Its duration; `None` lasts to the end.
    duration: Option<Duration>,
}

/// One impairment of a link; a probability of zero removes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Packets are lost.
    Loss(Chance),
    /// Packets arrive twice.
    Duplication(Chance),
    /// Packets are late.
    Reordering {
        /// Share of late packets.
        chance: Chance,
        /// Maximum delay.
        by: SimSpan,
    },
    /// Bits are flipped.
    Corruption {
        /// Share of damaged packets.
        chance: Chance,
        /// `true` if UDP checksums are in use.
        checksum: bool,
    },
    /// An attacker observes packets and attacks this share of them.
    Attack(Chance),
}

impl Change {
    /// Returns the removal of this impairment.
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

/// A change of the network at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Both directions of a cable go down.
    LinkDown(Place),
    /// Both directions of a cable come up.
    LinkUp(Place),
    /// A switch and all its cables go down.
    SwitchDown(NodeId),
    /// A switch and its cables come up.
    SwitchUp(NodeId),
    /// The impairment of one direction of a cable changes.
    Impair {
        /// The link.
        link: Place,
        /// The change.
        change: Change,
    },
    /// A host's engine restarts and forgets everything.
    Restart(NodeId),
}

impl Action {
    /// Returns the action that ends this one, if any.
    fn undo(self) -> Option<Self> {
        match self {
            Self::LinkDown(link) => Some(Self::LinkUp(link)),
            Self::SwitchDown(switch) => Some(Self::SwitchUp(switch)),
            Self::Impair { link, change } => Some(Self::Impair { link, change: change.off() }),
            Self::LinkUp(_) | Self::SwitchUp(_) | Self::Restart(_) => None,
        }
    }
}

/// The plan into which faults write their timed actions.
#[derive(Debug)]
pub struct Plan<'a> {
    topology: &'a Topology,
    rng: Rng,
    actions: Vec<(SimTime, Action)>,
    /// `true` if hosts encrypt.
    is_sealed: bool,
}

impl<'a> Plan<'a> {
    /// Returns an empty plan. `seed` decides the draws of random selectors.
    pub fn new(topology: &'a Topology, seed: Seed) -> Self {
        Self { topology, rng: seed.rng(), actions: Vec::new(), is_sealed: false }
    }

    /// Marks the plan as one for hosts that encrypt.
    #[must_use]
    pub fn of_sealed_hosts(mut self) -> Self {
        self.is_sealed = true;
        self
    }

    /// Returns the actions in order of time; those of one time in the order they were written.
    pub fn into_actions(mut self) -> Vec<(SimTime, Action)> {
        self.actions.sort_by_key(|(at, _)| *at);
        self.actions
    }

    fn at(&mut self, when: Duration, action: Action) {
        self.actions.push((SimTime::EPOCH + SimSpan::from(when), action));
    }

    /// Schedules `action` for the window's start and its opposite for the window's end.
    fn during(&mut self, window: Window, action: Action) {
        self.at(window.at, action);
        if let (Some(duration), Some(undo)) = (window.duration, action.undo()) {
            let end =
                Duration::from_nanos(window.at.as_nanos().saturating_add(duration.as_nanos()));
            self.at(end, undo);
        }
    }

    /// Returns the selected cables, each by its first direction, for a fault that begins at `at`.
    fn cables(&mut self, links: &LinkSelector, at: Duration) -> Result<Vec<Place>, FaultError> {
        let mut cables = self.directions(links, at)?;
        cables.iter_mut().for_each(|place| *place = place.cable());
        cables.dedup();
        Ok(cables)
    }

    /// Returns the selected links in every selected direction, for a fault that begins at `at`.
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
    /// Writes the fault's actions into the plan.
    ///
    /// # Errors
    /// The fault names a link or node that does not exist, or a number out of range.
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
        weft_units::registry! {
            /// The name of a fault.
            #[non_exhaustive]
            pub enum Kind: "fault" { $($kind => $name, $about;)+ }
        }

        /// A fault with its parameters; in a file, `kind` names it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
            /// Returns the fault's kind.
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
    Attack => attack, "attack", "an attacker on some links replays, reflects, changes and forges packets (the swarm's sealed worlds only)";
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
