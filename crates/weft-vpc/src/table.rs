//! The addresses of one tenant's network: the place of each machine, and the machine of each IP address.
//!
//! Each network has a table of its own, so tenants with the same addresses never meet. Addresses that were set
//! override learned ones; learned ones expire after a lifetime, and their number is limited. A place is a port of
//! this host or another host: the table does not distinguish them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use weft_units::{Duration, Instant};
use weft_wire::MacAddr;

use crate::{Frame, GATEWAY, Hop, Prefix, PrefixMap, neighbour};

/// The lifetime and number of learned addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "kebab-case"))]
pub struct TableConfig {
    /// The lifetime of a learned address. 300 s (IEEE 802.1Q, table 8-6).
    pub lifetime: Duration,
    /// Largest number of learned addresses, of Ethernet and of IP each: a tenant that invents addresses fills
    /// only its own network's table, and only up to this.
    pub max_learned: usize,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self { lifetime: Duration::from_secs(300), max_learned: 16_384 }
    }
}

/// Counters of learning. All of them only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TableCounters {
    /// Number of addresses learned for the first time, or again after they expired.
    pub learned: u64,
    /// Number of addresses learned at another place, or of another machine, than before.
    pub moved: u64,
    /// Number of claims of set or proved addresses from elsewhere; these are not learned.
    pub contradicted: u64,
    /// Number of addresses not learned because the table was full.
    pub full: u64,
    /// Number of addresses that expired after a lifetime without a frame.
    pub aged: u64,
}

/// The addresses of one network, at places `P`.
#[derive(Clone, Debug)]
pub struct Table<P> {
    config: TableConfig,
    routes: PrefixMap<Hop>,
    places: Addresses<MacAddr, P>,
    neighbours: Addresses<IpAddr, MacAddr>,
    counters: TableCounters,
}

impl<P: Copy + Eq> Table<P> {
    /// Creates an empty table.
    pub fn new(config: TableConfig) -> Self {
        Self {
            config,
            routes: PrefixMap::default(),
            places: Addresses::default(),
            neighbours: Addresses::default(),
            counters: TableCounters::default(),
        }
    }

    /// Sets the permanent place of a machine; `None` removes it.
    pub fn set_mac(&mut self, mac: MacAddr, place: Option<P>) {
        self.places.set(mac, place);
    }

    /// Sets the gateway's next hop for a prefix; `None` removes it.
    pub fn set_route(&mut self, prefix: Prefix, hop: Option<Hop>) {
        match hop {
            Some(hop) => self.routes.insert(prefix, hop),
            None => self.routes.remove(&prefix),
        };
    }

    /// Sets the permanent machine of an address; `None` removes it.
    pub fn set_neighbour(&mut self, address: IpAddr, mac: Option<MacAddr>) {
        self.neighbours.set(address, mac);
    }

    /// Learns from a frame that came from `place`: its sender's place, and the address that the sender
    /// announces by ARP or neighbour discovery. `bytes` are the frame's, at least
    /// [`MIN_PARSE_BYTES`](Frame::MIN_PARSE_BYTES) of them. Returns `false` if the sender's place is set to another one.
    pub fn learn(&mut self, frame: &Frame, bytes: &[u8], place: P, now: Instant) -> bool {
        let agrees = self.learn_place(frame.source, place, now);
        self.learn_neighbour(frame, bytes, now);
        agrees
    }

    /// Learns the address that a frame's sender announces by ARP or neighbour discovery. `bytes` are as for
    /// [`learn`](Self::learn).
    pub fn learn_neighbour(&mut self, frame: &Frame, bytes: &[u8], now: Instant) {
        let Self { config, counters, neighbours, .. } = self;
        if let Some((address, mac)) = neighbour::announced(frame, bytes)
            && frame.source != GATEWAY
        {
            neighbours.learn(
                address,
                Learned { value: mac, at: now, proved: true },
                config,
                counters,
            );
        }
    }

    /// Learns that a machine is at `place`. Returns `false` if its place is set to another one.
    pub fn learn_place(&mut self, mac: MacAddr, place: P, now: Instant) -> bool {
        // The gateway is at every place.
        if mac == GATEWAY {
            return true;
        }
        let Self { config, counters, places, .. } = self;
        places.learn(mac, Learned { value: place, at: now, proved: true }, config, counters)
    }

