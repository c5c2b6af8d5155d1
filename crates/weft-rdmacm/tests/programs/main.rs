//! Tests of unmodified Debian programs that connect through the library.

#[path = "../../../weft-verbs/tests/programs/pair.rs"]
mod pair;
#[path = "../../../weft-verbs/tests/programs/two_namespaces.rs"]
mod two_namespaces;

mod compiled;
mod ends;
mod fabric;
mod library;
mod mpi;
mod one_host;
mod two_hosts;
mod ucx;
