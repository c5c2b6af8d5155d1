//! Planning for collectives: which servers follow each other in a ring, which GPUs and NICs it takes
//! inside of them, and which source ports keep its flows from sharing links. It is Astral's TCCL
//! (sections 2.2, 3.2 and 3.4), as data in and data out.
//!
//! * A [`Cluster`] is read from a description ([`cluster`]) and, for the inside of servers, from
//!   NCCL's topology XML ([`machine`]).
//! * [`ring`] orders servers by block and keeps rings and trees on their rails.
//! * [`ports`] computes the hashes of the switches and chooses the ports of all flows at once.
//! * [`collective`] writes collectives as schedules, for whoever moves bytes.
//! * [`traffic`] says which queue pairs a collective has, and [`output`] writes plans as NCCL,
//!   Open MPI and NICs take them.
//!
//! Nothing here knows of time, sockets or processes.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cluster;
pub mod collective;
pub mod machine;
pub mod output;
pub mod ports;
pub mod ring;
#[cfg(test)]
mod testing;
pub mod traffic;

pub use cluster::Cluster;
