//! Socket addresses of C.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::errno::{EINVAL, Errno, Outcome};

/// An address of any family.
pub(crate) struct Sockaddr(pub(crate) sockaddr_storage);

impl From<SocketAddr> for Sockaddr {
    fn from(address: SocketAddr) -> Self {
        let address = socket2::SockAddr::from(address);
        // SAFETY: the pointer refers to storage large enough for any address.
        Self(unsafe { address.as_ptr().cast::<sockaddr_storage>().read() })
    }
}

/// Returns the length of a C address, bytes.
pub(crate) fn length(address: SocketAddr) -> socklen_t {
    let bytes =
        if address.is_ipv4() { size_of::<sockaddr_in>() } else { size_of::<sockaddr_in6>() };
    socklen_t::try_from(bytes).expect("a C address is short")
}

/// Converts a C address.
///
/// # Errors
/// `EINVAL`: the pointer is null. `EAFNOSUPPORT`: the address is not an IP address.
///
/// # Safety
/// `address` is null or points to an address of the family in its `sa_family`.
pub(crate) unsafe fn of(address: *const sockaddr) -> Outcome<SocketAddr> {
    // SAFETY: guaranteed by the caller.
    let family = unsafe { address.as_ref() }.ok_or(EINVAL)?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type.
            let address = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Ok((ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family has this type.
            let address = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Ok((ip, u16::from_be(address.sin6_port)).into())
        }
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Returns the address in a `sockaddr_storage`, or `None` if it is not an IP address.
pub(crate) fn of_storage(storage: &sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: the storage is long enough for every family.
    unsafe { of(core::ptr::from_ref(storage).cast()) }.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_converted_to_c_and_back() {
        for text in ["10.1.2.3:7471", "[fd00::1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(of_storage(&Sockaddr::from(address).0), Some(address));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { of(core::ptr::null()) }, Err(EINVAL));
        // SAFETY: all-zero bytes are valid for numbers.
        let unspecified: sockaddr_storage = unsafe { core::mem::zeroed() };
        assert_eq!(of_storage(&unspecified), None);
    }
}
