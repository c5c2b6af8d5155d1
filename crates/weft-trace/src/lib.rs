//! What happened, written down. So far packet captures: [`pcapng::Writer`] writes the file,
//! [`Datagram`] gives a payload that never had any the headers that it travels with.
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![forbid(unsafe_code)]

mod datagram;
#[cfg(any(test, feature = "std"))]
pub mod pcapng;

pub use datagram::Datagram;
