//! The properties that fuzz targets hold, one module a crate. They live beside that crate's tests,
//! where `cargo test` runs them over mutated golden inputs; here libFuzzer looks for inputs that
//! nobody thought of.

#[path = "../../crates/weft-wire/tests/properties/mod.rs"]
pub mod wire;

#[path = "../../crates/weft-units/tests/properties/mod.rs"]
pub mod units;

#[path = "../../crates/weft-topo/tests/properties/mod.rs"]
pub mod topo;

#[path = "../../crates/weft-sim/tests/properties/mod.rs"]
pub mod sim;

#[path = "../../crates/weft-transport/tests/properties/mod.rs"]
pub mod transport;

#[path = "../../crates/weft-stat/tests/properties/mod.rs"]
pub mod stat;

#[path = "../../crates/weft-vpc/tests/properties/mod.rs"]
pub mod vpc;

#[path = "../../crates/weft-evpn/tests/properties/mod.rs"]
pub mod evpn;

#[path = "../../crates/weft-plan/tests/properties/mod.rs"]
pub mod plan;
#[path = "../../crates/weft-ports/tests/properties/mod.rs"]
pub mod ports;

#[path = "../../crates/weft-seal/tests/properties/mod.rs"]
pub mod seal;

#[path = "../../crates/weft-coll/tests/properties/mod.rs"]
pub mod coll;
#[path = "../../crates/weft-route/tests/properties/mod.rs"]
pub mod route;
#[path = "../../crates/weft-steer/tests/properties/mod.rs"]
pub mod steer;

#[path = "../../crates/weft-msg/tests/properties/mod.rs"]
pub mod msg;

/// The HTTP server, which is part of a program and not of a library.
#[allow(dead_code, unused_imports, reason = "its program calls the rest")]
#[path = "../../crates/weft-cli/src/http/mod.rs"]
pub mod http;

// What reads foreign bytes in private has its properties beside it, in modules that `cfg(fuzzing)` compiles.
pub use weft_cni::properties as cni;
pub use weft_comm::properties as comm;
pub use weft_rdmacm::properties as rdmacm;
pub use weft_stat::properties as orders;
pub use weft_verbs::properties as verbs;
pub use weft_vswitch::properties as vswitch;
