//! Unmodified programs of Debian find each other through the library.

#[path = "../../../weft-verbs/tests/programs/pair.rs"]
mod pair;

mod ends;
mod library;
mod one_host;
mod two_hosts;
mod ucx;
