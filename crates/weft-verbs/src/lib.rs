//! A drop-in `libibverbs.so.1`: programs written for RDMA hardware run on Weft's software RNIC, without
//! being compiled again.
//!
//! [`abi`] is what programs were compiled against, `exports` the functions they call, [`device`] what
//! they find. `symbols/` says which functions there are and in which version; `cargo xtask verbs` makes
//! the library.

pub mod abi;
mod context;
pub mod device;
mod engine;
mod errno;
mod exports;
mod interfaces;
mod objects;
