//! The functions of malloc(3) and posix_memalign(3).

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use crate::arena::Place;
use crate::glibc::{
    self, __libc_calloc, __libc_free, __libc_malloc, __libc_memalign, __libc_realloc,
};
use crate::{MIN_BYTES, PAGE, process};

/// # Safety
/// None: any number of bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    if bytes >= MIN_BYTES
        && let Some(block) = process::allocate(bytes, PAGE, Place::Low)
    {
        return block.start;
    }
    // SAFETY: any number of bytes.
    unsafe { __libc_malloc(bytes) }
}

/// # Safety
/// The block is one of these functions', or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    if process::contains(block) {
        process::free(block);
    } else {
        // SAFETY: it is the C library's, or null.
        unsafe { __libc_free(block) }
    }
}

/// # Safety
/// None: any numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    if let Some(total) = count.checked_mul(bytes)
        && total >= MIN_BYTES
        && let Some(block) = process::allocate(total, PAGE, Place::Low)
    {
        if !block.is_zero {
            // SAFETY: the block has room for as many bytes, and is new.
            unsafe { block.start.cast::<u8>().write_bytes(0, total) };
        }
        return block.start;
    }
    // SAFETY: any numbers; a product that overflows is refused.
    unsafe { __libc_calloc(count, bytes) }
}

/// # Safety
/// The block is one of these functions', or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    let is_in_arena = process::contains(block);
    if block.is_null() || (!is_in_arena && bytes < MIN_BYTES) {
        // SAFETY: guaranteed by the caller.
        return unsafe {
            if block.is_null() { malloc(bytes) } else { __libc_realloc(block, bytes) }
        };
    }
    if is_in_arena && bytes == 0 {
        process::free(block);
        return null_mut();
    }
    if is_in_arena && process::resize(block, bytes) {
        return block;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { move_block(block, is_in_arena, bytes) }
}

/// Moves a block, which will probably grow again, to where it can.
///
/// # Safety
/// The block is one of these functions'.
unsafe fn move_block(block: *mut c_void, is_in_arena: bool, bytes: usize) -> *mut c_void {
    let new = match process::allocate(bytes, PAGE, Place::Roomy) {
        Some(new) => new.start,
        // SAFETY: guaranteed by the caller.
        None if !is_in_arena => return unsafe { __libc_realloc(block, bytes) },
        // SAFETY: any number of bytes.
        None => unsafe { __libc_malloc(bytes) },
    };
    if !new.is_null() {
        // SAFETY: guaranteed by the caller.
        let old = unsafe { malloc_usable_size(block) };
        // SAFETY: both blocks have as many bytes, and the new one is apart.
        unsafe { new.copy_from_nonoverlapping(block, old.min(bytes)) };
        // SAFETY: the caller gives it up.
        unsafe { free(block) };
    }
    new
}

/// # Safety
/// As for [`realloc`].
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: guaranteed by the caller.
        Some(total) => unsafe { realloc(block, total) },
        None => refuse(libc::ENOMEM),
    }
}

/// # Safety
/// None: any numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    let align = align.checked_next_power_of_two().unwrap_or(align);
    if (bytes >= MIN_BYTES || align >= PAGE)
        && let Some(block) = process::allocate(bytes, align.max(PAGE), Place::Low)
    {
        return block.start;
    }
    // SAFETY: any numbers; an alignment that is too large is refused.
    unsafe { __libc_memalign(align, bytes) }
}

/// # Safety
/// None: any numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        return refuse(libc::EINVAL);
    }
    // SAFETY: any numbers.
    unsafe { memalign(align, bytes) }
}

/// # Safety
/// `block` has room for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: any numbers.
    let new = unsafe { memalign(align, bytes) };
    if new.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { block.write(new) };
    0
}

/// # Safety
/// None: any number of bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    // SAFETY: any numbers.
    unsafe { memalign(PAGE, bytes) }
}

/// # Safety
/// None: any number of bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(PAGE) {
        // SAFETY: any numbers.
        Some(bytes) => unsafe { memalign(PAGE, bytes) },
        None => refuse(libc::ENOMEM),
    }
}

/// # Safety
/// The block is one of these functions', or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if process::contains(block) {
        return process::len_of(block);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { glibc::usable_size(block) }
}

/// Returns null, with this `errno`.
fn refuse(errno: c_int) -> *mut c_void {
    // SAFETY: the location is this thread's.
    unsafe { *libc::__errno_location() = errno };
    null_mut()
}
