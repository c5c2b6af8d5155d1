//! Helpers of this crate's tests: namespaces, and a network between two ports that loses and
//! reorders.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::disallowed_methods, reason = "real tenants live in real time")]

pub(crate) mod front_end;
pub(crate) mod guest;
pub(crate) mod namespace;
pub(crate) mod network;
pub(crate) mod packed;
pub(crate) mod wire;
