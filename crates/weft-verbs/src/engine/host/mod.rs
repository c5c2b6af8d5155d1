//! The device of this process, between the program and the sockets: one turn handles arrivals and timeouts, sends
//! packets, and delivers completions and events to the program's queues.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::epoll;

use weft_rnic::{Device, Event, LeasedAccess, QueuePairNumber, SendRequest, VerbsError};
use weft_udp::{Clock, Driver, Node as _, SocketSet as _};
use weft_units::{Duration, Instant};

use super::links::Links;
use super::memory::{Fault, HeldPayload};
use super::same_host::{Change, Neighbours};
use super::show::Shown;

mod arrivals;
mod execution;
mod node;
mod watchers;

use node::{DeviceNode, push};

pub(crate) use watchers::{Asynchronous, Channel, Object, Watcher, Watchers};

/// Maximum number of turns that handle arrivals before a queue pair ends: other processes of the host may continue to
/// send.
const LAST_TURNS: u32 = 16;

/// The local address while no datagrams are read.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The state of a send request after it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// It is done, in a neighbour's memory: nothing is left to be sent for it.
    Executed,
    /// It is in the send queue.
    Queued,
}

/// The state under the engine's lock.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) device: Device,
    /// The sockets of all addresses, and the keys of connections over them.
    pub(crate) driver: Driver<Links>,
    pub(crate) neighbours: Neighbours,
    pub(crate) watchers: Watchers,
    /// The transport of its connections, in rows of name and value.
    pub(crate) transport: Vec<(String, String)>,
    held: HeldPayload,
    /// Faults of memory since they were last taken.
    faults: Vec<Fault>,
    turns: u32,
    /// `true` if the last turn ended with packets left to send.
    unsent: bool,
    /// `true` if no address is active: none has received or sent a packet for long.
    is_quiet: bool,
    /// The start of the last turn.
    turned_at: Instant,
    shown: Option<Shown>,
}

/// Number of turns between reads of sockets that have not received anything yet: each read is a system call.
const QUIET_EVERY: u32 = 64;

/// Number of turns between reads of the network while neighbours send in every turn.
const NETWORK_EVERY: u32 = 16;

/// The time between turns for which glances at neighbours suffice, while a program polls. A turn takes as long as
/// several glances, and misses packets that a neighbour writes meanwhile.
const GLANCES: Duration = Duration::from_micros(2);

/// Number of checks of the rings before a poll returns nothing.
const MAX_CHECKS: u32 = 6;

impl Host {
    pub(crate) fn new(
        device: Device,
        driver: Driver<Links>,
        neighbours: Neighbours,
        shown: Option<Shown>,
    ) -> Self {
        Self {
            device,
            driver,
            neighbours,
            watchers: Watchers::default(),
            transport: Vec::new(),
            held: HeldPayload::default(),
            faults: Vec::new(),
            turns: 0,
            unsent: false,
            is_quiet: false,
            turned_at: Instant::EPOCH,
            shown,
        }
    }

    /// Returns the driver, and the device as its node; datagrams arrive at `local`.
    fn parts(&mut self, local: IpAddr) -> (&mut Driver<Links>, DeviceNode<'_>) {
        let Self { device, driver, neighbours, held, faults, .. } = self;
        let node =
            DeviceNode { device, neighbours, held, faults, local, sent: 0, has_unsent: false };
        (driver, node)
    }

    /// Publishes the device's state for `weft stat`, if due.
    pub(crate) fn show(&mut self, now: Instant) {
        if let Some(shown) = &mut self.shown {
            shown.refresh(now, &self.device, &self.driver.seals, self.neighbours.executed());
        }
    }

    /// Returns the time of the next publication, if there was activity since the last.
    pub(crate) fn next_show(&self) -> Option<Instant> {
        self.shown.as_ref().and_then(|shown| shown.due(&self.device, self.neighbours.executed()))
    }

    pub(crate) fn now(&self) -> Instant {
        self.driver.now()
    }

    /// Runs one turn, which begins at `now`, without waiting. Returns the number of packets received and sent.
    pub(crate) fn turn(&mut self, now: Instant) -> usize {
        self.turn_with(now, self.turns.is_multiple_of(QUIET_EVERY))
    }

