//! The C library's own malloc, under the names that nothing replaces.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use std::sync::OnceLock;

unsafe extern "C" {
    pub(crate) fn __libc_malloc(bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_realloc(block: *mut c_void, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_free(block: *mut c_void);
}

/// Returns the number of bytes that a block of the C library has room for.
///
/// # Safety
/// The block is the C library's.
pub(crate) unsafe fn usable_size(block: *mut c_void) -> usize {
    type UsableSize = unsafe extern "C" fn(*mut c_void) -> usize;
    static FUNCTION: OnceLock<UsableSize> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"malloc_usable_size".as_ptr()) };
        assert!(!found.is_null(), "the C library has malloc_usable_size");
        // SAFETY: this is the function's type (malloc_usable_size(3)).
        unsafe { core::mem::transmute::<*mut c_void, UsableSize>(found) }
    });
    // SAFETY: guaranteed by the caller.
    unsafe { function(block) }
}

/// The C library's malloc as an allocator of Rust.
pub(crate) struct Glibc;

// SAFETY: malloc(3) has the same contract; `memalign` aligns as requested.
unsafe impl GlobalAlloc for Glibc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the C library accepts every size and alignment.
        unsafe { __libc_memalign(layout.align(), layout.size()).cast() }
    }

    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the block is from `alloc`.
        unsafe { __libc_free(block.cast()) }
    }
}
