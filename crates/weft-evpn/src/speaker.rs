//! The speaker: sessions with all neighbours, the routes of this host, and the places of machines that follow from both.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use weft_units::{Instant, Rng, Seed};
use weft_wire::MacAddr;

use crate::Notification;
use crate::machine::Machine;
use crate::notification::{cease, code};
use crate::open::FAMILY;
use crate::own::{Machines, Own, SpeakerConfig};
use crate::rib::{Changed, Rib};
use crate::route::RouteTarget;
use crate::session::{NeighbourConfig, Session, SessionCounters, SessionEnd, SessionEvent, State};
use crate::update::{Context, Update};

/// A request to the owner of the sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a connection to this neighbour.
    Connect(IpAddr),
    /// Send these last bytes to this neighbour, as far as that needs no wait, and close the connection or the attempt.
    Close(IpAddr, Vec<u8>),
}

/// The new state of an entry that follows from the routes. The same state may be reported again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The place of a machine on another host; `None` if it has none there.
    Machine {
        /// The network's number.
        vni: u32,
        /// The machine.
        mac: MacAddr,
        /// The host.
        at: Option<IpAddr>,
    },
    /// The machine of another host that has an IP address; `None` if there is none.
    Address {
        /// The network's number.
        vni: u32,
        /// The address.
        address: IpAddr,
        /// The machine.
        mac: Option<MacAddr>,
    },
    /// The hosts to which routes of a network lead: `true` for those that receive its broadcasts.
    Vteps {
        /// The network's number.
        vni: u32,
        /// The hosts.
        vteps: BTreeMap<IpAddr, bool>,
    },
}

/// The state of the session with a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourView {
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: u32,
    /// The state of the session.
    pub state: State,
    /// The time of the last change to or from `Established`.
    pub since: Instant,
    /// Number of routes that the neighbour has announced and not withdrawn.
    pub routes_received: usize,
    /// Number of routes that the neighbour has of this speaker.
    pub routes_sent: usize,
    /// Numbers of events.
    pub counters: SessionCounters,
    /// The reason that the last session ended, or the last fault of a message; `None` after a session was established.
    pub error: Option<String>,
}

/// A BGP speaker for EVPN.
#[derive(Debug)]
pub struct Speaker {
    config: SpeakerConfig,
    rng: Rng,
    sessions: BTreeMap<IpAddr, Session>,
    machines: Machines,
    own: Own,
    rib: Rib,
    unpublished: Changed,
    actions: VecDeque<Action>,
}

impl Speaker {
    /// Creates a speaker without neighbours. `seed` spreads its attempts to connect.
    pub fn new(config: SpeakerConfig, seed: Seed) -> Self {
        Self {
            config,
            rng: seed.rng(),
            sessions: BTreeMap::new(),
            machines: Machines::new(),
            own: Own::new(config),
            rib: Rib::new(config.vtep),
            unpublished: Changed::default(),
            actions: VecDeque::new(),
        }
    }

    // Commands from the owner.

    /// Replaces the neighbours. Sessions with those that stay the same are not disturbed.
    pub fn set_neighbours(&mut self, now: Instant, neighbours: &[NeighbourConfig]) {
        let wanted: BTreeMap<_, _> = neighbours.iter().map(|it| (it.address, it)).collect();
        let known: Vec<_> = self.sessions.iter().map(|(&at, it)| (at, it.config.clone())).collect();
        for (address, config) in known {
            let subcode = match wanted.get(&address) {
                Some(wanted) if **wanted == config => continue,
                Some(_) => cease::CONFIGURATION,
                None => cease::REMOVED,
            };
            self.end(now, address, &Notification::new(code::CEASE, subcode).into());
            self.sessions.remove(&address);
        }
        for (&address, &config) in &wanted {
            let context = self.context(config);
            let new = || Session::new(now, config.clone(), context);
            self.sessions.entry(address).or_insert_with(new);
        }
        self.evaluate();
    }

