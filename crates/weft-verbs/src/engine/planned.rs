//! Planned source ports of this host's packets (`weft plan ports`): packets to a peer leave only from the ports planned
//! for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;
use std::path::Path;

use weft_plan::output::{PlannedPort, read_port_csv};

use super::source_ports::SourcePorts;
use crate::errno::{Errno, Outcome};

/// The environment variable with the path of the table.
const FILE: &str = "WEFT_PORTS";

/// Maximum number of planned ports of one address: each has a socket, and an address's sockets are counted in 16 bits with
/// those of its paths and of the ports that programs choose.
const MAX_PORTS: usize = 16_384;

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
        let text = fs::read_to_string(file).map_err(|error| error.to_string());
        text.and_then(|text| Self::read(&text)).map_err(|reason| {
            // The program gets only an error number, which does not name the cause.
            eprintln!("weft: {FILE}={}: {reason}", file.display());
            Errno(libc::EINVAL)
        })
    }

    /// Returns the plan of a table.
    ///
    /// # Errors
    /// `EINVAL`: it is not a port table, or has too many ports.
    pub(crate) fn parse(table: &str) -> Outcome<Self> {
        Self::read(table).map_err(|_| Errno(libc::EINVAL))
    }

    /// Returns the plan of a table.
    ///
    /// # Errors
    /// Returns the reason: it is not a port table, or has more than [`MAX_PORTS`] ports of one source.
    fn read(table: &str) -> Result<Self, String> {
        let planned = Self::new(read_port_csv(table).map_err(|error| error.to_string())?);
        for (source, peers) in &planned.0 {
            let ports = peers.values().flatten().collect::<BTreeSet<_>>().len();
            if ports > MAX_PORTS {
                return Err(format!("{source} has {ports} ports, expected at most {MAX_PORTS}"));
            }
        }
        Ok(planned)
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

    /// Returns `true` if it plans packets from this address.
    pub(crate) fn has(&self, source: IpAddr) -> bool {
        matches!(source, IpAddr::V4(source) if self.0.contains_key(&source))
    }

    /// Returns the plan for packets from this address, whose own sockets come after those of the `paths`.
    pub(crate) fn from(&self, source: IpAddr, paths: u16) -> Sources {
        self.replacing(source, &Present { next: paths, ..Present::default() })
    }

    /// Returns the plan for packets from this address, which has these sockets: a port of both plans keeps its socket, and
    /// a port that a path has is used with that path's socket.
    pub(crate) fn replacing(&self, source: IpAddr, present: &Present<'_>) -> Sources {
        let IpAddr::V4(source) = source else { return Sources::default() };
        let of_source = || self.0.get(&source).into_iter().flatten();
        let wanted: BTreeSet<u16> = of_source().flat_map(|(_, ports)| ports).copied().collect();
        let stays = |port: &u16| wanted.contains(port) || present.is_chosen(*port);
        let mut places = Places {
            own: present.own.to_vec(),
            free: (0..present.own.len())
                .filter(|&at| !stays(&present.own[at].port))
                .rev()
                .collect(),
            next: present.next,
        };
        let mut socket = |&port: &u16| {
            let of_path = (0..).zip(present.of_paths).find(|&(_, &other)| other == port);
            of_path.map_or_else(|| places.place(port), |(path, _)| path)
        };
        let mut sockets = BTreeMap::new();
        for (&destination, ports) in of_source() {
            sockets.insert(destination.into(), ports.iter().map(&mut socket).collect());
        }
        Sources { own: places.own, sockets }
    }
}

/// A socket that was opened for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedSocket {
    /// Its index among the sockets of its address.
    pub(crate) index: u16,
    pub(crate) port: u16,
}

/// The sockets of an address when another plan replaces the present one.
#[derive(Default)]
pub(crate) struct Present<'a> {
    /// The sockets of the present plan.
    pub(crate) own: &'a [PlannedSocket],
    /// The ports of the paths, whose sockets come first.
    pub(crate) of_paths: &'a [u16],
    /// The ports that programs chose for single queue pairs; their sockets stay.
    pub(crate) chosen: Option<&'a SourcePorts>,
    /// The index of the next socket to be opened.
    pub(crate) next: u16,
}

impl Present<'_> {
    fn is_chosen(&self, port: u16) -> bool {
        let chosen = self.chosen.zip(NonZeroU16::new(port));
        chosen.is_some_and(|(chosen, port)| chosen.socket(port).is_some())
    }
}

/// The assignment of ports to sockets.
struct Places {
    own: Vec<PlannedSocket>,
    /// The places in `own` of ports that are not used any more.
    free: Vec<usize>,
    next: u16,
}

