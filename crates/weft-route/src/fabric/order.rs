//! The order of hosts in a ring: hosts behind one router are neighbours, and so are routers with the same routers above
//! them, so that as few of the ring's flows as possible cross the fabric's upper tiers (Astral, section 3.4).

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{End, Fabric, RouterId};

impl Fabric {
    /// Returns the indices of `hosts` in the order of a ring. Addresses that are none of the fabric's hosts come last.
    pub fn ring_order(&self, hosts: &[IpAddr]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..hosts.len()).collect();
        order.sort_by_cached_key(|&place| (self.position(hosts[place]), hosts[place], place));
        order
    }

    /// Returns the position of a host: the first router above its router, and its router.
    fn position(&self, address: IpAddr) -> (bool, Option<RouterId>, Option<RouterId>) {
        let links = self.host(address).map_or(&[][..], |host| self.links_of_host(host));
        let leaf = links.iter().find_map(|&link| match self.to(link) {
            End::Router(router) => Some(router),
            End::Host(_) | End::Nothing => None,
        });
        let above = leaf.and_then(|leaf| {
            let ends = self.links_of(leaf).map(|link| self.to(link));
            let routers = ends.filter_map(|end| match end {
                End::Router(router) => Some(router),
                End::Host(_) | End::Nothing => None,
            });
            routers.min()
        });
        (leaf.is_none(), above, leaf)
    }
}
