//! Packet captures: [`pcapng::Writer`] writes the file, and [`Datagram`] writes IP and UDP headers
//! for a payload that was captured without them. The agent and the simulator call both.
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![forbid(unsafe_code)]

mod datagram;
#[cfg(any(test, feature = "std"))]
pub mod pcapng;

pub use datagram::Datagram;
