//! The properties that fuzz targets hold, one module a crate. They live beside that crate's tests,
//! where `cargo test` runs them over mutated golden inputs; here libFuzzer looks for inputs that
//! nobody thought of.

#[path = "../../crates/weft-wire/tests/properties/mod.rs"]
pub mod wire;
