//! Where the addresses of one network are.

use alloc::collections::BTreeMap;
use core::net::SocketAddr;

use weft_units::{Duration, Instant};
use weft_wire::MacAddr;

use super::PortId;

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind a port of this host.
    Port(PortId),
    /// On another host, at this address and port.
    Peer(SocketAddr),
}

/// Learned addresses of one network at most: a tenant that makes addresses up fills its own table only.
const MOST_LEARNED: usize = 65_536;

#[derive(Clone, Copy, Debug)]
struct Learned {
    place: Place,
    heard: Instant,
}

/// Addresses that were set, and addresses that were heard. The first kind is believed whatever is heard.
#[derive(Debug, Default)]
pub(super) struct Forwarding {
    fixed: BTreeMap<MacAddr, Place>,
    learned: BTreeMap<MacAddr, Learned>,
}

impl Forwarding {
    pub(super) fn set(&mut self, address: MacAddr, place: Option<Place>) {
        match place {
            Some(place) => self.fixed.insert(address, place),
            None => self.fixed.remove(&address),
        };
    }

    /// A frame came from `address` at `place`.
    pub(super) fn learn(&mut self, now: Instant, address: MacAddr, place: Place) {
        if self.fixed.contains_key(&address) {
            return;
        }
        let heard = Learned { place, heard: now };
        if let Some(known) = self.learned.get_mut(&address) {
            *known = heard;
        } else if self.learned.len() < MOST_LEARNED {
            self.learned.insert(address, heard);
        }
    }

    /// Where `address` is, if that is known and was heard within `lifetime`.
    pub(super) fn find(&self, now: Instant, address: MacAddr, lifetime: Duration) -> Option<Place> {
        let learned =
            || self.learned.get(&address).filter(|known| now.since(known.heard) < lifetime);
        self.fixed.get(&address).copied().or_else(|| learned().map(|known| known.place))
    }

    /// Forgets every address at `place`.
    pub(super) fn forget(&mut self, place: Place) {
        self.fixed.retain(|_, known| *known != place);
        self.learned.retain(|_, known| known.place != place);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MacAddr, Place)> {
        let fixed = self.fixed.iter().map(|(&address, &place)| (address, place));
        let learned = self.learned.iter().map(|(&address, known)| (address, known.place));
        fixed.chain(learned.filter(|(address, _)| !self.fixed.contains_key(address)))
    }
}