    /// Learns from a frame that claims to come from `place` without proof: only unknown places, and places known
    /// from such frames. It may move an IP address only between machines, to one that is proved to be at `place`.
    /// Returns `false` if it contradicts a proved address: the caller should probe the host at `place`.
    pub fn introduce(&mut self, frame: &Frame, bytes: &[u8], place: P, now: Instant) -> bool {
        if frame.source == GATEWAY {
            return true;
        }
        let Self { config, counters, places, neighbours, .. } = self;
        let learned = Learned { value: place, at: now, proved: false };
        let mut agrees = places.introduce(frame.source, learned, config, counters);
        if let Some((address, mac)) = neighbour::announced(frame, bytes) {
            let learned = Learned { value: mac, at: now, proved: false };
            if places.is_proved(mac, place, now, config.lifetime) {
                neighbours.learn(address, learned, config, counters);
            } else {
                agrees &= neighbours.introduce(address, learned, config, counters);
            }
        }
        agrees
    }

    /// Removes the learned place of a machine, if it is `place`.
    pub fn remove_learned(&mut self, mac: MacAddr, place: P) {
        self.places.remove_learned(mac, place);
    }

    /// Returns the place of a frame's destination, if it is set or learned.
    pub fn find(&self, frame: &Frame, now: Instant) -> Option<P> {
        if frame.destination.is_group() {
            return None;
        }
        self.place(frame.destination, now)
    }

    /// Returns the machine to which the gateway forwards a packet for `address`: the longest route gives the next
    /// hop's address. `None` if there is no route, or the machine of that address is unknown.
    pub fn next_machine(&self, address: IpAddr, now: Instant) -> Option<MacAddr> {
        let next = match self.routes.longest(address)?.1 {
            Hop::Direct => address,
            Hop::Via(next) => *next,
        };
        self.neighbour(next, now)
    }

    /// Returns the place of a machine, if it is set or learned.
    pub fn place(&self, mac: MacAddr, now: Instant) -> Option<P> {
        let fixed = self.places.fixed.get(&mac).copied();
        fixed.or_else(|| self.places.learned(mac, now, self.config.lifetime))
    }

    /// Returns the place of a machine, if it is set.
    pub fn place_if_set(&self, mac: MacAddr) -> Option<P> {
        self.places.fixed.get(&mac).copied()
    }

    /// Removes the learned places that are not to be kept.
    pub fn retain_learned(&mut self, keep: impl Fn(P) -> bool) {
        self.places.learned.retain(|_, learned| keep(learned.value));
    }

    /// Returns the machine that has an address, if it is set or learned.
    pub fn neighbour(&self, address: IpAddr, now: Instant) -> Option<MacAddr> {
        let fixed = self.neighbours.fixed.get(&address).copied();
        fixed.or_else(|| self.neighbours.learned(address, now, self.config.lifetime))
    }

    /// Returns the machine of an address that was set, not learned.
    pub fn neighbour_if_set(&self, address: IpAddr) -> Option<MacAddr> {
        self.neighbours.fixed.get(&address).copied()
    }

    /// Returns the reply to a request of ARP or neighbour discovery that went to a group or to the gateway, if the
    /// reply is known: a frame for the requester. The request then need not leave the host.
    pub fn answer(&self, frame: &Frame, bytes: &[u8], now: Instant) -> Option<Vec<u8>> {
        let request = neighbour::address_request(frame, bytes)?;
        let mac = self.neighbour(request.target(), now)?;
        // A sender that announces its own address requests none.
        (mac != frame.source).then(|| request.reply(frame, bytes, mac))
    }

    /// Removes every address at `place`, also set ones.
    pub fn remove_place(&mut self, place: P) {
        self.places.retain(|&known| known != place);
    }

    /// Removes learned addresses that have expired. Expired addresses are never used, and a full
    /// table calls this itself; the call only frees memory.
    pub fn sweep(&mut self, now: Instant) {
        self.places.sweep(now, self.config.lifetime, &mut self.counters);
        self.neighbours.sweep(now, self.config.lifetime, &mut self.counters);
    }

    /// Returns each machine with its place.
    pub fn iter(&self) -> impl Iterator<Item = Entry<MacAddr, P>> {
        self.places.iter()
    }

    /// Returns each address with its machine.
    pub fn neighbours(&self) -> impl Iterator<Item = Entry<IpAddr, MacAddr>> {
        self.neighbours.iter()
    }

    /// Returns the counters of learning.
    pub const fn counters(&self) -> TableCounters {
        self.counters
    }
}

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<A, V> {
    /// The address of a machine.
    pub address: A,
    /// Its place, or the machine that has the address.
    pub value: V,
    /// `true` if it was set, `false` if it was learned.
    pub is_set: bool,
}

