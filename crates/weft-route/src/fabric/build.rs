//! Conversion of [`Installed`] from names to numbers, with all checks.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::arrival::Arrival;
use super::family::Family;
use super::hash::Functions;
use super::router::{Tables, nearest, tables, within};
use super::table::Shared;
use super::{End, Fabric, HostId, LinkId, RouterId, count};
use crate::installed::{Addresses, Cable, Installed, InstalledError, Port, PortState, Router};

/// Maximum number of ports of all routers together.
const MAX_PORTS: usize = 1 << 23;

impl Fabric {
    /// Builds the fabric of these routers.
    ///
    /// # Errors
    /// Returns the first fault found, with its router.
    pub fn new(installed: Installed) -> Result<Self, InstalledError> {
        let names = names(&installed)?;
        let mut first_link = vec![0];
        let mut ports = 0;
        for router in &installed.routers {
            ports += router.ports.len();
            first_link.push(count(ports.min(MAX_PORTS)));
        }
        within("ports", ports, MAX_PORTS)?;
        let mut fabric = Self {
            names,
            by_name: by_name(&installed),
            first_link,
            from: Vec::with_capacity(ports),
            to: vec![End::Nothing; ports],
            reverse: vec![None; ports],
            rates: Vec::with_capacity(ports),
            passes: Vec::new(),
            hosts: Vec::new(),
            first_of_host: Vec::new(),
            links_of_hosts: Vec::new(),
            arrivals: Vec::new(),
            v4: Family::default(),
            v6: Family::default(),
            functions: Functions::default(),
            installed,
        };
        fabric.lay_cables()?;
        let Self { installed, functions, first_link, v4, v6, .. } = &mut fabric;
        let (mut shared4, mut shared6) = (Shared::default(), Shared::default());
        for (router, &first) in installed.routers.iter().zip(first_link.iter()) {
            let of_router = tables(functions, first, router)?;
            v4.push(of_router.v4, &mut shared4);
            v6.push(of_router.v6, &mut shared6);
        }
        fabric.passes = fabric.link_ids().map(|link| fabric.is_up(link)).collect();
        fabric.arrivals = fabric.link_ids().map(|link| fabric.arrival_of(link)).collect();
        Ok(fabric)
    }

    /// Resolves the cable of every port, and assigns links to hosts.
    fn lay_cables(&mut self) -> Result<(), InstalledError> {
        let mut attached: Vec<(Addresses, LinkId)> = Vec::new();
        for (number, router) in (0..).zip(&self.installed.routers) {
            for (place, port) in (0..).zip(&router.ports) {
                let link = LinkId(self.first_link[number as usize] + place);
                self.from.push(End::Router(RouterId(number)));
                self.rates.push(port.speed.as_bps());
                if let Some(Cable::Host(host)) = &port.to {
                    if let Some(host) = host.iter().find(|&address| !is_of_a_host(address)) {
                        let (router, port) = (router.name.clone(), port.name.clone());
                        return Err(InstalledError::NoHost { router, port, host });
                    }
                    attached.push((*host, link));
                }
            }
        }
        self.join_routers()?;
        attached.sort_unstable_by_key(|&(host, link)| (host.v4().is_none(), host, link));
        for (host, down) in attached {
            self.attach(host, down)?;
        }
        self.first_of_host.push(count(self.links_of_hosts.len()));
        self.find_hosts()
    }

    /// Builds the lookup of hosts by address and checks that each address belongs to one host.
    fn find_hosts(&mut self) -> Result<(), InstalledError> {
        for (number, host) in (0..).map(HostId).zip(&self.hosts) {
            self.v4.add(number, host.v4().map(Ipv4Addr::to_bits));
            self.v6.add(number, host.v6().map(Ipv6Addr::to_bits));
        }
        if let Some((address, first, second)) = self.v4.sort() {
            return Err(self.host_twice(Ipv4Addr::from_bits(address).into(), first, second));
        }
        if let Some((address, first, second)) = self.v6.sort() {
            return Err(self.host_twice(Ipv6Addr::from_bits(address).into(), first, second));
        }
        Ok(())
    }

