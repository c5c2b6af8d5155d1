//! Where the addresses of one tenant's network are, and who has which.
//!
//! Each network has a table of its own, so tenants with the same addresses never meet. What was set
//! is believed whatever is heard; what is heard is believed for a while, and there is only so much
//! room for it. A place is a port of this host or another host: the table does not care which.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use weft_units::{Duration, Instant};
use weft_wire::MacAddr;

use crate::{Frame, GATEWAY, Hop, Prefix, PrefixMap, neighbour};

/// How long and how much a table learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "kebab-case"))]
pub struct TableConfig {
    /// How long an address that was heard is believed. 300 s (IEEE 802.1Q, table 8-6).
    pub lifetime: Duration,
    /// Learned addresses at most, of Ethernet and of IP each: a tenant that makes addresses up fills
    /// its own network's table only, and this much of it.
    pub most_learned: usize,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self { lifetime: Duration::from_secs(300), most_learned: 16_384 }
    }
}

/// What became of what was heard. All of them only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TableCounters {
    /// Addresses heard for the first time, or again after they were forgotten.
    pub learned: u64,
    /// Addresses heard from another place, or of another machine, than before.
    pub moved: u64,
    /// Addresses that were set, or proved, and were heard elsewhere: what was heard is not believed.
    pub contradicted: u64,
    /// Addresses not learned because the table was full.
    pub full: u64,
    /// Addresses forgotten because they were not heard for a lifetime.
    pub aged: u64,
}

/// One network's addresses, at places `P`.
#[derive(Clone, Debug)]
pub struct Table<P> {
    config: TableConfig,
    routes: PrefixMap<Hop>,
    places: Addresses<MacAddr, P>,
    neighbours: Addresses<IpAddr, MacAddr>,
    counters: TableCounters,
}

impl<P: Copy + Eq> Table<P> {
    /// An empty table.
    pub fn new(config: TableConfig) -> Self {
        Self {
            config,
            routes: PrefixMap::default(),
            places: Addresses::default(),
            neighbours: Addresses::default(),
            counters: TableCounters::default(),
        }
    }

    /// Says for good where a machine is; `None` takes that back.
    pub fn set_mac(&mut self, mac: MacAddr, place: Option<P>) {
        self.places.set(mac, place);
    }

    /// Says where the gateway sends the packets of a prefix; `None` takes that back.
    pub fn set_route(&mut self, prefix: Prefix, hop: Option<Hop>) {
        match hop {
            Some(hop) => self.routes.insert(prefix, hop),
            None => self.routes.remove(&prefix),
        };
    }

    /// Says for good which machine has an address; `None` takes that back.
    pub fn set_neighbour(&mut self, address: IpAddr, mac: Option<MacAddr>) {
        self.neighbours.set(address, mac);
    }

    /// A frame came from `place`: its sender is there, and where it says by ARP or neighbour discovery
    /// which address it has, it has it. `bytes` are the frame's, at least
    /// [`LOOK_AHEAD`](Frame::LOOK_AHEAD) of them.
    pub fn learn(&mut self, frame: &Frame, bytes: &[u8], place: P, now: Instant) {
        self.learn_place(frame.source, place, now);
        let Self { config, counters, neighbours, .. } = self;
        if let Some((address, mac)) = neighbour::announced(frame, bytes)
            && frame.source != GATEWAY
        {
            neighbours.learn(
                address,
                Heard { value: mac, at: now, proved: true },
                config,
                counters,
            );
        }
    }

    /// A machine is at `place`.
    pub fn learn_place(&mut self, mac: MacAddr, place: P, now: Instant) {
        // The gateway is everywhere.
        if mac != GATEWAY {
            let Self { config, counters, places, .. } = self;
            places.learn(mac, Heard { value: place, at: now, proved: true }, config, counters);
        }
    }

    /// A frame says that it came from `place`, and nothing proves it. It teaches what is not known, or known from such
    /// frames alone. Who has an IP address it may change only from one machine to another that is proved to be there.
    /// Returns `false` if it contradicts what was proved: the host at `place` would have to be asked.
    pub fn introduce(&mut self, frame: &Frame, bytes: &[u8], place: P, now: Instant) -> bool {
        if frame.source == GATEWAY {
            return true;
        }
        let Self { config, counters, places, neighbours, .. } = self;
        let heard = Heard { value: place, at: now, proved: false };
        let mut agrees = places.introduce(frame.source, heard, config, counters);
        if let Some((address, mac)) = neighbour::announced(frame, bytes) {
            let heard = Heard { value: mac, at: now, proved: false };
            if places.is_proved(mac, place, now, config.lifetime) {
                neighbours.learn(address, heard, config, counters);
            } else {
                agrees &= neighbours.introduce(address, heard, config, counters);
            }
        }
        agrees
    }

    /// Forgets where a machine was heard, if it was at `place`.
    pub fn forget_heard(&mut self, mac: MacAddr, place: P) {
        self.places.forget_heard(mac, place);
    }

    /// Where a frame's destination is, if that was set or heard.
    pub fn find(&self, frame: &Frame, now: Instant) -> Option<P> {
        if frame.destination.is_group() {
            return None;
        }
        self.place(frame.destination, now)
    }

    /// The machine to which the gateway sends a packet for `address`: the longest route says whose address to look
    /// for. `None` where no route leads, or where nobody is known to have that address.
    pub fn next_machine(&self, address: IpAddr, now: Instant) -> Option<MacAddr> {
        let next = match self.routes.longest(address)?.1 {
            Hop::Direct => address,
            Hop::Via(next) => *next,
        };
        self.neighbour(next, now)
    }

