//! Invariants watched during a run.
//!
//! Checks see what engines ask for and say, and keep their own account of what must be true. They
//! never act on the network, and a violation is a sentence with the facts.

use std::fmt::Debug;

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Event, Placement};

use crate::traffic::{ChannelId, Traffic};
use crate::world::Network;

mod accounts;
mod closure;
mod conservation;
mod exactly_once;
mod honesty;
mod marks;
mod ordering;
mod path_return;

/// Told of everything that passes between the engines and the world.
pub trait Observer: Debug + Send {
    /// `host`'s engine wants a payload placed.
    fn asked(&mut self, _host: NodeId, _placement: &Placement) {}

    /// The payload of a packet has been placed; the engine hears it next.
    fn placed(&mut self, _host: NodeId, _connection: ConnectionId, _psn: u32) {}

    /// `host`'s engine said something.
    fn heard(&mut self, _host: NodeId, _event: &Event) {}

    /// `host`'s engine restarted; these channels ended with it.
    fn restarted(&mut self, _host: NodeId, _ended: &[ChannelId], _traffic: &Traffic) {}

    /// Every violation so far, and those that only the end of a run shows.
    fn violations(&self, network: &Network) -> Vec<String>;
}

/// Declares every check once: module, name, one-line description.
macro_rules! checks {
    ($($kind:ident => $module:ident, $name:literal, $about:literal;)+) => {
        crate::registry::named_kinds! {
            /// The name of a check.
            Kind, "check", { $($kind, $name, $about;)+ }
        }

        impl Kind {
            /// A check that has seen nothing yet.
            pub fn build(self) -> Box<dyn Observer> {
                match self { $(Self::$kind => Box::new($module::Check::default())),+ }
            }
        }
    };
}

checks! {
    ExactlyOnce => exactly_once, "exactly-once", "each byte of each message is placed once, before the message is delivered";
    Ordering => ordering, "ordering", "messages are delivered whole and in order, and sent only once they are delivered";
    Conservation => conservation, "conservation", "every packet put in is delivered, lost for a reason, or on its way";
    Closure => closure, "closure", "whoever speaks to a host that restarted is told at once, and both ends of a connection end";
    PathReturn => path_return, "path-return", "a path that was taken for dead is used again once it is healed";
    Accounts => accounts, "accounts", "an engine holds the connections it told of, no more and no fewer";
    Marks => marks, "marks", "senders hear of as many congestion marks as receivers saw";
    Honesty => honesty, "honesty", "no engine refuses a packet of another as broken";
}

/// All checks at once.
#[derive(Debug)]
pub struct Checks(Vec<Box<dyn Observer>>);

impl Checks {
    /// Every check of the registry.
    pub fn all() -> Self {
        Self(Kind::ALL.iter().map(|kind| kind.build()).collect())
    }

    /// The checks that hold even where damaged headers reach the engines.
    pub fn for_hostile_links() -> Self {
        Self(vec![Kind::Conservation.build()])
    }
}

impl Observer for Checks {
    fn asked(&mut self, host: NodeId, placement: &Placement) {
        self.0.iter_mut().for_each(|check| check.asked(host, placement));
    }

    fn placed(&mut self, host: NodeId, connection: ConnectionId, psn: u32) {
        self.0.iter_mut().for_each(|check| check.placed(host, connection, psn));
    }

    fn heard(&mut self, host: NodeId, event: &Event) {
        self.0.iter_mut().for_each(|check| check.heard(host, event));
    }

    fn restarted(&mut self, host: NodeId, ended: &[ChannelId], traffic: &Traffic) {
        self.0.iter_mut().for_each(|check| check.restarted(host, ended, traffic));
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        self.0.iter().flat_map(|check| check.violations(network)).collect()
    }
}
