//! EVPN over VXLAN (RFC 7432, RFC 8365): a BGP speaker through which hosts of the overlay and ordinary VXLAN routers learn
//! each other's machines.
//!
//! [`Speaker`] has the sessions with route reflectors or routers, the routes of this host's machines, and the places of other
//! hosts' machines. It is an engine: it never reads a clock, opens a socket or starts a thread. Bytes and times come in; bytes,
//! requests for connections and changes of places go out. The daemon of `weft vpc` drives it (`weft-vswitch/src/evpn`).
//!
//! | what | where |
//! | --- | --- |
//! | the framing of messages, OPEN, NOTIFICATION | `message.rs`, `open.rs`, `notification.rs` |
//! | UPDATE, with the handling of faults | `update.rs`, `attribute.rs` |
//! | routes of machines and of hosts, route targets | `route.rs` |
//! | a session's states and timers | `session.rs` |
//! | the routes of neighbours, and the best ones | `rib.rs` |
//! | a machine of this host, and its moves | `machine.rs` |
//! | the routes of this host | `own.rs` |
//! | all together | `speaker.rs` |
//!
//! ```
//! use std::collections::{BTreeMap, BTreeSet};
//! use weft_evpn::{Action, NeighbourConfig, Speaker, SpeakerConfig};
//! use weft_units::{Duration, Instant, Seed};
//!
//! let (host, router) = ("10.1.0.2".parse()?, "10.9.0.1".parse()?);
//! let config = SpeakerConfig { asn: 65_001, router_id: "10.1.0.2".parse()?, vtep: host };
//! let mut speaker = Speaker::new(config, Seed(1));
//! let hold_time = Duration::from_secs(90);
//! let neighbour = NeighbourConfig { address: router, asn: 65_000, hold_time, max_routes: 1_000 };
//! speaker.set_neighbours(Instant::EPOCH, &[neighbour]);
//! speaker.set_networks(BTreeMap::from([(100, BTreeSet::new())]));
//! speaker.handle_timeout(Instant::EPOCH);
//! assert_eq!(speaker.poll_action(), Some(Action::Connect(router)));
//! // The owner of the socket connects, and sends the OPEN.
//! speaker.on_connected(Instant::EPOCH, router);
//! assert_eq!(speaker.output(router)[18], 1);
//! # Ok::<(), std::net::AddrParseError>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod attribute;
mod machine;
mod message;
mod notification;
mod open;
mod own;
mod reader;
mod rib;
mod route;
mod session;
mod speaker;
mod update;

pub use attribute::{Attributes, MAX_TARGETS};
pub use message::MAX_MESSAGE;
pub use notification::Notification;
pub use own::SpeakerConfig;
pub use rib::MAX_FLOODED;
pub use route::{Nlri, ParseRouteTargetError, RouteDistinguisher, RouteKey, RouteTarget};
pub use session::{NeighbourConfig, SessionCounters, State};
pub use speaker::{Action, Change, NeighbourView, Speaker};
pub use update::{Context, Update};

/// The shortest hold time but none at all (RFC 4271, section 4.2).
pub const MIN_HOLD_TIME: weft_units::Duration = weft_units::Duration::from_secs(3);

#[cfg(test)]
mod tests;
