//! `libweft_malloc.so.1`: the malloc of programs that `weft run --shared-memory` starts. Neighbours on the same host can
//! map its large blocks, and so access registered memory without system calls.
//!
//! Blocks from [`MIN_BYTES`] on, and those aligned to a page or more, lie in one arena: a sealed file without a
//! name, mapped shared. All other blocks are the C library's, as is every block that the arena cannot provide. The pages
//! of a freed block return to the system, except those of up to 64 MiB that are kept for the next blocks.
//!
//! A child of `fork` gets an arena of its own.

#![cfg_attr(test, allow(dead_code, reason = "unit tests run on the C library's malloc"))]

mod arena;
#[cfg(not(test))]
mod exports;
mod file;
mod fork;
mod glibc;
mod kept;
mod process;
mod ranges;

/// The shortest blocks of the arena, bytes. Each begins and ends at a page, so that shorter ones would waste more than a
/// sixteenth of their pages.
pub const MIN_BYTES: usize = 64 << 10;

/// The size of a page, bytes.
const PAGE: usize = 4096;

/// This library allocates while the arena is locked, so its own blocks are the C library's.
#[global_allocator]
static GLIBC: glibc::Glibc = glibc::Glibc;
