//! Prefetch instructions for memory that the caller reads soon.

const CACHE_LINE: usize = 64;

/// Starts to fetch the cache line of `value`'s first byte and does not wait for it. It affects only timing; on
/// processors other than x86-64 and AArch64 it does nothing.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_line(core::ptr::from_ref(value).cast());
}

/// Starts to fetch every cache line of `value` and does not wait for them; see [`prefetch`].
#[inline(always)]
pub fn prefetch_all<T>(value: &T) {
    let first = core::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(CACHE_LINE) {
        prefetch_line(first.wrapping_add(offset));
    }
    // A value that starts inside a line may end one line later, unless its alignment is a whole line or its own size.
    if align_of::<T>() < CACHE_LINE.min(size_of::<T>()) {
        prefetch_line(first.wrapping_add(size_of::<T>().saturating_sub(1)));
    }
}

#[inline(always)]
#[expect(unsafe_code, reason = "the instruction takes an address")]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect that the program can observe, also at an address that is not mapped.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefetch_does_not_change_values() {
        let values = [[7u64; 32]; 4];
        prefetch(&values[1]);
        prefetch_all(&values);
        prefetch("");
        assert_eq!(values, [[7; 32]; 4]);
    }
}
