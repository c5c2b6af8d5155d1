//! Names of this host's network interfaces, and NCCL's rule to select among them.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The interfaces that NCCL may use, in the syntax of `NCCL_SOCKET_IFNAME`: a comma list of prefixes; after `=` a list of whole
/// names; after `^` a list of prefixes that are excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    words: Vec<String>,
    excludes: bool,
    whole: bool,
}

impl Selection {
    /// Reads the variable's value. An empty one excludes `docker`, as NCCL does.
    pub(crate) fn parse(value: &str) -> Self {
        if value.is_empty() {
            return Self { words: vec!["docker".to_owned()], excludes: true, whole: false };
        }
        let (excludes, rest) = value.strip_prefix('^').map_or((false, value), |rest| (true, rest));
        let (whole, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        let words = rest.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Self { words, excludes, whole }
    }

    /// Returns `true` if it names the interfaces to use.
    pub(crate) const fn names_interfaces(&self) -> bool {
        !self.excludes
    }

    /// Returns `true` if NCCL may use an interface of this name.
    pub(crate) fn allows(&self, name: &CStr) -> bool {
        let name = name.to_string_lossy();
        let is_listed = self.words.iter().any(|word| match self.whole {
            true => *name == **word,
            false => name.starts_with(word.as_str()),
        });
        is_listed != self.excludes
    }
}

/// Returns the name of the interface that has each address of this host.
pub(crate) fn names() -> BTreeMap<IpAddr, CString> {
    let mut found = BTreeMap::new();
    let mut list = core::ptr::null_mut();
    // SAFETY: `list` has room for the result.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return found;
    }
    let mut next = list;
    // SAFETY: entries are valid until they are freed below, and the last one's next is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: an entry's name is a string, and its address is null or of the family in its `sa_family`.
        let (ip, name) = unsafe { (ip(entry.ifa_addr), CStr::from_ptr(entry.ifa_name)) };
        found.extend(ip.map(|ip| (ip, name.to_owned())));
    }
    // SAFETY: the list is not used any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// Returns the IP address of a socket address; `None` if it is null or of another family.
///
/// # Safety
/// `address` is null or an address of the family in its `sa_family`.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: guaranteed by the caller.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type.
            let address = unsafe { &*address.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family has this type.
            let address = unsafe { &*address.cast::<libc::sockaddr_in6>() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}