    /// Ends all sessions, because this speaker stops.
    pub fn shut_down(&mut self, now: Instant) {
        for address in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.end(now, address, &Notification::new(code::CEASE, cease::SHUTDOWN).into());
        }
        self.evaluate();
    }

    /// Replaces the networks that take part, by number, with their route targets. Without any, a network announces the
    /// target of this AS and its number, and imports that of any AS.
    pub fn set_networks(&mut self, networks: BTreeMap<u32, BTreeSet<RouteTarget>>) {
        self.own.set_networks(&networks);
        self.rib.set_targets(networks);
        self.evaluate();
        self.refresh_own();
    }

    /// Replaces the machines of this host's ports, with their IP addresses. A machine that was not there before is announced
    /// as moved here if another host has announced it.
    pub fn set_machines(&mut self, machines: BTreeMap<(u32, MacAddr), BTreeSet<IpAddr>>) {
        let gone: Vec<_> =
            self.machines.keys().filter(|key| !machines.contains_key(key)).copied().collect();
        for key in gone {
            self.machines.remove(&key);
            self.rib.changed.machines.insert(key);
        }
        for (key, addresses) in machines {
            if let Some(machine) = self.machines.get_mut(&key) {
                machine.addresses = addresses;
                continue;
            }
            let machine = Machine::new(addresses, self.rib.best(key));
            self.machines.insert(key, machine);
            self.rib.changed.machines.insert(key);
        }
        self.evaluate();
        self.refresh_own();
    }

    /// Handles a frame of a machine of this host that counts as being elsewhere: it has come back, unless it comes and goes
    /// too often (RFC 7432, section 15.1).
    pub fn on_frame(&mut self, now: Instant, vni: u32, mac: MacAddr) {
        let key = (vni, mac);
        if let (Some(machine), Some(best)) = (self.machines.get_mut(&key), self.rib.best(key))
            && machine.claim(now, best)
        {
            self.rib.changed.machines.insert(key);
            self.evaluate();
        }
    }

    // Inputs.

    /// Handles a connection to a neighbour that is set up.
    pub fn on_connected(&mut self, now: Instant, neighbour: IpAddr) {
        if let Some(session) = self.sessions.get_mut(&neighbour) {
            session.on_connected(now);
        }
    }

    /// Handles the end of a connection to a neighbour, or of an attempt at one, with the reason.
    pub fn on_disconnected(&mut self, now: Instant, neighbour: IpAddr, reason: &str) {
        let is_open = self.sessions.get(&neighbour).is_some_and(|it| it.state > State::Idle);
        if is_open {
            self.end(now, neighbour, &SessionEnd::Failed(reason.into()));
            self.evaluate();
        }
    }

    /// Handles bytes that arrived from a neighbour.
    pub fn handle_bytes(&mut self, now: Instant, neighbour: IpAddr, bytes: &[u8]) {
        let Some(session) = self.sessions.get_mut(&neighbour) else { return };
        session.push(bytes);
        while let Some(session) = self.sessions.get_mut(&neighbour) {
            let done = match session.next(now) {
                Ok(None) => break,
                Ok(Some(event)) => self.handle_event(neighbour, event),
                Err(end) => Err(end),
            };
            if let Err(end) = done {
                self.end(now, neighbour, &end);
                break;
            }
        }
        self.evaluate();
    }

    /// Handles due timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        for address in self.sessions.keys().copied().collect::<Vec<_>>() {
            let Some(session) = self.sessions.get_mut(&address) else { continue };
            match session.handle_timeout(now) {
                Ok(false) => {}
                Ok(true) => self.actions.push_back(Action::Connect(address)),
                Err(end) => self.end(now, address, &end),
            }
        }
        self.evaluate();
    }

    // Outputs.

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sessions.values().map(Session::poll_timeout).min()
    }

    /// Returns the next request to the owner of the sockets.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the bytes to send to a neighbour.
    pub fn output(&mut self, neighbour: IpAddr) -> &[u8] {
        let Self { sessions, own, .. } = self;
        let Some(session) = sessions.get_mut(&neighbour) else { return &[] };
        let context = session.context;
        session.write_routes(|key, out| own.emit(key, &context, out));
        session.output()
    }

    /// Removes bytes of [`output`](Self::output) that were sent.
    pub fn consume(&mut self, neighbour: IpAddr, len: usize) {
        if let Some(session) = self.sessions.get_mut(&neighbour) {
            session.consume(len);
        }
    }

    /// Returns the next entry that may have changed.
    pub fn poll_change(&mut self) -> Option<Change> {
        if let Some((vni, mac)) = self.unpublished.machines.pop_first() {
            let at = self.place((vni, mac));
            return Some(Change::Machine { vni, mac, at });
        }
        if let Some((vni, address)) = self.unpublished.addresses.pop_first() {
            let is_at = |mac, vtep| self.place((vni, mac)) == Some(vtep);
            let mac = self.rib.owner(vni, address, is_at);
            return Some(Change::Address { vni, address, mac });
        }
        let vni = self.unpublished.vteps.pop_first()?;
        Some(Change::Vteps { vni, vteps: self.rib.vteps(vni) })
    }

    // Getters.

    /// Returns the state of the session with each neighbour.
    pub fn neighbours(&self) -> impl Iterator<Item = NeighbourView> + '_ {
        self.sessions.iter().map(|(&address, session)| {
            let is_established = session.state == State::Established;
            NeighbourView {
                address,
                asn: session.config.asn,
                state: session.state,
                since: session.since,
                routes_received: self.rib.count(address),
                routes_sent: if is_established {
                    self.own.count_without(&session.unsent)
                } else {
                    0
                },
                counters: session.counters,
                error: session.error.clone(),
            }
        })
    }

    /// Returns the machines of this host's ports that others announce too, again and again: they stay where the others say.
    pub fn duplicates(&self) -> impl Iterator<Item = (u32, MacAddr)> + '_ {
        let duplicates = self.machines.iter().filter(|(_, it)| it.is_duplicate);
        duplicates.map(|(&key, _)| key)
    }

    // Inside.

    fn context(&self, neighbour: &NeighbourConfig) -> Context {
        let SpeakerConfig { asn, router_id, .. } = self.config;
        Context { asn, router_id, is_internal: neighbour.asn == asn }
    }

    /// Returns the host that has a machine, if it is another one.
    fn place(&self, key: (u32, MacAddr)) -> Option<IpAddr> {
        let is_here = self.machines.get(&key).is_some_and(|machine| machine.is_here);
        if is_here { None } else { self.rib.best(key).map(|best| best.vtep) }
    }

    fn handle_event(&mut self, neighbour: IpAddr, event: SessionEvent) -> Result<(), SessionEnd> {
        match event {
            SessionEvent::Established | SessionEvent::Refresh => {
                if let Some(session) = self.sessions.get_mut(&neighbour) {
                    session.unsent.extend(self.own.keys());
                }
                Ok(())
            }
            SessionEvent::Update(update) => self.handle_update(neighbour, update),
        }
    }

    fn handle_update(&mut self, neighbour: IpAddr, update: Update) -> Result<(), SessionEnd> {
        let Some(session) = self.sessions.get(&neighbour) else { return Ok(()) };
        let max = session.config.max_routes;
        for key in update.withdrawn {
            self.rib.remove(neighbour, key);
        }
        let attributes = Arc::new(update.attributes);
        for nlri in &update.announced {
            self.rib.insert(neighbour, nlri, &attributes);
            if self.rib.count(neighbour) > max {
                // RFC 4486, section 4.
                let [family, sub, safi] = FAMILY;
                let [a, b, c, d] = u32::try_from(max).unwrap_or(u32::MAX).to_be_bytes();
                let data = [family, sub, safi, a, b, c, d];
                return Err(Notification::with(code::CEASE, cease::MAX_ROUTES, &data).into());
            }
        }
        Ok(())
    }

    /// Ends a session. Its routes are forgotten at once (RFC 4271, section 8.2.2).
    fn end(&mut self, now: Instant, neighbour: IpAddr, end: &SessionEnd) {
        let Some(session) = self.sessions.get_mut(&neighbour) else { return };
        if let Some(last) = session.end(now, end, &mut self.rng) {
            self.actions.push_back(Action::Close(neighbour, last));
        }
        self.rib.remove_neighbour(neighbour);
    }

    /// Decides on the place of every machine whose routes have changed.
    fn evaluate(&mut self) {
        let Changed { machines, .. } = &self.rib.changed;
        let mut own_changed = false;
        for key in machines.iter().copied().collect::<Vec<_>>() {
            if let Some(machine) = self.machines.get_mut(&key) {
                own_changed |= machine.evaluate(self.rib.best(key), self.config.vtep);
            }
            self.rib.touch_addresses(key);
        }
        if own_changed {
            self.refresh_own();
        }
        let Changed { machines, addresses, vteps } = core::mem::take(&mut self.rib.changed);
        self.unpublished.machines.extend(machines);
        self.unpublished.addresses.extend(addresses);
        self.unpublished.vteps.extend(vteps);
    }

    /// Announces and withdraws routes of this host as its networks and machines have changed.
    fn refresh_own(&mut self) {
        let keys = self.own.refresh(&self.machines);
        let established = self.sessions.values_mut().filter(|it| it.state == State::Established);
        established.for_each(|session| session.unsent.extend(&keys));
    }
}
