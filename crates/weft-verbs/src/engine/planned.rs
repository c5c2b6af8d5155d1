//! Planned source ports of this host's packets (`weft plan ports`): packets to a peer leave only from the ports planned
//! for it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use weft_plan::output::{PlannedPort, read_port_csv};

use crate::errno::{Errno, Outcome};

/// The environment variable with the path of the table.
const FILE: &str = "WEFT_PORTS";

/// Planned ports by source and destination, in the order of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planned(BTreeMap<Ipv4Addr, BTreeMap<Ipv4Addr, Vec<u16>>>);

impl Planned {
    /// Returns the table that `WEFT_PORTS` names; an empty one if it is not set.
    ///
    /// # Errors
    /// There is no such file, or it is not a port table; standard error names the cause.
    pub(crate) fn from_environment() -> Outcome<Self> {
        let Some(file) = std::env::var_os(FILE) else { return Ok(Self::default()) };
        let file = Path::new(&file);
        let read = fs::read_to_string(file).map_err(|error| error.to_string());
        let rows = read.and_then(|text| read_port_csv(&text).map_err(|error| error.to_string()));
        match rows {
            Ok(rows) => Ok(Self::new(rows)),
            Err(reason) => {
                // The program gets only an error number, which does not name the cause.
                eprintln!("weft: {FILE}={}: {reason}", file.display());
                Err(Errno(libc::EINVAL))
            }
        }
    }

    pub(crate) fn new(rows: impl IntoIterator<Item = PlannedPort>) -> Self {
        let mut planned = Self::default();
        for PlannedPort { source, destination, port } in rows {
            let ports = planned.0.entry(source).or_default().entry(destination).or_default();
            // Two queue pairs of the same hosts with one port take one path.
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        planned
    }

    /// Returns the number of paths with which a connection uses all planned ports; `None` without a plan.
    pub(crate) fn paths(&self) -> Option<u16> {
        let counts = self.0.values().flat_map(BTreeMap::values).map(Vec::len);
        counts.max().and_then(|count| u16::try_from(count).ok())
    }

    /// Returns the plan for packets from this address.
    pub(crate) fn from(&self, source: IpAddr) -> Sources {
        let IpAddr::V4(source) = source else { return Sources::default() };
        let mut sources = Sources::default();
        for (&destination, ports) in self.0.get(&source).into_iter().flatten() {
            let places = ports.iter().map(|&port| sources.place(port)).collect();
            sources.places.insert(destination.into(), places);
        }
        sources
    }
}

/// The plan for one address of this host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Distinct ports.
    pub(crate) ports: Vec<u16>,
    /// The indices in `ports` of each peer's ports.
    places: BTreeMap<IpAddr, Vec<usize>>,
}

impl Sources {
    fn place(&mut self, port: u16) -> usize {
        let known = self.ports.iter().position(|&other| other == port);
        known.unwrap_or_else(|| {
            self.ports.push(port);
            self.ports.len() - 1
        })
    }

    /// Returns the socket for a packet on this path to `peer`; the first `paths` sockets are not planned.
    #[inline]
    pub(crate) fn socket(&self, peer: IpAddr, path: u16, paths: u16) -> u16 {
        let planned = self.places.get(&peer).and_then(|places| {
            let place = places[usize::from(path) % places.len()];
            u16::try_from(usize::from(paths) + place).ok()
        });
        planned.unwrap_or_else(|| if path < paths { path } else { path % paths })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(source: u8, destination: u8, port: u16) -> PlannedPort {
        let [source, destination] = [source, destination].map(|host| Ipv4Addr::new(10, 0, 0, host));
        PlannedPort { source, destination, port }
    }

    #[test]
    fn each_peer_is_sent_to_from_its_own_ports() {
        let rows = [row(1, 2, 50_001), row(1, 2, 50_002), row(1, 3, 50_002), row(2, 1, 50_003)];
        let planned = Planned::new(rows);
        assert_eq!(planned.paths(), Some(2));
        let sources = planned.from(Ipv4Addr::new(10, 0, 0, 1).into());
        assert_eq!(sources.ports, [50_001, 50_002]);
        let peer = |host| IpAddr::from([10, 0, 0, host]);
        // Sockets 0 to 3 are not planned.
        let sockets = |host| [0, 1, 2].map(|path| sources.socket(peer(host), path, 4));
        assert_eq!(sockets(2), [4, 5, 4]);
        assert_eq!(sockets(3), [5, 5, 5]);
        assert_eq!(sockets(9), [0, 1, 2]);
    }

    #[test]
    fn without_a_plan_paths_are_sockets() {
        let planned = Planned::default();
        assert_eq!(planned.paths(), None);
        let sources = planned.from([10, 0, 0, 1].into());
        assert!(sources.ports.is_empty());
        assert_eq!(sources.socket([10, 0, 0, 2].into(), 77, 128), 77);
    }
}
