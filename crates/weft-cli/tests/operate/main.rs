//! Real programs on Weft's messages, as `weft stat`, `weft adm` and `weft monitor` see them.
#![allow(clippy::disallowed_methods, reason = "these tests watch programs in real time")]

mod adm;
mod monitor;
mod page;
mod programs;
mod stat;
mod terminal;
mod tls;
mod top;
