//! The network as data: topologies, routes, and the hashes that choose among them.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod hash;
