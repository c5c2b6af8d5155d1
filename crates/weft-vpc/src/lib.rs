//! A virtual switch without sockets: tenants' frames, the policies that allow them, and the offloads.
//! `weft-vswitch` and `weft-sim` call it; it never knows sockets or the clock.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod acl;
mod connections;
mod direction;
#[cfg(test)]
mod example;
mod frame;
pub mod gateway;
mod limit;
mod neighbour;
pub mod offload;
mod policies;
mod prefix;
mod rule;
mod security_group;
mod source_guard;
mod switch;
mod table;

pub use acl::{Acl, AclConfig, AclError, Decision, Explanation, Sets};
pub use connections::ConnectionsConfig;
pub use direction::Direction;
pub use frame::{
    Arp, Fragment, Frame, FrameError, Icmp, Ip, Network, Tcp, TcpFlags, Transport, Udp, protocol,
};
pub use gateway::{GATEWAY, Hop};
pub use limit::{Limit, LimitError, Limiter};
pub use offload::{Offload, OffloadError};
pub use policies::{Policies, PoliciesError, PortPolicies};
pub use prefix::{ParsePrefixError, Prefix, PrefixMap};
pub use rule::{Action, Ends, Net, ParseRuleError, Ports, Rule, RuleError};
pub use security_group::{
    Pass, Refusal, SecurityGroupConfig, SecurityGroupCounters, SecurityGroups,
};
pub use source_guard::SourceGuard;
pub use switch::{
    DropCause, Elsewhere, HandedOver, Handover, InClear, Keys, Leaving, NetworkConfig, PairView,
    Place, Plain, PortConfig, PortId, Reading, Slot, Staging, Switch, SwitchConfig, SwitchCounters,
    Tenants, Token, Turn, Vni,
};
pub use table::{Table, TableConfig, TableCounters};
