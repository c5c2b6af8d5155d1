//! `weft vpc route`: adds, lists and removes locations of machines and prefixes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Result, bail};
use clap::Subcommand;
use weft_report::{Cell, Column, Table};
use weft_vswitch::Status;
use weft_vswitch::config::{Destination, Route as Known, Row};
use weft_vswitch::control::Request;

use super::show::{count, text};
use weft_report::terminal::Output;

#[derive(Debug, Subcommand)]
pub(super) enum Route {
    /// Set the host of a machine, or the machine to which the gateway sends the packets of a prefix
    #[command(after_help = "\
Examples:
  weft vpc route add 100 02:00:00:00:07:02 10.0.2.2                         a machine, and the host that has it
  weft vpc route add 100 02:00:00:00:08:02 10.0.2.2 --address 192.168.8.2   ... and an address of its own
  weft vpc route add 100 10.9.0.0/16 192.168.8.2                            a prefix, and a machine of the network
  weft vpc route add 100 0.0.0.0/0 192.168.8.2                              everything else

A location replaces the earlier one of the same destination. The gateway's own addresses are `gateways` of the network, in \
the configuration; it knows the addresses of this host's ports, those given here, and those that it learned.")]
    Add(Add),
    /// List static and learned locations
    #[command(after_help = "\
Example:
  weft vpc route list --json")]
    List,
    /// Remove the static location of a destination
    #[command(after_help = "\
Examples:
  weft vpc route del 100 02:00:00:00:07:02
  weft vpc route del 100 10.9.0.0/16")]
    Del(Del),
}

#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// The network
    vni: u32,
    /// An Ethernet address, or a prefix such as 10.9.0.0/16
    destination: Destination,
    /// The host that has the machine, or the machine of the network that is the next hop
    to: IpAddr,
    /// An IP address of the machine
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Del {
    /// The network
    vni: u32,
    /// An Ethernet address, or a prefix
    destination: Destination,
}

impl Add {
    /// Returns the request for the daemon, and the message after its success.
    pub(super) fn request(self) -> Result<(Request, String)> {
        let Self { vni, destination, to, addresses } = self;
        let (row, done) = match destination {
            Destination::Machine(mac) => {
                let addresses = addresses.into_iter().collect();
                (Row::Machine { mac, peer: to, addresses }, format!("{mac} is at {to}"))
            }
            Destination::Prefix(prefix) if addresses.is_empty() => {
                (Row::Prefix { to: prefix, via: to }, format!("{prefix} goes to {to}"))
            }
            Destination::Prefix(_) => {
                bail!("--address is a machine's, and {destination} is a prefix")
            }
        };
        Ok((Request::SetRoute { route: Known { vni, row } }, done))
    }
}

impl Del {
    pub(super) fn request(self) -> (Request, String) {
        let Self { vni, destination } = self;
        let done = format!("forgot {destination} of network {vni}");
        (Request::ForgetRoute { vni, destination }, done)
    }
}

/// Prints all known locations, as text or as JSON.
pub(super) fn list(status: &Status, output: Output) -> Result<()> {
    let mut table = Table::new(vec![
        Column::number("network", "vni"),
        Column::text("destination", "destination"),
        Column::text("to", "to"),
        Column::text("addresses", "addresses"),
        Column::text("known", "known"),
    ]);
    let mut static_routes = BTreeSet::new();
    for route in &status.routes {
        let destination = route.destination();
        static_routes.insert((route.vni, destination));
        let (to, addresses) = match &route.row {
            Row::Machine { peer, addresses, .. } => (peer, join(addresses)),
            Row::Prefix { via, .. } => (via, String::new()),
        };
        table.push(row(route.vni, &destination, &to.to_string(), &addresses, "told"));
    }
    for network in &status.networks {
        let vni = network.network.vni;
        for gateway in &network.network.gateways {
            table.push(row(vni, gateway, "every host", "", "gateway"));
        }
        for (&mac, place) in &network.addresses {
            if !static_routes.contains(&(vni, Destination::Machine(mac))) {
                let is_port = status.ports.iter().any(|port| (port.vni, port.mac) == (vni, mac));
                table.push(row(vni, &mac, place, "", if is_port { "port" } else { "heard" }));
            }
        }
    }
    if table.is_empty() && !output.is_json() {
        return output.raw("nothing is known of any address (`weft vpc route add`)\n");
    }
    output.table(&table)
}

fn row(vni: u32, destination: &impl ToString, to: &str, addresses: &str, known: &str) -> Vec<Cell> {
    let destination = destination.to_string();
    let cells = [destination.as_str(), to, addresses, known].map(text);
    std::iter::once(count(vni.into())).chain(cells).collect()
}

fn join(addresses: &BTreeSet<IpAddr>) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