/// Values of set and of learned addresses. An address is in one of the two maps.
#[derive(Clone, Debug)]
struct Addresses<A, V> {
    fixed: BTreeMap<A, V>,
    learned: BTreeMap<A, Learned<V>>,
    /// The time of the last sweep of a full table.
    swept: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Learned<V> {
    value: V,
    at: Instant,
    /// `true` if it came on a connection or from a port of this host: no other host could have sent it.
    proved: bool,
}

impl<A, V> Default for Addresses<A, V> {
    fn default() -> Self {
        Self { fixed: BTreeMap::new(), learned: BTreeMap::new(), swept: None }
    }
}

impl<A: Copy + Ord, V: Copy + Eq> Addresses<A, V> {
    fn set(&mut self, address: A, value: Option<V>) {
        self.learned.remove(&address);
        match value {
            Some(value) => self.fixed.insert(address, value),
            None => self.fixed.remove(&address),
        };
    }

    fn learned(&self, address: A, now: Instant, lifetime: Duration) -> Option<V> {
        let learned = self.learned.get(&address)?;
        (now.since(learned.at) < lifetime).then_some(learned.value)
    }

    /// Learns a value. Returns `false` if another one is set.
    fn learn(
        &mut self,
        address: A,
        learned: Learned<V>,
        config: &TableConfig,
        counters: &mut TableCounters,
    ) -> bool {
        if let Some(fixed) = self.fixed.get(&address) {
            let agrees = *fixed == learned.value;
            counters.contradicted += u64::from(!agrees);
            return agrees;
        }
        if let Some(known) = self.learned.get_mut(&address) {
            match learned.at.since(known.at) < config.lifetime {
                true => counters.moved += u64::from(known.value != learned.value),
                false => {
                    (counters.aged, counters.learned) = (counters.aged + 1, counters.learned + 1)
                }
            }
            *known = learned;
            return true;
        }
        if self.learned.len() >= config.max_learned && !self.make_room(learned.at, config, counters)
        {
            counters.full += 1;
            return true;
        }
        counters.learned += 1;
        self.learned.insert(address, learned);
        true
    }

    /// Learns an unproved value unless a proved one is known. Returns `false` if it contradicts that one.
    fn introduce(
        &mut self,
        address: A,
        learned: Learned<V>,
        config: &TableConfig,
        counters: &mut TableCounters,
    ) -> bool {
        let proved =
            |known: &&Learned<V>| known.proved && learned.at.since(known.at) < config.lifetime;
        let Some(known) = self.learned.get(&address).filter(proved) else {
            self.learn(address, learned, config, counters);
            return true;
        };
        let agrees = known.value == learned.value;
        counters.contradicted += u64::from(!agrees);
        agrees
    }

    /// Returns `true` if an address was set to `value`, or `value` was proved.
    fn is_proved(&self, address: A, value: V, now: Instant, lifetime: Duration) -> bool {
        let proved = |known: &Learned<V>| {
            known.value == value && known.proved && now.since(known.at) < lifetime
        };
        self.fixed
            .get(&address)
            .map_or_else(|| self.learned.get(&address).is_some_and(proved), |fixed| *fixed == value)
    }

    fn remove_learned(&mut self, address: A, value: V) {
        if self.learned.get(&address).is_some_and(|known| known.value == value) {
            self.learned.remove(&address);
        }
    }

    /// Removes expired addresses, at most once per second: a tenant that invents addresses must
    /// not cause a scan of the table for every frame. Returns `true` if there is room now.
    fn make_room(
        &mut self,
        now: Instant,
        config: &TableConfig,
        counters: &mut TableCounters,
    ) -> bool {
        if self.swept.is_some_and(|swept| now.since(swept) < Duration::from_secs(1)) {
            return false;
        }
        self.swept = Some(now);
        self.sweep(now, config.lifetime, counters);
        self.learned.len() < config.max_learned
    }

    fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.fixed.retain(|_, value| keep(value));
        self.learned.retain(|_, learned| keep(&learned.value));
    }

    fn sweep(&mut self, now: Instant, lifetime: Duration, counters: &mut TableCounters) {
        let before = self.learned.len();
        self.learned.retain(|_, learned| now.since(learned.at) < lifetime);
        counters.aged += (before - self.learned.len()) as u64;
    }

    fn iter(&self) -> impl Iterator<Item = Entry<A, V>> {
        let entry = |address, value, is_set| Entry { address, value, is_set };
        let fixed = self.fixed.iter().map(move |(&address, &value)| entry(address, value, true));
        let learned =
            self.learned.iter().map(move |(&address, known)| entry(address, known.value, false));
        fixed.chain(learned)
    }
}

#[cfg(test)]
mod tests;
