//! `libnccl-net-weft.so`: a net plugin for NCCL 2.18 to 2.32, whose messages travel on Weft's device. The device is the one of
//! `weft-verbs`, linked into this library: embedded in the process, or a daemon's (`WEFT_DEVICE`).
//!
//! NCCL looks up `ncclNetPlugin_v12` or an earlier version's symbol ([`weft_nccl_abi`]). `exports` has the structure of each
//! version; all call `plugin`, which works in version 12's terms. `meet` opens connections, and `comm` carries messages on
//! them. `cargo xtask nccl` links the library; `docs/design/nccl.md` has the reasons.

mod comm;
mod device;
mod exports;
mod failure;
mod handle;
mod interfaces;
mod log;
mod meet;
mod plugin;
mod tuner;
mod verbs;
