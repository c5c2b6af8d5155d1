//! A virtual switch without sockets.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(test)]
mod example;
mod frame;

pub use frame::{
    Arp, Fragment, Frame, FrameError, Icmp, Ip, Network, Tcp, TcpFlags, Transport, Udp, protocol,
};
