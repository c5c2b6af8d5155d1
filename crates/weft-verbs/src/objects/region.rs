//! Memory regions.

use core::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use weft_rnic::Access;

use super::domain::Domain;
use super::file_mapping::{FileMapping, PAGE};
use super::{Object, Shared};
use crate::context::Opened;
use crate::engine::Region;
use crate::errno::{EINVAL, EOPNOTSUPP, Errno, Outcome, count, number, pointer, set_errno};
use weft_verbs_abi::*;

#[repr(C)]
pub(super) struct MemoryRegion {
    public: Shared<ibv_mr>,
    opened: Arc<Opened>,
    /// The memory of a region that was registered by its file.
    mapping: Option<FileMapping>,
}

// SAFETY: the type is `repr(C)`, and begins with the structure.
unsafe impl Object for MemoryRegion {
    type Public = ibv_mr;
}

/// Rights that a device may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
const OPTIONAL: u32 = 0x3ff0_0000;

/// Converts access rights to the device's.
pub(super) fn access_of(bits: u32) -> Outcome<Access> {
    if bits & access::ON_DEMAND != 0 {
        return Err(EOPNOTSUPP);
    }
    // Huge pages are a hint, and no memory is pinned.
    let ignored = (OPTIONAL & !access::RELAXED_ORDERING) | access::HUGETLB;
    Access::from_bits(bits & !ignored).ok_or(EINVAL)
}

/// Returns `true` if all of the range is mapped. Hardware would pin it now and refuse unmapped pages.
fn is_mapped(address: usize, length: usize) -> bool {
    const PAGE: usize = 4096;
    let start = address & !(PAGE - 1);
    let Some(length) = length.checked_add(address - start) else { return false };
    let start = core::ptr::with_exposed_provenance_mut(start);
    // SAFETY: with MS_ASYNC it examines the mapping and accesses no memory (msync(2)).
    length == 0 || unsafe { libc::msync(start, length, libc::MS_ASYNC) } == 0
}

/// # Safety
/// `pd` is allocated.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    bits: u32,
    mapping: Option<FileMapping>,
) -> Outcome<*mut ibv_mr> {
    // SAFETY: guaranteed by the caller.
    let domain = unsafe { Domain::of(pd) };
    let access = access_of(bits)?;
    let (address, bytes) = place(addr, length)?;
    let region = Region { address, length: bytes, iova, access };
    let key = domain.opened.engine.register(domain.number, region)?;
    // SAFETY: guaranteed by the caller.
    let context = unsafe { (*pd).context };
    let public = ibv_mr { context, pd, addr, length, handle: key, lkey: key, rkey: key };
    let (public, opened) = (Shared::new(public), domain.opened.clone());
    Ok(MemoryRegion { public, opened, mapping }.publish())
}

/// Checks that a range is mapped. Returns its address and its length, bytes: from here on memory is identified by
/// number.
///
/// # Errors
/// `EFAULT` if a part of it is not mapped.
fn place(addr: *mut c_void, length: usize) -> Outcome<(u64, u64)> {
    let address = addr.expose_provenance();
    if !is_mapped(address, length) {
        return Err(Errno(libc::EFAULT));
    }
    Ok((address as u64, length as u64))
}

/// # Safety
/// `pd` is allocated.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller.
    pointer(|| unsafe {
        register(pd, addr, length, addr.addr() as u64, access.cast_unsigned(), None)
    })
}

/// # Safety
/// `pd` is allocated.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller.
    pointer(|| unsafe { register(pd, addr, length, iova, access.cast_unsigned(), None) })
}

/// # Safety
/// `pd` is allocated.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller.
    pointer(|| unsafe { register(pd, addr, length, iova, access, None) })
}

/// The rights that a region of a file may have (ibv_reg_mr(3)).
const RIGHTS_OF_FILES: u32 = access::LOCAL_WRITE
    | access::REMOTE_WRITE
    | access::REMOTE_READ
    | access::REMOTE_ATOMIC
    | OPTIONAL;

/// # Safety
/// `pd` is allocated.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let bits = access.cast_unsigned();
    pointer(|| {
        if bits & !RIGHTS_OF_FILES != 0 || iova % PAGE != offset % PAGE {
            return Err(EINVAL);
        }
        access_of(bits)?;
        let mapping = FileMapping::new(fd, offset, length, bits & access::LOCAL_WRITE != 0)?;
        let place = usize::try_from(offset).map_err(|_| EINVAL)?;
        // SAFETY: guaranteed by the caller.
        let mr = unsafe { register(pd, mapping.address(), length, iova, bits, Some(mapping))? };
        // As rdma-core has it, `addr` is the offset in the file.
        // SAFETY: the program has no pointer to it yet.
        unsafe { (*mr).addr = core::ptr::without_provenance_mut(place) };
        Ok(mr)
    })
}

/// The changes of `ibv_rereg_mr`, and its errors.
mod rereg {
    pub(super) const TRANSLATION: i32 = 1;
    pub(super) const PD: i32 = 1 << 1;
    pub(super) const ACCESS: i32 = 1 << 2;
    pub(super) const ERR_INPUT: i32 = -1;
    pub(super) const ERR_CMD: i32 = -4;
}

/// # Safety
/// `mr` is registered, and `pd` is allocated if it is to change.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let given = |flag| flags & flag != 0;
    // SAFETY: guaranteed by the caller.
    let is_of_file = unsafe { MemoryRegion::of(mr) }.mapping.is_some();
    if flags & !(rereg::TRANSLATION | rereg::PD | rereg::ACCESS) != 0 || flags == 0 || is_of_file {
        set_errno(EINVAL);
        return rereg::ERR_INPUT;
    }
    let changed = count(|| {
        // SAFETY: guaranteed by the caller.
        let (object, key) = unsafe { (MemoryRegion::of(mr), (*mr).lkey) };
        // SAFETY: guaranteed by the caller.
        let domain = given(rereg::PD).then(|| unsafe { Domain::of(pd) }.number);
        let place = if given(rereg::TRANSLATION) { Some(place(addr, length)?) } else { None };
        let rights = given(rereg::ACCESS).then(|| access_of(access.cast_unsigned())).transpose()?;
        object.opened.engine.reregister(key, domain, place, rights)?;
        // SAFETY: guaranteed by the caller.
        let public = unsafe { &mut *mr };
        if given(rereg::PD) {
            public.pd = pd;
        }
        if given(rereg::TRANSLATION) {
            (public.addr, public.length) = (addr, length);
        }
        Ok(0)
    });
    if changed == 0 { 0 } else { rereg::ERR_CMD }
}

/// # Safety
/// `mr` is registered.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let (region, key) = unsafe { (MemoryRegion::of(mr), (*mr).lkey) };
        region.opened.engine.deregister(key)?;
        // SAFETY: nothing uses it any more, and the caller gives it up.
        drop(unsafe { MemoryRegion::take(mr) });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmapped_memory_is_detected() {
        let bytes = [0_u8; 100];
        let address = bytes.as_ptr().expose_provenance();
        assert!(is_mapped(address, bytes.len()));
        assert!(!is_mapped(0x1000, 10));
        assert!(!is_mapped(address, usize::MAX - 5));
    }

    #[test]
    fn optional_rights_are_ignored_and_unknown_ones_refused() {
        assert_eq!(access_of(1 << 28 | access::LOCAL_WRITE), Ok(Access::LOCAL_WRITE));
        assert_eq!(access_of(1 << 12), Err(EINVAL));
        assert_eq!(access_of(access::ON_DEMAND), Err(EOPNOTSUPP));
    }
}