    /// Handles all arrivals before a queue pair ends: a program that disconnects because of the peer's message over
    /// another connection (`rdma_disconnect`) would flush requests that the peer has acknowledged, and messages that it
    /// sent before.
    pub(crate) fn ingest_arrived(&mut self, now: Instant) {
        for _ in 0..LAST_TURNS {
            if self.turn_with(now, true) == 0 {
                return;
            }
        }
    }

    /// Returns `true` if it has neighbours, and the network is quiet.
    pub(crate) fn neighbours_only(&self) -> bool {
        self.neighbours.len() > 0 && self.is_quiet
    }

    /// Returns `true` if a glance was enough: no answer is pending, and the last full turn was recent.
    pub(crate) fn glance_suffices(&self, now: Instant) -> bool {
        !self.unsent && now.since(self.turned_at) < GLANCES
    }

    /// Handles one packet of each neighbour, and leaves the answers for later: the program, which may be waiting for
    /// that packet, calls again at once. Returns `true` if there was any.
    #[inline]
    pub(crate) fn glance(&mut self, now: Instant) -> bool {
        self.neighbours.have_records() && self.take_one_each(now)
    }

    /// Watches the rings for as long as a program takes to poll again: packets in between are seen at once.
    #[inline]
    pub(crate) fn watch_rings(&self) {
        let _ = (0..MAX_CHECKS).any(|_| {
            core::hint::spin_loop();
            self.neighbours.have_records()
        });
    }

    fn take_one_each(&mut self, now: Instant) -> bool {
        let taken = self.apply_link_changes() + self.take_packets(now, 1) > 0;
        // An acknowledgement waits: the program may answer, and any later message may arrive while the peer's program
        // watches its memory, and would have to wait for the peer's thread.
        self.unsent |= taken && self.device.has_messages_for_links();
        taken
    }

    /// Runs one turn with or without the sockets that have not received anything yet. Returns the number of packets
    /// received and sent.
    pub(crate) fn turn_with(&mut self, mut now: Instant, quiet_ones: bool) -> usize {
        self.turns = self.turns.wrapping_add(1);
        self.turned_at = now;
        let mut received = self.take_from_neighbours(now, quiet_ones);
        if received > 0 && !self.turns.is_multiple_of(NETWORK_EVERY) {
            // Neighbours get the answer before the network is read, which takes longer than all this.
            return received + self.transmit(now);
        }
        if quiet_ones || !self.is_quiet {
            received += self.take_from_network(quiet_ones);
        }
        if received > 0 {
            now = self.now();
        }
        let mut busy = received > 0 || self.has_unsent();
        let (driver, mut node) = self.parts(NOWHERE);
        busy |= driver.receive_strays(now, &mut node);
        if node.device.poll_timeout().is_some_and(|due| due <= now) {
            node.handle_timeout(now);
            busy = true;
        }
        if !busy {
            return 0;
        }
        received + self.transmit(now)
    }

    /// Runs one turn with all sockets, and delivers completions and events to the program's queues. Returns `true` if
    /// there was work.
    pub(crate) fn turn_and_deliver(&mut self, now: Instant) -> bool {
        let handled = self.turn_with(now, true);
        self.deliver();
        handled > 0
    }

    /// Returns `true` if packets may leave now that could not before.
    fn has_unsent(&self) -> bool {
        let owes =
            self.unsent || self.device.has_packets_for_links() || self.device.has_leased_access();
        owes || self.driver.sockets.waiting() > 0 || self.neighbours.is_full()
    }

    /// Returns one descriptor that is readable when any packet arrives.
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub(crate) fn arrivals(&self) -> rustix::io::Result<OwnedFd> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for socket in self.driver.sockets.readable().chain([self.neighbours.watch()]) {
            epoll::add(&set, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(set)
    }

    /// Returns the sockets for packets and neighbours, and the file for `weft stat`.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let sockets = self.driver.sockets.readable().chain(self.neighbours.descriptors());
        let board = self.shown.as_ref().map(|shown| shown.file().as_raw_fd());
        sockets.map(|socket| socket.as_raw_fd()).chain(board).collect()
    }

