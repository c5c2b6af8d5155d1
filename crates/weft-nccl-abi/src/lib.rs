//! The structures of NCCL's net plugin interface, versions 6 to 12 (NCCL 2.18 to 2.32), with their C names. A plugin exports
//! one [`ncclNet_v12_t`] or an earlier form as the symbol `ncclNetPlugin_v12`, and NCCL takes the highest version that it knows.
//!
//! [`tuner`] has those of the tuner plugin interface.
//!
//! Each version has a file; what several versions have in common is in `calls.rs` and `properties.rs`. A null function
//! pointer is `None`. `tests/layout.rs` compares sizes and offsets with constants from a C compiler.
//!
//! ```
//! use core::ffi::CStr;
//! use weft_nccl_abi::{ncclNet_v6_t, ncclNet_v12_t, symbol};
//!
//! assert_eq!(symbol(12), c"ncclNetPlugin_v12");
//! assert!(size_of::<ncclNet_v12_t>() > size_of::<ncclNet_v6_t>());
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![allow(non_snake_case, non_camel_case_types, reason = "the names are those of NCCL's headers")]
#![allow(
    missing_docs,
    reason = "NCCL's headers net_v6.h to net_v12.h and its plugin guide describe each field"
)]

use core::ffi::{CStr, c_char, c_int, c_ulong};

mod calls;
mod properties;
pub mod tuner;
mod v10;
mod v11;
mod v12;
mod v6;
mod v7;
mod v8;
mod v9;

pub use calls::*;
pub use properties::*;
pub use v6::ncclNet_v6_t;
pub use v7::ncclNet_v7_t;
pub use v8::ncclNet_v8_t;
pub use v9::ncclNet_v9_t;
pub use v10::ncclNet_v10_t;
pub use v11::ncclNet_v11_t;
pub use v12::ncclNet_v12_t;

/// The versions of the interface, the newest first, in the order in which NCCL looks for them.
pub const VERSIONS: [u8; 7] = [12, 11, 10, 9, 8, 7, 6];

/// Returns the symbol under which a plugin exports a version.
///
/// # Panics
/// Panics if `version` is not one of [`VERSIONS`].
pub const fn symbol(version: u8) -> &'static CStr {
    match version {
        6 => c"ncclNetPlugin_v6",
        7 => c"ncclNetPlugin_v7",
        8 => c"ncclNetPlugin_v8",
        9 => c"ncclNetPlugin_v9",
        10 => c"ncclNetPlugin_v10",
        11 => c"ncclNetPlugin_v11",
        12 => c"ncclNetPlugin_v12",
        _ => panic!("a version from 6 to 12"),
    }
}

/// The result of a call, `ncclResult_t`.
pub type ncclResult_t = c_int;

/// The results that net plugins return.
pub mod result {
    use super::ncclResult_t;

    pub const SUCCESS: ncclResult_t = 0;
    pub const UNHANDLED_CUDA_ERROR: ncclResult_t = 1;
    pub const SYSTEM_ERROR: ncclResult_t = 2;
    pub const INTERNAL_ERROR: ncclResult_t = 3;
    pub const INVALID_ARGUMENT: ncclResult_t = 4;
    pub const INVALID_USAGE: ncclResult_t = 5;
    pub const REMOTE_ERROR: ncclResult_t = 6;
    pub const IN_PROGRESS: ncclResult_t = 7;
}

/// Kinds of memory, as bits of `ptrSupport` and as the type of a registration.
pub mod pointer {
    use core::ffi::c_int;

    pub const HOST: c_int = 1;
    pub const CUDA: c_int = 2;
    pub const DMABUF: c_int = 4;
}

/// Size of the handle that `listen` fills in, bytes.
pub const NCCL_NET_HANDLE_MAXSIZE: usize = 128;
/// Maximum number of requests in progress on a comm. Version 6 of NCCL 2.18 has 8.
pub const NCCL_NET_MAX_REQUESTS: usize = 32;
/// The value that the request of `irecv` has before the call where NCCL can do without the completion. NCCL 2.24 and later set it
/// for receives of the protocols LL and LL128 alone, from version 9 on.
pub const NCCL_NET_OPTIONAL_RECV_COMPLETION: usize = 1;
/// Maximum size of a message on a comm of versions 6 to 8, bytes.
pub const MAX_NET_SIZE: usize = 1 << 30;
/// The traffic class of a communicator that has none.
pub const NCCL_NET_TRAFFIC_CLASS_UNDEF: c_int = -1;
/// A rail or plane that is not known.
pub const NCCL_NET_ID_UNDEF: i16 = -1;

/// The level of a line of NCCL's log.
pub mod level {
    use core::ffi::c_int;

    pub const WARN: c_int = 2;
    pub const INFO: c_int = 3;
    pub const TRACE: c_int = 5;
}

/// The subsystems of NCCL's log that concern net and tuner plugins.
pub mod subsystem {
    use core::ffi::c_ulong;

    pub const INIT: c_ulong = 0x1;
    pub const NET: c_ulong = 0x10;
    pub const TUNING: c_ulong = 0x40;
}

/// NCCL's logger: level, subsystems, file, line, and a format of printf with its arguments.
pub type ncclDebugLogger_t =
    Option<unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...)>;
