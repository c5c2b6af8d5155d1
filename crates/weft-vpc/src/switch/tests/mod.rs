//! Two switches, tenants in memory, and a link that loses, delays and reorders.

mod faults;
mod hosts;
mod isolation;
mod policy;
mod traffic;