    /// Ends all connections. Returns when peers have received the last messages, after `linger` at the latest.
    pub(crate) fn end(&mut self, linger: Duration) {
        self.shown = None;
        let until = self.now() + linger;
        loop {
            let now = self.now();
            let over = self.device.shut_down(now);
            self.transmit(now);
            let worked = self.turn(now) > 0;
            if over && !self.neighbours.is_full() || now >= until {
                return;
            }
            if !worked {
                let due = self.next_due().map_or(until, |due| due.min(until));
                self.driver.sockets.wait(due.since(now));
            }
        }
    }

    /// Sends packets; returns their number. It sends none while a fault is not handled: a peer would get an
    /// acknowledgement of a write that failed.
    pub(crate) fn transmit(&mut self, now: Instant) -> usize {
        self.update_leases(now);
        if !self.faults.is_empty() {
            return 0;
        }
        let (driver, mut node) = self.parts(NOWHERE);
        let over_network = driver.transmit(now, &mut node);
        let DeviceNode { sent, has_unsent, .. } = node;
        self.is_quiet &= over_network == 0;
        self.unsent = has_unsent;
        sent
    }

    /// Revokes leases of neighbours, and uses the leases they granted.
    #[inline]
    fn update_leases(&mut self, now: Instant) {
        let Self { device, neighbours, .. } = self;
        loop {
            while let Some(change) = device.poll_lease_event() {
                neighbours.notify(&change);
            }
            let execute = |request: &LeasedAccess<'_>| {
                neighbours.execute_leased(request).then(|| Clock.now())
            };
            if !device.poll_leased_access(now, execute) {
                return;
            }
        }
    }

    /// Posts a send request. It may be done, or its packet in a neighbour's ring, when this returns.
    #[inline]
    pub(crate) fn post_send(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
    ) -> Result<Posted, VerbsError> {
        let Self { device, neighbours, .. } = self;
        if device.execute_at_once(qp, request, |access| neighbours.execute_mapped(access)) {
            return Ok(Posted::Executed);
        }
        self.queue_send(now, qp, request).map(|()| Posted::Queued)
    }

    fn queue_send(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
    ) -> Result<(), VerbsError> {
        let Self { device, driver, neighbours, .. } = self;
        let links = &driver.sockets;
        let mut full = None;
        device.post_send_and_transmit(now, qp, request, |packet, source| {
            let link = packet.link.expect("packets leave at once over links");
            full = push(link, packet, source, links, neighbours);
        })?;
        full.into_iter().for_each(|link| device.pause_link(link));
        Ok(())
    }

    /// Takes the faults of memory; consecutive faults of one owner are one.
    pub(crate) fn take_faults(&mut self) -> Vec<Fault> {
        let mut faults = core::mem::take(&mut self.faults);
        faults.dedup();
        faults
    }

    /// Reaches `peer` without the network from now on, if it is a neighbour with mutual access.
    pub(crate) fn meet(&mut self, peer: SocketAddr) {
        if let Some(link) = self.neighbours.meet(peer) {
            self.apply_link_changes();
            self.device.route_over(peer, link);
        }
    }

    /// Informs the device of new and closed links. Returns their number.
    fn apply_link_changes(&mut self) -> usize {
        let mut applied = 0;
        while let Some(change) = self.neighbours.poll_change() {
            applied += 1;
            let now = self.driver.now();
            match change {
                Change::Up(link) => self.device.link_up(now, link),
                Change::Down(link) => self.device.link_down(now, link),
            }
        }
        applied
    }

    /// Returns the time of the next timeout, or of room in a full socket, whichever is earlier.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.device.poll_timeout().into_iter().chain(self.driver.sockets.room_at()).min()
    }

    /// Delivers completions and events to the program's queues.
    pub(crate) fn deliver(&mut self) {
        while let Some(event) = self.next_event() {
            self.watchers.notify(event);
        }
    }

    /// Returns the next event that concerns a program.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        loop {
            match self.device.poll_event()? {
                Event::ReleaseHeld { connection } => self.held.forget(connection),
                event => return Some(event),
            }
        }
    }
}
