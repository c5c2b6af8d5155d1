//! Resolution of names and services. C's allocator holds the results, so that each can be freed separately.

use core::ffi::{c_char, c_int};
use core::ptr;

use libc::{sockaddr, socklen_t};

use crate::abi::*;
use crate::address::length;
use crate::errno::{EINVAL, Errno, Outcome, status};
use crate::ibverbs::made;
use weft_verbs_abi::qp_type;

/// Returns a copy that C may free.
///
/// # Safety
/// `address` is null or points to `len` bytes.
unsafe fn copy(address: *const sockaddr, len: socklen_t) -> Outcome<*mut sockaddr> {
    if address.is_null() || len == 0 {
        return Ok(ptr::null_mut());
    }
    // SAFETY: guaranteed by the caller; there is room for any family.
    unsafe {
        let len = usize::try_from(len).map_err(|_| EINVAL)?;
        let room = made(libc::calloc(1, len.max(size_of::<libc::sockaddr_storage>())))?;
        room.cast::<u8>().copy_from_nonoverlapping(address.cast(), len);
        Ok(room.cast())
    }
}

/// Returns the program's hints with the values that follow from them.
fn wanted(hints: Option<&rdma_addrinfo>) -> rdma_addrinfo {
    // SAFETY: all-zero bytes are valid for its numbers and pointers.
    let zero: rdma_addrinfo = unsafe { core::mem::zeroed() };
    let mut wanted = hints.copied().unwrap_or(zero);
    if wanted.ai_port_space == 0 {
        let is_datagram = wanted.ai_qp_type.cast_unsigned() == qp_type::UD;
        let space = if is_datagram { port_space::UDP } else { port_space::TCP };
        wanted.ai_port_space = space.cast_signed();
    }
    if wanted.ai_qp_type == 0 {
        let is_datagram = wanted.ai_port_space.cast_unsigned() == port_space::UDP;
        let service = if is_datagram { qp_type::UD } else { qp_type::RC };
        wanted.ai_qp_type = service.cast_signed();
    }
    wanted
}

/// Asks the system's resolver for the first address.
///
/// # Safety
/// `node` and `service` are null or strings.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    wanted: &rdma_addrinfo,
) -> Outcome<(*mut sockaddr, socklen_t)> {
    // SAFETY: all-zero bytes are valid for numbers and pointers; the caller guarantees the strings.
    unsafe {
        let mut hints: libc::addrinfo = core::mem::zeroed();
        hints.ai_family = wanted.ai_family;
        hints.ai_socktype = libc::SOCK_DGRAM;
        if wanted.ai_flags & addrinfo_flag::PASSIVE != 0 {
            hints.ai_flags |= libc::AI_PASSIVE;
        }
        if wanted.ai_flags & addrinfo_flag::NUMERICHOST != 0 {
            hints.ai_flags |= libc::AI_NUMERICHOST;
        }
        let mut list = ptr::null_mut();
        let result = libc::getaddrinfo(node, service, &raw const hints, &raw mut list);
        if result != 0 {
            let errno = if result == libc::EAI_SYSTEM { Errno::last().0 } else { libc::ENODATA };
            return Err(Errno(errno));
        }
        let found = copy((*list).ai_addr, (*list).ai_addrlen).map(|it| (it, (*list).ai_addrlen));
        libc::freeaddrinfo(list);
        found
    }
}

/// # Safety
/// `node` and `service` are null or strings, `hints` is null or hints, and `to` has room for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    to: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    status(|| unsafe {
        let hints = hints.as_ref();
        if node.is_null() && service.is_null() && hints.is_none() {
            return Err(EINVAL);
        }
        let room: *mut rdma_addrinfo = made(libc::calloc(1, size_of::<rdma_addrinfo>()))?.cast();
        let resolved = resolve(node, service, &wanted(hints), &mut *room);
        match resolved {
            Ok(()) => to.write(room),
            Err(_) => rdma_freeaddrinfo(room),
        }
        resolved
    })
}

