//! The routes that a route controller installs for single hosts, in addition to the control plane's routes
//! for groups of hosts.

use alloc::vec::Vec;

use super::{RouteError, Routes, index_of};
use crate::graph::{LinkId, NodeId, narrow};

impl Routes {
    /// Installs a host route: from now on `switch` sends packets for `destination` on `links`, in this
    /// order. The host gets a group of its own, so the cost of a lookup does not change.
    ///
    /// # Errors
    /// Returns `TooManyAreas` if the host needs an area of its own and there are [`Self::MAX_AREAS`]; nothing changes.
    ///
    /// # Panics
    /// Panics if `switch` is not a switch or `destination` not a host of the topology, or if `links` is
    /// empty.
    pub fn install_host_route(
        &mut self,
        switch: NodeId,
        destination: NodeId,
        links: &[LinkId],
    ) -> Result<(), RouteError> {
        assert!(!links.is_empty(), "a route has a next hop");
        let area = self.single_host_area(destination)?;
        let (set, entry) = (narrow(self.sets.len()), narrow(self.entries.len()));
        self.sets.push(LinkId(narrow(links.len())));
        self.sets.extend_from_slice(links);
        self.entries.push(set);
        let row = (switch.0 - self.hosts) as usize * self.areas as usize;
        self.table[row + usize::from(area)] = entry;
        Ok(())
    }

    /// Returns an area that has only this host: the host's area, or a new one with the same routes. The host's group
    /// has only this host then.
    fn single_host_area(&mut self, host: NodeId) -> Result<u16, RouteError> {
        let old = self.destinations[host.index()];
        if self.destinations.iter().filter(|other| other.area == old.area).nth(1).is_none() {
            return Ok(old.area);
        }
        let new = self.areas;
        let area = u16::try_from(new).ok().filter(|_| new < Self::MAX_AREAS);
        let area = area.ok_or(RouteError::TooManyAreas { host: host.0 })?;
        let group = self.group(host);
        if self.group_of.iter().filter(|&&other| other == group).nth(1).is_some() {
            self.group_of[host.index()] = self.groups;
            self.groups += 1;
        }
        let before = new as usize;
        let mut table = Vec::with_capacity(self.table.len() / before * (before + 1));
        for row in self.table.chunks(before) {
            table.extend_from_slice(row);
            table.push(narrow(index_of(row[usize::from(old.area)], old.member)));
        }
        (self.table, self.areas) = (table, new + 1);
        // At a switch with the group's hosts, the host keeps its place in their row of sets.
        self.destinations[host.index()].area = area;
        Ok(area)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Rail;
    use crate::failure::Failures;

    #[test]
    fn a_route_for_one_host_leaves_all_others_as_they_are() {
        let rail = Rail { servers_per_block: 2, rails: 4, spines: 3, ..Rail::default() };
        let topology = rail.build().unwrap();
        let before = Routes::compute(&topology, &Failures::none()).unwrap();
        let mut routes = before.clone();
        let (host, leaf) = (rail.host(1, 1, 2), NodeId(topology.hosts()));
        let links = before.next_links(leaf, host);
        assert_eq!(links.len(), 3);
        // Installed twice: the second route replaces the first and needs no further group.
        routes.install_host_route(leaf, host, &links[..1]).unwrap();
        let groups = routes.groups;
        routes.install_host_route(leaf, host, &[links[2], links[1]]).unwrap();
        assert_eq!((groups, routes.groups), (before.groups + 1, groups));
        for switch in topology.switch_ids() {
            for other in topology.host_ids() {
                let is_steered = (switch, other) == (leaf, host);
                let expected = if is_steered {
                    &[links[2], links[1]][..]
                } else {
                    before.next_links(switch, other)
                };
                assert_eq!(routes.next_links(switch, other), expected, "{switch:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_route_past_the_last_area_is_refused_and_changes_nothing() {
        let rail = Rail { servers_per_block: 2, rails: 4, spines: 3, ..Rail::default() };
        let topology = rail.build().unwrap();
        let mut routes = Routes::compute(&topology, &Failures::none()).unwrap();
        let (host, leaf) = (rail.host(1, 1, 2), NodeId(topology.hosts()));
        let links = routes.next_links(leaf, host).to_vec();
        // All but the last area, as after host routes to other hosts.
        let rows = routes.table.chunks(routes.areas as usize);
        let width = Routes::MAX_AREAS as usize - 1;
        let wide = rows.flat_map(|row| (0..width).map(|area| row.get(area).copied().unwrap_or(0)));
        (routes.table, routes.areas) = (wide.collect(), Routes::MAX_AREAS - 1);
        assert_eq!(routes.install_host_route(leaf, rail.host(0, 1, 2), &links[..1]), Ok(()));
        let refused = RouteError::TooManyAreas { host: host.0 };
        assert_eq!(routes.install_host_route(leaf, host, &links[..1]), Err(refused));
        assert_eq!(routes.next_links(leaf, host), links);
        assert_eq!(
            refused.to_string(),
            format!(
                "a route for host {} alone is one more than 65535 areas: steer fewer hosts",
                host.0
            )
        );
    }
}