    fn host_twice(&self, address: IpAddr, first: HostId, second: HostId) -> InstalledError {
        let (first, second) = (self.addresses(first), self.addresses(second));
        InstalledError::HostTwice { address, first, second }
    }

    fn join_routers(&mut self) -> Result<(), InstalledError> {
        let port_numbers: Vec<BTreeMap<&str, u32>> = self
            .installed
            .routers
            .iter()
            .map(|router| router.ports.iter().map(|port| port.name.as_str()).zip(0..).collect())
            .collect();
        for (number, router) in (0..).zip(&self.installed.routers) {
            for (place, port) in (0..).zip(&router.ports) {
                let Some(Cable::Peer { router: peer, port: peer_port }) = &port.to else {
                    continue;
                };
                let unknown = |unknown| InstalledError::Unknown {
                    router: router.name.clone(),
                    place: format!("the cable of port {:?}", port.name),
                    unknown,
                };
                let Some(&other) = self.names.get(peer) else {
                    return Err(unknown(nearest("router", peer, self.names.keys())));
                };
                let Some(&far) = port_numbers[other.index()].get(peer_port.as_str()) else {
                    let known = &self.installed.routers[other.index()].ports;
                    let known = known.iter().map(|port| &port.name);
                    return Err(unknown(format!(
                        "{} of {peer:?}",
                        nearest("port", peer_port, known)
                    )));
                };
                if other.0 == number {
                    let (router, port) = (router.name.clone(), port.name.clone());
                    return Err(InstalledError::CableCycle { router, port });
                }
                let near = LinkId(self.first_link[number as usize] + place);
                let far = LinkId(self.first_link[other.index()] + far);
                plug(&self.installed, &self.first_link, &mut self.reverse, near, far)?;
                plug(&self.installed, &self.first_link, &mut self.reverse, far, near)?;
            }
        }
        for link in 0..self.to.len() {
            if let Some(far) = self.reverse[link] {
                self.to[link] = self.from[far.index()];
            }
        }
        Ok(())
    }

    /// Adds a link to a host, in the direction opposite to `down`.
    fn attach(&mut self, host: Addresses, down: LinkId) -> Result<(), InstalledError> {
        if let Some(other) = self.reverse[down.index()] {
            let first = end(&self.installed, &self.first_link, other);
            let second = format!("host {host}");
            let (router, port) = place(&self.installed, &self.first_link, down);
            let (router, port) = (router.name.clone(), port.name.clone());
            return Err(InstalledError::TwoCables { router, port, first, second });
        }
        if self.hosts.last() != Some(&host) {
            self.hosts.push(host);
            self.first_of_host.push(count(self.links_of_hosts.len()));
        }
        let host = HostId(count(self.hosts.len() - 1));
        let up = LinkId(count(self.to.len()));
        self.links_of_hosts.push(up);
        self.from.push(End::Host(host));
        self.to.push(self.from[down.index()]);
        self.rates.push(self.rates[down.index()]);
        self.reverse.push(Some(down));
        self.to[down.index()] = End::Host(host);
        self.reverse[down.index()] = Some(up);
        Ok(())
    }

    fn router_of(&self, router: RouterId) -> &Router {
        &self.installed.routers[router.index()]
    }

    /// Returns the end of a link as an [`Arrival`].
    fn arrival_of(&self, link: LinkId) -> Arrival {
        match self.to(link) {
            _ if !self.passes(link) => Arrival::NOWHERE,
            End::Router(router) => Arrival::at_router(router),
            End::Host(host) => Arrival::at_host(host),
            End::Nothing => Arrival::NOWHERE,
        }
    }

    /// Returns `true` if the ports at both ends are up.
    fn is_up(&self, link: LinkId) -> bool {
        let up = |link| self.port_of(link).is_none_or(|(_, port)| port.state == PortState::Up);
        up(link) && self.reverse(link).is_none_or(up)
    }
}

