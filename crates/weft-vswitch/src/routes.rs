//! Rows of networks' tables: where machines are, and where gateways send packets.

use std::net::IpAddr;

use weft_vpc::{GATEWAY, Hop, Place, Prefix, Table, Vni};

use crate::config::{Destination, Network, Route, Row};
use crate::{Daemon, OpenError};

impl Daemon {
    /// Says where a machine or a prefix is, in place of what was said of it before.
    ///
    /// # Errors
    /// A number of more than 24 bits.
    pub fn set_route(&mut self, route: Route) -> Result<(), OpenError> {
        let (vni, host) = (vni(route.vni)?, self.config.host.clone());
        if self.route_of(route.vni, route.destination()).is_some() {
            self.forget_route(route.vni, route.destination())?;
        }
        let row = route.row.clone();
        self.crew.ask_all(move |worker| {
            let table = worker.switch.table(vni);
            match &row {
                Row::Machine { mac, peer, addresses } => {
                    table.set_mac(mac.0, Some(Place::Peer(host.peer(*peer))));
                    addresses.iter().for_each(|&known| table.set_neighbour(known, Some(mac.0)));
                }
                Row::Prefix { to, via } => table.set_route(*to, Some(Hop::Via(*via))),
            }
        })?;
        self.config.routes.push(route);
        Ok(())
    }

    /// No longer says where a machine or a prefix is.
    ///
    /// # Errors
    /// Nobody has said so.
    pub fn forget_route(&mut self, number: u32, destination: Destination) -> Result<(), OpenError> {
        let Some(route) = self.route_of(number, destination) else {
            let why = format!("network {number} has no route to {destination}");
            return Err(OpenError::Unknown(why));
        };
        let (vni, row) = (vni(number)?, route.row.clone());
        // A gateway in the same subnet reaches it without a route.
        let direct = self.subnets(number)?;
        self.crew.ask_all(move |worker| {
            let table = worker.switch.table(vni);
            match &row {
                Row::Machine { mac, addresses, .. } => {
                    table.set_mac(mac.0, None);
                    addresses.iter().for_each(|&known| table.set_neighbour(known, None));
                }
                Row::Prefix { to, .. } => {
                    table.set_route(*to, direct.contains(to).then_some(Hop::Direct));
                }
            }
        })?;
        self.config.routes.retain(|known| !known.is_about(number, destination));
        Ok(())
    }

    fn route_of(&self, vni: u32, destination: Destination) -> Option<&Route> {
        self.config.routes.iter().find(|known| known.is_about(vni, destination))
    }

    /// The routes of a network that name their next hop.
    pub(crate) fn prefix_routes(&self, vni: u32) -> Vec<(Prefix, Hop)> {
        let own = self.config.routes.iter().filter(|route| route.vni == vni);
        let hop = |route: &Route| match route.row {
            Row::Prefix { to, via } => Some((to, Hop::Via(via))),
            Row::Machine { .. } => None,
        };
        own.filter_map(hop).collect()
    }

    fn subnets(&self, vni: u32) -> Result<Vec<Prefix>, OpenError> {
        let network = self.config.networks.iter().find(|known| known.vni == vni);
        let gateways = network.map_or(Ok(vec![]), Network::gateways)?;
        Ok(gateways.iter().map(subnet).collect())
    }
}

fn vni(number: u32) -> Result<Vni, OpenError> {
    Vni::new(number).ok_or_else(|| OpenError::Unknown(format!("{number} is no VNI")))
}

fn subnet(&(address, length): &(IpAddr, u8)) -> Prefix {
    Prefix::new(address, length).expect("checked with the configuration")
}

/// Has a network answer for its gateway, or no longer.
pub(crate) fn set_gateways(table: &mut Table<Place>, gateways: &[(IpAddr, u8)], answer: bool) {
    for gateway in gateways {
        table.set_neighbour(gateway.0, answer.then_some(GATEWAY));
        table.set_route(subnet(gateway), answer.then_some(Hop::Direct));
    }
}
