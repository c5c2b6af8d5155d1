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
mod bounds;
mod closure;
mod conservation;
mod exactly_once;
mod genuine;
mod honesty;
mod marks;
mod ordering;
mod path_return;

/// Told of everything that passes between the engines and the world.
pub trait Observer: Debug + Send {
    /// `host`'s engine wants a payload placed.
    fn asked(&mut self, _host: NodeId, _placement: &Placement) {}

    /// A host that encrypts has opened a sealed packet, which ended in this tag.
    fn opened(&mut self, _host: NodeId, _tag: [u8; 16]) {}

    /// The payload that such a host's engine wants placed was looked at.
    fn read(&mut self, _host: NodeId, _placement: &Placement, _is_genuine: bool) {}

    /// The payload of a packet has been placed; the engine hears it next.
    fn placed(&mut self, _host: NodeId, _connection: ConnectionId, _psn: u32) {}

    /// `host`'s engine said something.
    fn heard(&mut self, _host: NodeId, _event: &Event) {}

    /// `host`'s engine restarted; these channels ended with it.
    fn restarted(&mut self, _host: NodeId, _ended: &[ChannelId], _traffic: &Traffic) {}

    /// Every violation so far, and those that only the end of a run shows.
    fn violations(&self, network: &Network) -> Vec<String>;

    /// Those of them that count even where damaged headers reached an engine.
    fn violations_despite_forgery(&self, _network: &Network) -> Vec<String> {
        Vec::new()
    }
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
    Bounds => bounds, "bounds", "payloads are placed inside their messages, whatever reaches an engine";
    Genuine => genuine, "genuine", "on encrypted connections nothing is placed but what the peer sent there, and no packet is taken in twice";
    Honesty => honesty, "honesty", "no engine refuses a packet of another as broken";
}

/// Several checks at once. Each violation begins with the name of the check that it is of.
#[derive(Debug)]
pub struct Checks(Vec<(Kind, Box<dyn Observer>)>);

impl Checks {
    /// The checks that hold where one link stays broken, whose paths do not come back, or where somebody attacks, who sets
    /// up connections that nobody asked for, by requests that he kept: their ends wait for a peer until they give up.
    pub fn holding(is_scarred: bool, is_attacked: bool) -> Self {
        let holds = |kind: &Kind| match kind {
            Kind::PathReturn => !is_scarred,
            Kind::Closure => !is_scarred && !is_attacked,
            _ => true,
        };
        Self::of(&Kind::ALL.iter().copied().filter(holds).collect::<Vec<_>>())
    }

    fn named(&self, of: impl Fn(&dyn Observer) -> Vec<String>) -> Vec<String> {
        let of_each = self.0.iter().flat_map(|(kind, check)| {
            let name = kind.name();
            of(check.as_ref()).into_iter().map(move |violation| format!("{name}: {violation}"))
        });
        of_each.collect()
    }

    fn of(kinds: &[Kind]) -> Self {
        Self(kinds.iter().map(|&kind| (kind, kind.build())).collect())
    }
}

impl Observer for Checks {
    fn asked(&mut self, host: NodeId, placement: &Placement) {
        self.0.iter_mut().for_each(|(_, check)| check.asked(host, placement));
    }

    fn opened(&mut self, host: NodeId, tag: [u8; 16]) {
        self.0.iter_mut().for_each(|(_, check)| check.opened(host, tag));
    }

    fn read(&mut self, host: NodeId, placement: &Placement, is_genuine: bool) {
        self.0.iter_mut().for_each(|(_, check)| check.read(host, placement, is_genuine));
    }

    fn placed(&mut self, host: NodeId, connection: ConnectionId, psn: u32) {
        self.0.iter_mut().for_each(|(_, check)| check.placed(host, connection, psn));
    }

    fn heard(&mut self, host: NodeId, event: &Event) {
        self.0.iter_mut().for_each(|(_, check)| check.heard(host, event));
    }

    fn restarted(&mut self, host: NodeId, ended: &[ChannelId], traffic: &Traffic) {
        self.0.iter_mut().for_each(|(_, check)| check.restarted(host, ended, traffic));
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        self.named(|check| check.violations(network))
    }

    fn violations_despite_forgery(&self, network: &Network) -> Vec<String> {
        self.named(|check| check.violations_despite_forgery(network))
    }
}