    /// Where a machine is, if that was set or heard.
    pub fn place(&self, mac: MacAddr, now: Instant) -> Option<P> {
        let fixed = self.places.fixed.get(&mac).copied();
        fixed.or_else(|| self.places.heard(mac, now, self.config.lifetime))
    }

    /// Which machine has an address, if that was set or heard.
    pub fn neighbour(&self, address: IpAddr, now: Instant) -> Option<MacAddr> {
        let fixed = self.neighbours.fixed.get(&address).copied();
        fixed.or_else(|| self.neighbours.heard(address, now, self.config.lifetime))
    }

    /// The answer to a question that went to everybody or to the gateway, ARP's or neighbour discovery's, when the
    /// answer is known: a frame for who asked. The question then need not leave the host.
    pub fn answer(&self, frame: &Frame, bytes: &[u8], now: Instant) -> Option<Vec<u8>> {
        let question = neighbour::question(frame, bytes)?;
        let mac = self.neighbour(question.target(), now)?;
        // Who announces its own address asks nobody.
        (mac != frame.source).then(|| question.answer(frame, bytes, mac))
    }

    /// Forgets every address at `place`, also those that were set.
    pub fn forget(&mut self, place: P) {
        self.places.retain(|&known| known != place);
    }

    /// Forgets what was not heard for a lifetime. Nothing outdated is believed without this, and a full
    /// table does it by itself; it gives memory back.
    pub fn sweep(&mut self, now: Instant) {
        self.places.sweep(now, self.config.lifetime, &mut self.counters);
        self.neighbours.sweep(now, self.config.lifetime, &mut self.counters);
    }

    /// Where each machine is, and whether that was set.
    pub fn iter(&self) -> impl Iterator<Item = (MacAddr, P, bool)> {
        self.places.iter()
    }

    /// Which machine has each address, and whether that was set.
    pub fn neighbours(&self) -> impl Iterator<Item = (IpAddr, MacAddr, bool)> {
        self.neighbours.iter()
    }

    /// What became of what was heard.
    pub const fn counters(&self) -> TableCounters {
        self.counters
    }
}

/// Values of addresses that were set, and of addresses that were heard. An address is in one of them.
#[derive(Clone, Debug)]
struct Addresses<A, V> {
    fixed: BTreeMap<A, V>,
    learned: BTreeMap<A, Heard<V>>,
    /// When it was last looked through for what is outdated, because it was full.
    swept: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Heard<V> {
    value: V,
    at: Instant,
    /// `true` if it came on a connection or from a port of this host: nobody else could have sent it.
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

    fn heard(&self, address: A, now: Instant, lifetime: Duration) -> Option<V> {
        let heard = self.learned.get(&address)?;
        (now.since(heard.at) < lifetime).then_some(heard.value)
    }

    fn learn(
        &mut self,
        address: A,
        heard: Heard<V>,
        config: &TableConfig,
        counters: &mut TableCounters,
    ) {
        if let Some(fixed) = self.fixed.get(&address) {
            counters.contradicted += u64::from(*fixed != heard.value);
            return;
        }
        if let Some(known) = self.learned.get_mut(&address) {
            match heard.at.since(known.at) < config.lifetime {
                true => counters.moved += u64::from(known.value != heard.value),
                false => {
                    (counters.aged, counters.learned) = (counters.aged + 1, counters.learned + 1)
                }
            }
            *known = heard;
            return;
        }
        if self.learned.len() >= config.most_learned && !self.make_room(heard.at, config, counters)
        {
            counters.full += 1;
            return;
        }
        counters.learned += 1;
        self.learned.insert(address, heard);
    }

    /// Learns what was not proved, unless it is known better. Returns `false` if it contradicts what was proved.
    fn introduce(
        &mut self,
        address: A,
        heard: Heard<V>,
        config: &TableConfig,
        counters: &mut TableCounters,
    ) -> bool {
        let proved = |known: &&Heard<V>| known.proved && heard.at.since(known.at) < config.lifetime;
        let Some(known) = self.learned.get(&address).filter(proved) else {
            self.learn(address, heard, config, counters);
            return true;
        };
        let agrees = known.value == heard.value;
        counters.contradicted += u64::from(!agrees);
        agrees
    }

    /// Returns `true` if an address was set to `value`, or that was proved.
    fn is_proved(&self, address: A, value: V, now: Instant, lifetime: Duration) -> bool {
        let proved = |known: &Heard<V>| {
            known.value == value && known.proved && now.since(known.at) < lifetime
        };
        self.fixed
            .get(&address)
            .map_or_else(|| self.learned.get(&address).is_some_and(proved), |fixed| *fixed == value)
    }

    fn forget_heard(&mut self, address: A, value: V) {
        if self.learned.get(&address).is_some_and(|known| known.value == value) {
            self.learned.remove(&address);
        }
    }

    /// Forgets what is outdated, not more often than each second: a tenant that makes addresses up must
    /// not make every frame look through the table.
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
        self.learned.len() < config.most_learned
    }

    fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.fixed.retain(|_, value| keep(value));
        self.learned.retain(|_, heard| keep(&heard.value));
    }

    fn sweep(&mut self, now: Instant, lifetime: Duration, counters: &mut TableCounters) {
        let before = self.learned.len();
        self.learned.retain(|_, heard| now.since(heard.at) < lifetime);
        counters.aged += (before - self.learned.len()) as u64;
    }

    fn iter(&self) -> impl Iterator<Item = (A, V, bool)> {
        let fixed = self.fixed.iter().map(|(&address, &value)| (address, value, true));
        let learned = self.learned.iter().map(|(&address, heard)| (address, heard.value, false));
        fixed.chain(learned)
    }
}

#[cfg(test)]
mod tests;
