//! Tests of two endpoints on an in-memory link.

mod balancing;
mod credit;
mod failover;
mod failure;
mod handshake;
mod hostile;
mod idle;
mod operations;
mod owner;
mod pair;
mod rates;
mod recovery;
mod repair;
mod sharing;
mod transfer;
mod trimming;
