//! Invariants watched during a run.
//!
//! Checks observe the engines' requests and events, and keep their own account of the correct state. They never act on
//! the network. A violation is a sentence with the facts.

use weft_topo::NodeId;
use weft_transport::{ConnectionId, Event, Placement};

use crate::traffic::{ChannelId, Traffic};
use crate::world::Network;
pub use crate::world::Observer;

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

/// Declares every check once: module, name, one-line description.
macro_rules! checks {
    ($($kind:ident => $module:ident, $name:literal, $about:literal;)+) => {
        weft_units::registry! {
            /// The name of a check.
            #[non_exhaustive]
            pub enum Kind: "check" { $($kind => $name, $about;)+ }
        }

        impl Kind {
            /// Creates a check in its initial state.
            pub fn build(self) -> Box<dyn Observer> {
                match self { $(Self::$kind => Box::new($module::Check::default())),+ }
            }
        }
    };
}

checks! {
    ExactlyOnce => exactly_once, "exactly-once", "each byte of each message is placed once, before the message is delivered";
    Ordering => ordering, "ordering", "messages are delivered whole and in order, and sent only once they are delivered";
    Conservation => conservation, "conservation", "every packet sent is delivered, lost for a counted reason, or in flight";
    Closure => closure, "closure", "a peer that sends to a restarted host is notified immediately, and both ends of a connection close";
    PathReturn => path_return, "path-return", "a path that was declared down is used again after its repair";
    Accounts => accounts, "accounts", "an engine holds exactly the connections that it has reported";
    Marks => marks, "marks", "senders are notified of as many congestion marks as receivers counted";
    Bounds => bounds, "bounds", "payloads are placed inside their messages, whatever reaches an engine";
    Genuine => genuine, "genuine", "on encrypted connections only payload that the peer sent is placed, and no packet is accepted twice";
    Honesty => honesty, "honesty", "no engine refuses a packet of another engine as malformed";
}

/// Several checks at once. Each violation begins with the name of its check.
#[derive(Debug)]
pub struct Checks(Vec<(Kind, Box<dyn Observer>)>);

impl Checks {
    /// Returns the checks that hold if one link stays broken, whose paths do not come up again, or if an attacker
    /// replays requests and so sets up connections that no host requested: their ends wait for a peer until they time
    /// out.
    pub fn holding(has_broken_link: bool, is_attacked: bool) -> Self {
        let holds = |kind: &Kind| match kind {
            Kind::PathReturn => !has_broken_link,
            Kind::Closure => !has_broken_link && !is_attacked,
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
    fn on_place(&mut self, host: NodeId, placement: &Placement) {
        self.0.iter_mut().for_each(|(_, check)| check.on_place(host, placement));
    }

    fn on_opened(&mut self, host: NodeId, tag: [u8; 16]) {
        self.0.iter_mut().for_each(|(_, check)| check.on_opened(host, tag));
    }

    fn on_payload_read(&mut self, host: NodeId, placement: &Placement, is_genuine: bool) {
        self.0.iter_mut().for_each(|(_, check)| check.on_payload_read(host, placement, is_genuine));
    }

    fn on_placed(&mut self, host: NodeId, connection: ConnectionId, psn: u32) {
        self.0.iter_mut().for_each(|(_, check)| check.on_placed(host, connection, psn));
    }

    fn on_event(&mut self, host: NodeId, event: &Event) {
        self.0.iter_mut().for_each(|(_, check)| check.on_event(host, event));
    }

    fn on_restart(&mut self, host: NodeId, ended: &[ChannelId], traffic: &Traffic) {
        self.0.iter_mut().for_each(|(_, check)| check.on_restart(host, ended, traffic));
    }

    fn violations(&self, network: &Network) -> Vec<String> {
        self.named(|check| check.violations(network))
    }

    fn violations_despite_forgery(&self, network: &Network) -> Vec<String> {
        self.named(|check| check.violations_despite_forgery(network))
    }
}
