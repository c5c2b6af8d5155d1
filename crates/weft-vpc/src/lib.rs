//! A virtual switch without sockets: tenants' frames, the policies that allow them, and the offloads.
//! `weft-vswitch` and `weft-sim` call it; it never knows sockets or the clock.
//!
//! ```
//! use weft_vpc::{Acl, AclConfig, Action, Direction, Frame, Sets};
//! # use weft_wire::{Ecn, EtherType, EthernetHeader, Ipv4Header, Ipv4Options, MacAddr, U6, U13, UdpHeader};
//! # fn udp(destination: u16) -> Vec<u8> {
//! #     let mut bytes = vec![0; EthernetHeader::LEN + 20 + UdpHeader::LEN];
//! #     let (destination_mac, source) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
//! #     EthernetHeader { destination: destination_mac, source, ethertype: EtherType::IPV4 }.emit(&mut bytes);
//! #     Ipv4Header {
//! #         dscp: U6::default(), ecn: Ecn::NotCapable, payload_len: 8, identification: 0, dont_fragment: true,
//! #         more_fragments: false, fragment_offset: U13::default(), ttl: 64, protocol: 17,
//! #         source: [192, 168, 7, 1].into(), destination: [192, 168, 7, 2].into(), options: Ipv4Options::NONE,
//! #     }.emit(&mut bytes[EthernetHeader::LEN..]);
//! #     UdpHeader { source_port: 5000, destination_port: destination, payload_len: 0, checksum: 0 }
//! #         .emit(&mut bytes[EthernetHeader::LEN + 20..]);
//! #     bytes
//! # }
//!
//! // The tenant may receive DNS and nothing else.
//! let config = AclConfig {
//!     name: "edge".into(),
//!     default: Action::Deny,
//!     rules: vec!["allow ingress udp from 192.168.0.0/16 to any port 53".parse()?],
//! };
//! let mut acl = Acl::new(&config, &Sets::default())?;
//! let mut action = |port| -> Result<Action, Box<dyn std::error::Error>> {
//!     let frame = udp(port);
//!     Ok(acl.evaluate(Direction::Ingress, &Frame::parse(&frame, frame.len())?).action)
//! };
//! assert_eq!((action(53)?, action(22)?), (Action::Allow, Action::Deny));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod acl;
mod connections;
mod direction;
#[cfg(test)]
mod example;
mod flow_log;
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
pub use flow_log::{Flow, FlowLogConfig, FlowRecord};
pub use frame::{
    Arp, Fragment, Frame, FrameError, Icmp, Ip, Network, Tcp, TcpFlags, Transport, Udp, protocol,
};
pub use gateway::{GATEWAY, Hop};
pub use limit::{Dropped, Limit, LimitError, Limiter};
pub use offload::{Offload, OffloadError};
pub use policies::{Policies, PoliciesError, PortPolicies};
pub use prefix::{ParsePrefixError, Prefix, PrefixMap};
pub use rule::{Action, Ends, Net, ParseRuleError, Ports, Rule, RuleError};
pub use security_group::{
    Pass, Refusal, SecurityGroupConfig, SecurityGroupCounters, SecurityGroups,
};
pub use source_guard::SourceGuard;
pub use switch::{
    DropCause, Elsewhere, Handover, HandoverCounters, InClear, Inbound, Keys, Leaving,
    NetworkConfig, PairView, Place, Plain, PortConfig, PortFlow, PortId, Presence, Reading, Slot,
    Staging, Switch, SwitchConfig, SwitchCounters, TenantFrame, Tenants, Token, Turn, Vni,
};
pub use table::{Entry, Table, TableConfig, TableCounters};
