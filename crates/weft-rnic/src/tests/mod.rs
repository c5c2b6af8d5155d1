//! Behaviour of several devices on an in-memory network, byte for byte.

mod datagrams;
mod endings;
mod holding;
mod hostile;
mod links;
mod network;
mod operations;
mod ordering;
mod pvdma;
mod receives;
mod refusals;
mod tenants;
