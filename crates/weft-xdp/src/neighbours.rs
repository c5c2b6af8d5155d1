//! The Ethernet addresses for frames: that of each peer's next hop, from the kernel's routes and neighbours.
//!
//! The kernel resolves addresses for its own packets only. So the first packets to a peer, and one each second after
//! that, are left to it: it asks for the peer's address, and verifies again that the neighbour is there.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use weft_units::{Duration, Instant};
use weft_wire::MacAddr;

use crate::netlink::{Change, Interface, Netlink};

/// Maximum number of peers that are remembered. Any host can forge its address in a packet that is answered.
const MAX_PEERS: usize = 4096;

/// Maximum number of peers that are looked up between two readings of changes: a lookup takes tens of microseconds.
const MAX_LOOKUPS: u32 = 16;

/// The interval at which changes are read.
const CHANGES_INTERVAL: Duration = Duration::from_millis(1);

/// The interval at which a packet of each peer is left to the kernel, which verifies the neighbour.
const VERIFY_INTERVAL: Duration = Duration::from_secs(1);

/// The interval after which a peer without an address is looked up again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The peers of one local address.
#[derive(Debug)]
pub(crate) struct Neighbours {
    netlink: Netlink,
    watch: Netlink,
    local: IpAddr,
    interface: Interface,
    peers: BTreeMap<IpAddr, Peer>,
    /// The peer of the latest packet, and its address.
    latest: Option<(IpAddr, MacAddr)>,
    now: Instant,
    changes_due: Instant,
    /// Number of lookups since changes were read.
    lookups: u32,
}

/// A peer's next hop and its address.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// The next hop; `None` if packets to it leave by another interface, or by none.
    next_hop: Option<IpAddr>,
    address: Option<MacAddr>,
    /// The time to leave a packet to the kernel, or to look again.
    due: Instant,
}

impl Neighbours {
    /// Returns the peers of an interface's address `local`; none is known.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn open(local: IpAddr, interface: Interface, netlink: Netlink) -> io::Result<Self> {
        Ok(Self {
            netlink,
            watch: Netlink::watch()?,
            local,
            interface,
            peers: BTreeMap::new(),
            latest: None,
            now: Instant::EPOCH,
            changes_due: Instant::EPOCH,
            lookups: 0,
        })
    }

    /// Returns the interface.
    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the Ethernet address for frames to `ip`; `None` if the kernel must send this packet.
    #[inline]
    pub(crate) fn address(&mut self, ip: IpAddr) -> Option<MacAddr> {
        match self.latest {
            Some((latest, address)) if latest == ip => Some(address),
            _ => self.find(ip),
        }
    }

    fn find(&mut self, ip: IpAddr) -> Option<MacAddr> {
        let now = self.now;
        let known = self.peers.get(&ip).copied();
        let peer = match known {
            Some(Peer { address: Some(address), due, .. }) if now < due => {
                self.latest = Some((ip, address));
                return Some(address);
            }
            // The kernel sends this packet, and verifies the neighbour.
            Some(peer @ Peer { address: Some(_), .. }) => {
                Peer { due: now + VERIFY_INTERVAL, ..peer }
            }
            Some(peer) if now < peer.due => return None,
            _ => self.look_up(ip)?,
        };
        if self.peers.len() >= MAX_PEERS && known.is_none() {
            self.forget();
        }
        self.peers.insert(ip, peer);
        known.is_none().then_some(peer.address).flatten()
    }

    /// Asks the kernel about a peer; `None` if it was asked about too many.
    fn look_up(&mut self, ip: IpAddr) -> Option<Peer> {
        if self.lookups >= MAX_LOOKUPS {
            return None;
        }
        self.lookups += 1;
        let Self { netlink, local, interface, now, .. } = self;
        let next_hop = netlink.next_hop(*local, ip, interface.index);
        let address = next_hop.and_then(|hop| netlink.neighbour(hop, interface.index));
        let interval = if address.is_some() { VERIFY_INTERVAL } else { RETRY_INTERVAL };
        Some(Peer { next_hop, address, due: *now + interval })
    }

    /// Reads changes of the kernel's tables, at most once each millisecond.
    #[inline]
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if now >= self.changes_due {
            self.changes_due = now + CHANGES_INTERVAL;
            self.read_changes();
        }
    }

    fn read_changes(&mut self) {
        self.lookups = 0;
        // From now on the peer of the latest packet is found again, which notices that its verification is due.
        self.latest = None;
        for change in self.watch.changes() {
            match change {
                Change::Neighbour { interface, ip, address } => {
                    if interface == self.interface.index {
                        self.set_neighbour(ip, address);
                    }
                }
                Change::Tables => self.reread(),
            }
        }
    }

    fn set_neighbour(&mut self, ip: IpAddr, address: Option<MacAddr>) {
        let due = self.now + VERIFY_INTERVAL;
        for peer in self.peers.values_mut().filter(|peer| peer.next_hop == Some(ip)) {
            let learned = peer.address.is_none() && address.is_some();
            peer.address = address;
            if learned {
                peer.due = due;
            }
        }
    }

    /// Asks for everything again, because routes, addresses or the interface may have changed.
    fn reread(&mut self) {
        self.forget();
        if let Ok(interface) = self.netlink.interface_of(self.local)
            && interface.index == self.interface.index
        {
            self.interface = interface;
        }
    }

    fn forget(&mut self) {
        self.peers.clear();
        self.latest = None;
    }
}
