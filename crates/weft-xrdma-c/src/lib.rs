//! X-RDMA for C and C++: `libxrdma.so.1`, its header `include/xrdma.h` and its manual pages, both written from the
//! comments here (`cargo xtask docs`). Contexts belong to one thread of the program, so nothing here locks.
//!
//! | subject | file |
//! | --- | --- |
//! | functions of the header | `exports/` |
//! | its structures | `types.rs` |
//! | a context: a `weft_xrdma::Node`, its events and memory for the program | `context.rs` |
//! | handles that cannot dangle | `handle.rs`, `tables.rs` |
//! | errors and panics as error numbers of C | `failure.rs` |
//!
//! `examples/ping_pong.c` is a program in C. A handle that no longer exists gives an error, not a crash:
//!
//! ```
//! use std::ffi::CStr;
//!
//! let closed = xrdma::xrdma_close(core::ptr::null_mut());
//! assert_eq!(closed, -libc::EINVAL);
//! // SAFETY: the text stays until the thread's next call that fails.
//! let why = unsafe { CStr::from_ptr(xrdma::xrdma_last_error()) };
//! assert!(!why.is_empty());
//! ```

#![allow(non_camel_case_types, reason = "names as C has them")]
#![allow(
    clippy::missing_safety_doc,
    reason = "all have the conditions that the header's first comment states"
)]

mod context;
mod exports;
mod failure;
mod handle;
mod tables;
mod types;

pub use exports::*;
pub use types::*;
