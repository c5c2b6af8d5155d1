//! Addresses of this host's interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// An address of this host, and the interface that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    pub(crate) interface: u32,
    /// The MTU there, with the IP header, bytes.
    pub(crate) mtu: u32,
}

/// Returns every address of every interface that is up, except link-local ones: they are valid only with an interface,
/// which a GID does not name.
pub(crate) fn addresses() -> Vec<Address> {
    let mut list = core::ptr::null_mut();
    // SAFETY: `list` has room for the result.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: entries are valid until they are freed below, and the last one's next is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as libc::c_uint == 0 {
            continue;
        }
        // SAFETY: an entry's name is a string, and its address is null or of the family in its `sa_family`.
        let (ip, interface, mtu) = unsafe {
            (ip(entry.ifa_addr), libc::if_nametoindex(entry.ifa_name), mtu(entry.ifa_name))
        };
        found.extend(ip.map(|ip| Address { ip, interface, mtu }));
    }
    // SAFETY: the list is not used any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// Returns the name of an interface, if there is one with this number.
pub(crate) fn name(interface: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: there is room for the longest name.
    let found = unsafe { libc::if_indextoname(interface, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the kernel wrote a string.
    let name = unsafe { core::ffi::CStr::from_ptr(name.as_ptr()) };
    name.to_str().ok().map(ToOwned::to_owned)
}

/// Returns the MTU of an interface, bytes; a large number if it is unknown.
///
/// # Safety
/// `name` is a string.
unsafe fn mtu(name: *const libc::c_char) -> u32 {
    let Ok(socket) = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) else { return u32::MAX };
    // SAFETY: all-zero bytes are valid for numbers and pointers; the kernel reads the name and writes the MTU.
    let mtu = unsafe {
        let mut request: libc::ifreq = core::mem::zeroed();
        libc::strncpy(request.ifr_name.as_mut_ptr(), name, request.ifr_name.len() - 1);
        let asked = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request);
        (asked == 0).then_some(request.ifr_ifru.ifru_mtu)
    };
    mtu.and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or(u32::MAX)
}

/// Returns the IP address of a socket address; `None` if it is null, link-local or of another family.
///
/// # Safety
/// `address` is null or an address of the family in its `sa_family`.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: guaranteed by the caller.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type.
            let address = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family has this type.
            let address = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            (!ip.is_unicast_link_local()).then_some(ip.into())
        }
        _ => None,
    }
}