/// Implements [`Fabric::replace`].
pub(super) fn replace(fabric: &mut Fabric, router: Router) -> Result<RouterId, InstalledError> {
    let Some(number) = fabric.find(&router.name) else {
        let unknown = nearest("router", &router.name, fabric.names.keys());
        let (router, place) = (router.name, String::from("the new state"));
        return Err(InstalledError::Unknown { router, place, unknown });
    };
    let same = |(old, new): (&Port, &Port)| {
        old.name == new.name && old.ifindex == new.ifindex && old.to == new.to
    };
    let before = &fabric.router_of(number).ports;
    if before.len() != router.ports.len() || !before.iter().zip(&router.ports).all(same) {
        return Err(InstalledError::Recabled { router: router.name });
    }
    let first = fabric.first_link[number.index()];
    let Tables { v4, v6 } = tables(&mut fabric.functions, first, &router)?;
    fabric.v4.replace(number, v4);
    fabric.v6.replace(number, v6);
    fabric.installed.routers[number.index()] = router;
    for link in fabric.links_of(number) {
        let (_, port) = fabric.port_of(link).expect("it is a router's");
        let rate = port.speed.as_bps();
        fabric.rates[link.index()] = rate;
        fabric.passes[link.index()] = fabric.is_up(link);
        fabric.arrivals[link.index()] = fabric.arrival_of(link);
        if let Some(back) = fabric.reverse(link) {
            fabric.passes[back.index()] = fabric.is_up(back);
            fabric.arrivals[back.index()] = fabric.arrival_of(back);
            if let End::Host(_) = fabric.from(back) {
                fabric.rates[back.index()] = rate;
            }
        }
    }
    Ok(number)
}

/// Returns `true` if the address can be a host's.
fn is_of_a_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(it) if it.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || is_broadcast)
}

fn names(installed: &Installed) -> Result<BTreeMap<String, RouterId>, InstalledError> {
    let mut names = BTreeMap::new();
    for (number, router) in (0..).zip(&installed.routers) {
        if names.insert(router.name.clone(), RouterId(number)).is_some() {
            let name = router.name.clone();
            return Err(InstalledError::Twice { kind: "router", name, router: None });
        }
    }
    Ok(names)
}

/// Returns the indices of each router's ports in the order of their names.
fn by_name(installed: &Installed) -> Vec<u32> {
    let mut all = Vec::new();
    for Router { ports, .. } in &installed.routers {
        let first = all.len();
        all.extend(0..count(ports.len()));
        all[first..].sort_unstable_by_key(|&place| ports[place as usize].name.as_str());
    }
    all
}

/// Connects the port of `near` with the port of `far`.
fn plug(
    installed: &Installed,
    first_link: &[u32],
    reverse: &mut [Option<LinkId>],
    near: LinkId,
    far: LinkId,
) -> Result<(), InstalledError> {
    match reverse[near.index()] {
        Some(other) if other != far => {
            let (router, port) = place(installed, first_link, near);
            Err(InstalledError::TwoCables {
                router: router.name.clone(),
                port: port.name.clone(),
                first: end(installed, first_link, other),
                second: end(installed, first_link, far),
            })
        }
        _ => {
            reverse[near.index()] = Some(far);
            Ok(())
        }
    }
}

/// Returns the router and port of a port's link.
fn place<'a>(installed: &'a Installed, first_link: &[u32], link: LinkId) -> (&'a Router, &'a Port) {
    let number = first_link.partition_point(|&first| first <= link.0) - 1;
    let router = &installed.routers[number];
    (router, &router.ports[(link.0 - first_link[number]) as usize])
}

fn end(installed: &Installed, first_link: &[u32], link: LinkId) -> String {
    if link.0 >= *first_link.last().unwrap_or(&0) {
        return "another host".to_owned();
    }
    let (router, port) = place(installed, first_link, link);
    format!("{:?} of {:?}", port.name, router.name)
}
