//! Unmodified programs of Debian on devices of `weft device serve`.
#![allow(clippy::disallowed_methods, reason = "these tests watch programs in real time")]

#[path = "../../../weft-verbs/tests/programs/conformance.rs"]
mod conformance;
#[path = "../../../weft-rdmacm/tests/programs/ends.rs"]
mod ends;
#[path = "../../../weft-rdmacm/tests/programs/library.rs"]
mod library;
#[path = "../../../weft-verbs/tests/programs/pair.rs"]
mod pair;

mod command;
mod daemon;
mod endings;
mod one_host;
mod two_hosts;
