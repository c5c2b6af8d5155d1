//! The order of hosts in a ring: hosts behind one router are neighbours, and so are routers with the same routers above
//! them, so that as few of the ring's flows as possible cross the fabric's upper tiers (Astral, section 3.4).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::Serialize;

use super::{End, Fabric, RouterId};

/// The order of some hosts in a ring, and their blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RingOrder {
    /// The indices of the hosts, in the order of the ring.
    pub order: Vec<usize>,
    /// The number of each host's block, in the order in which the hosts were given: hosts behind one router have one number.
    pub blocks: Vec<u32>,
}

impl Fabric {
    /// Returns `hosts` in the order of a ring, and their blocks. Addresses that are none of the fabric's hosts come last, and
    /// are one block.
    pub fn ring_order(&self, hosts: &[IpAddr]) -> RingOrder {
        let positions: Vec<_> = hosts.iter().map(|&host| self.position(host)).collect();
        let mut order: Vec<usize> = (0..hosts.len()).collect();
        order.sort_by_key(|&place| (positions[place], hosts[place], place));
        let mut numbers = BTreeMap::new();
        let blocks = positions.iter().map(|&(_, _, leaf)| {
            let next = u32::try_from(numbers.len()).expect("a fabric has fewer routers");
            *numbers.entry(leaf).or_insert(next)
        });
        let blocks = blocks.collect();
        RingOrder { order, blocks }
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
