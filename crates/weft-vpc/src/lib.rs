//! A virtual switch without sockets.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
mod example;
mod frame;
mod switch;
pub mod offload;

pub use frame::{
    Arp, Fragment, Frame, FrameError, Icmp, Ip, Network, Tcp, TcpFlags, Transport, Udp, protocol,
};
pub use switch::{
    DropCause, Leaving, NetworkConfig, PairView, Place, Plain, PortConfig, PortId, Reading, Slot,
    Switch, SwitchConfig, SwitchCounters, Tenants, Token, Turn, Vni,
};
pub use offload::{Offload, OffloadError};
