//! Addresses of both families as numbers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address as a number; tables are ranges of it.
pub(crate) trait Address: Copy + Ord + Default {
    /// Converts an address; `None` if it is of the other family.
    fn of(address: IpAddr) -> Option<Self>;
    /// Returns the address as [`IpAddr`].
    fn ip(self) -> IpAddr;
    /// Returns the next address; `None` after the last.
    fn next(self) -> Option<Self>;
}

impl Address for u32 {
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(it) => Some(it.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn ip(self) -> IpAddr {
        Ipv4Addr::from_bits(self).into()
    }

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Address for u128 {
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(it) => Some(it.to_bits()),
        }
    }

    fn ip(self) -> IpAddr {
        Ipv6Addr::from_bits(self).into()
    }

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}
