//! Hosts that speak plain VXLAN alone, such as routers, and whose machines a control plane places (RFC 8365).

use core::net::{IpAddr, SocketAddr};

use super::{Network, Switch, Vni};

impl Network {
    /// Returns the host at `address`, if it is one that speaks plain VXLAN alone.
    pub(super) fn vtep(&self, address: IpAddr) -> Option<SocketAddr> {
        let (&vtep, _) = self.vteps.range(SocketAddr::new(address, 0)..).next()?;
        (vtep.ip() == address).then_some(vtep)
    }

    /// Returns the hosts that receive a broadcast: each gets a copy, and none forwards it.
    pub(super) fn receivers(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let vteps = self.vteps.iter().filter(|(_, floods)| **floods);
        self.peers.iter().copied().chain(vteps.map(|(&vtep, _)| vtep))
    }
}

impl Switch {
    /// Returns `true` for a host of a network that speaks plain VXLAN alone.
    pub(super) fn is_vtep(&self, vni: Vni, host: SocketAddr) -> bool {
        self.networks.get(&vni).is_some_and(|network| network.vteps.contains_key(&host))
    }
}
