//! Two switches, tenants in memory, and a link that loses, delays and reorders.
#![expect(clippy::cast_possible_truncation, reason = "numbers of hosts and frames are small")]

mod encrypted;
mod faults;
mod flows;
mod gateway;
mod hostile;
mod hosts;
mod isolation;
mod moves;
mod plain;
mod policy;
mod threads;
mod traffic;
mod vteps;