/// Writes the result of a lookup to `found`, which is all zeroes. After an error it holds the addresses copied so far.
///
/// # Safety
/// `node` and `service` are null or strings, and the addresses of `wanted` are null or have their lengths.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    wanted: &rdma_addrinfo,
    found: &mut rdma_addrinfo,
) -> Outcome<()> {
    let is_passive = wanted.ai_flags & addrinfo_flag::PASSIVE != 0;
    (found.ai_flags, found.ai_family) = (wanted.ai_flags, wanted.ai_family);
    (found.ai_qp_type, found.ai_port_space) = (wanted.ai_qp_type, wanted.ai_port_space);
    (found.ai_src_len, found.ai_dst_len) = (wanted.ai_src_len, wanted.ai_dst_len);
    // SAFETY: guaranteed by the caller; the addresses of `found` are copies.
    unsafe {
        found.ai_src_addr = copy(wanted.ai_src_addr, wanted.ai_src_len)?;
        found.ai_dst_addr = copy(wanted.ai_dst_addr, wanted.ai_dst_len)?;
        if !node.is_null() || !service.is_null() {
            let (address, len) = look_up(node, service, wanted)?;
            let (place, place_len) = if is_passive {
                (&mut found.ai_src_addr, &mut found.ai_src_len)
            } else {
                (&mut found.ai_dst_addr, &mut found.ai_dst_len)
            };
            libc::free(core::mem::replace(place, address).cast());
            *place_len = len;
        }
        find_source(found)?;
        let first = if is_passive { found.ai_src_addr } else { found.ai_dst_addr };
        if let Some(first) = first.as_ref() {
            found.ai_family = first.sa_family.into();
        }
    }
    Ok(())
}

/// Sets the missing source address to the local address that leads to the known destination: libfabric names its device
/// by it.
///
/// # Safety
/// The addresses are null or valid.
unsafe fn find_source(found: &mut rdma_addrinfo) -> Outcome<()> {
    let is_passive = found.ai_flags & addrinfo_flag::PASSIVE != 0;
    if is_passive || found.ai_dst_addr.is_null() || !found.ai_src_addr.is_null() {
        return Ok(());
    }
    // SAFETY: guaranteed by the caller.
    let to = unsafe { crate::address::of(found.ai_dst_addr) };
    let Ok(ip) = to.and_then(crate::service::source_for) else { return Ok(()) };
    let source = std::net::SocketAddr::new(ip, 0);
    let storage = crate::address::Sockaddr::from(source).0;
    found.ai_src_len = length(source);
    // SAFETY: the storage is longer than any address.
    found.ai_src_addr = unsafe { copy(ptr::from_ref(&storage).cast(), found.ai_src_len)? };
    Ok(())
}

/// # Safety
/// `found` is null or a result of `rdma_getaddrinfo` that is not used afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_freeaddrinfo(found: *mut rdma_addrinfo) {
    let mut next = found;
    // SAFETY: guaranteed by the caller.
    while let Some(found) = unsafe { next.as_ref() } {
        let this = core::mem::replace(&mut next, found.ai_next);
        // SAFETY: each part was allocated separately, or is null.
        unsafe {
            libc::free(found.ai_src_addr.cast());
            libc::free(found.ai_dst_addr.cast());
            libc::free(this.cast());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C allocator maps an address of this length by itself, and counts its bytes.
    const LONG: usize = 40 << 20;

    #[test]
    fn a_lookup_that_fails_frees_the_copies_of_the_hints() {
        let mut address = vec![0_u8; LONG];
        let hints = rdma_addrinfo {
            ai_flags: addrinfo_flag::NUMERICHOST,
            ai_src_addr: address.as_mut_ptr().cast(),
            ai_src_len: socklen_t::try_from(LONG).unwrap(),
            ai_dst_addr: address.as_mut_ptr().cast(),
            ai_dst_len: socklen_t::try_from(LONG).unwrap(),
            ..wanted(None)
        };
        // SAFETY: the function takes no pointer.
        let mapped = || unsafe { libc::mallinfo2() }.hblkhd;
        let before = mapped();
        let mut found = ptr::null_mut();
        // SAFETY: the hints' addresses have their lengths, and the name is a string.
        let outcome = unsafe {
            rdma_getaddrinfo(c"no number".as_ptr(), ptr::null(), &raw const hints, &raw mut found)
        };
        assert_eq!((outcome, Errno::last()), (-1, Errno(libc::ENODATA)));
        assert!(found.is_null());
        assert!(mapped() < before + LONG, "{} bytes are lost", mapped() - before);
    }
}