impl Places {
    /// Returns the index of a port's socket, which takes a free place if the port has none yet.
    fn place(&mut self, port: u16) -> u16 {
        if let Some(known) = self.own.iter().find(|socket| socket.port == port) {
            return known.index;
        }
        if let Some(place) = self.free.pop() {
            self.own[place].port = port;
            return self.own[place].index;
        }
        let index = self.next;
        self.own.push(PlannedSocket { index, port });
        self.next = index.checked_add(1).expect("sockets are fewer than ports");
        index
    }
}

/// The plan for one address of this host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    own: Vec<PlannedSocket>,
    /// The indices of the sockets with each peer's ports.
    sockets: BTreeMap<IpAddr, Vec<u16>>,
}

impl Sources {
    /// Returns the plan's own sockets, those opened last at the end.
    pub(crate) fn own(&self) -> &[PlannedSocket] {
        &self.own
    }

    /// Returns `true` if no packets are planned.
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Returns the socket for a packet on this path to `peer`; the first `paths` sockets are not planned.
    #[inline]
    pub(crate) fn socket(&self, peer: IpAddr, path: u16, paths: u16) -> u16 {
        let planned = if self.sockets.is_empty() { None } else { self.sockets.get(&peer) };
        match planned {
            Some(sockets) => sockets[usize::from(path) % sockets.len()],
            None if path < paths => path,
            None => path % paths,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(source: u8, destination: u8, port: u16) -> PlannedPort {
        let [source, destination] = [source, destination].map(|host| Ipv4Addr::new(10, 0, 0, host));
        PlannedPort { source, destination, port }
    }

    fn ports(sources: &Sources) -> Vec<u16> {
        sources.own().iter().map(|socket| socket.port).collect()
    }

    #[test]
    fn each_peer_is_sent_to_from_its_own_ports() {
        let rows = [row(1, 2, 50_001), row(1, 2, 50_002), row(1, 3, 50_002), row(2, 1, 50_003)];
        let planned = Planned::new(rows);
        assert_eq!(planned.paths(), Some(2));
        let sources = planned.from(Ipv4Addr::new(10, 0, 0, 1).into(), 4);
        assert_eq!(ports(&sources), [50_001, 50_002]);
        let peer = |host| IpAddr::from([10, 0, 0, host]);
        // Sockets 0 to 3 are not planned.
        let sockets = |host| [0, 1, 2].map(|path| sources.socket(peer(host), path, 4));
        assert_eq!(sockets(2), [4, 5, 4]);
        assert_eq!(sockets(3), [5, 5, 5]);
        assert_eq!(sockets(9), [0, 1, 2]);
    }

    #[test]
    fn a_table_with_too_many_ports_is_refused() {
        let table = |ports: u16| {
            let row = |port: u16| format!("10.0.0.1,10.0.{}.2,{port}\n", port % 128);
            (1..=ports).fold("source,destination,source_port\n".to_owned(), |table, port| {
                table + &row(port)
            })
        };
        assert!(Planned::read(&table(16_384)).is_ok());
        let error = Planned::read(&table(16_385)).unwrap_err();
        assert_eq!(error, "10.0.0.1 has 16385 ports, expected at most 16384");
    }

    #[test]
    fn without_a_plan_paths_are_sockets() {
        let planned = Planned::default();
        assert_eq!(planned.paths(), None);
        let sources = planned.from([10, 0, 0, 1].into(), 128);
        assert!(sources.own().is_empty());
        assert_eq!(sources.socket([10, 0, 0, 2].into(), 77, 128), 77);
    }

    #[test]
    fn another_plan_keeps_the_index_of_a_common_port_and_reuses_the_others() {
        let from = Ipv4Addr::new(10, 0, 0, 1).into();
        let first = Planned::new([row(1, 2, 50_001), row(1, 2, 50_002), row(1, 3, 50_003)]);
        let first = first.from(from, 4);
        let next = Planned::new([row(1, 2, 50_002), row(1, 2, 50_009), row(1, 3, 50_008)]);
        let present = Present { own: first.own(), next: 7, ..Present::default() };
        let next = next.replacing(from, &present);
        assert_eq!(ports(&next), [50_009, 50_002, 50_008]);
        let socket = |host, path| next.socket(IpAddr::from([10, 0, 0, host]), path, 4);
        assert_eq!([socket(2, 0), socket(2, 1), socket(3, 0)], [5, 4, 6]);
        // The kernel gave path 3 one of the ports. Sockets 7 and 8 are a program's.
        let of_paths = [40_000, 40_001, 40_002, 50_010];
        let grown = Planned::new((0..5).map(|port| row(1, 2, 50_010 + port)));
        let present =
            Present { own: next.own(), of_paths: &of_paths, next: 9, ..Present::default() };
        let grown = grown.replacing(from, &present);
        let socket = |path| grown.socket([10, 0, 0, 2].into(), path, 4);
        assert_eq!((grown.own().len(), socket(0), socket(4)), (4, 3, 9));
    }
}
