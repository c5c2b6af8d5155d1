//! The device of this process, between the program and the sockets: one turn takes in what arrived, does
//! what is due, sends what may leave, and tells the program's queues what happened.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::epoll;

use weft_agent::{Clock, KeyLog};
use weft_rnic::{Device, Event, QueuePairNumber, Reach, SendRequest, Source, Transmit, VerbsError};
use weft_transport::LinkId;
use weft_units::{Duration, Instant};

use super::links::Links;
use super::memory::{Fault, HeldPayload};
use super::same_host::{Neighbours, News};
use super::show::Shown;

mod arrivals;
mod watchers;

pub(crate) use watchers::{Asynchronous, Channel, Object, Watcher, Watchers};

/// Packets taken from the device before the sockets are looked at again.
const TRANSMIT_BUDGET: usize = 176;

/// Turns at most that take in what has arrived before a queue pair ends: others of the host may go on sending.
const LAST_TURNS: u32 = 16;

/// How often sockets that only send are looked at.
const STRAYS_EVERY: Duration = Duration::from_millis(1);

/// What the engine's lock protects.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) device: Device,
    pub(crate) links: Links,
    pub(crate) neighbours: Neighbours,
    pub(crate) watchers: Watchers,
    /// The transport of its connections, in rows of name and value.
    pub(crate) transport: Vec<(String, String)>,
    held: HeldPayload,
    /// Memory that was not there, since they were taken last.
    faults: Vec<Fault>,
    clock: Clock,
    look_for_strays: Instant,
    turns: u32,
    /// The last turn ended with packets left to send.
    unsent: bool,
    /// No address is lively: nothing came to one, or left from it, for long.
    is_quiet: bool,
    /// When the last turn began.
    turned_at: Instant,
    shown: Option<Shown>,
    /// Where the keys of connections are written down, for a dissector.
    pub(crate) key_log: Option<KeyLog>,
}

/// Turns between looks at sockets that nothing has come to yet: each look is a system call.
const QUIET_EVERY: u32 = 64;

/// Turns between looks at the network while neighbours have something to say in each.
const NETWORK_EVERY: u32 = 16;

/// How long glances at neighbours do, between turns, for a program that polls. A turn takes as long as several
/// glances, in which what a neighbour writes is not seen.
const GLANCES: Duration = Duration::from_micros(2);

/// Looks into the rings before a program that polls is told that there is nothing.
const LOOKS: u32 = 6;

impl Host {
    pub(crate) fn new(
        device: Device,
        links: Links,
        neighbours: Neighbours,
        shown: Option<Shown>,
    ) -> Self {
        Self {
            device,
            links,
            neighbours,
            watchers: Watchers::default(),
            transport: Vec::new(),
            held: HeldPayload::default(),
            faults: Vec::new(),
            clock: Clock,
            look_for_strays: Instant::EPOCH,
            turns: 0,
            unsent: false,
            is_quiet: false,
            turned_at: Instant::EPOCH,
            shown,
            key_log: None,
        }
    }

    /// Shows the device as it is now, where that is due.
    pub(crate) fn show(&mut self, now: Instant) {
        if let Some(shown) = &mut self.shown {
            shown.refresh(now, &self.device, &self.links.seals);
        }
    }

    /// When it is to be shown next, if anything happened since it was.
    pub(crate) fn next_show(&self) -> Option<Instant> {
        self.shown.as_ref().and_then(|shown| shown.due(&self.device))
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Takes a turn without waiting; whether there was anything to do. `now` is when it begins.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        self.turn_with(now, self.turns.is_multiple_of(QUIET_EVERY))
    }

    /// Takes in what has arrived before it is too late: who ends a connection because the peer said so elsewhere
    /// (`rdma_disconnect`) would flush requests that the peer has acknowledged, and messages that it sent before.
    pub(crate) fn take_in_arrived(&mut self, now: Instant) {
        for _ in 0..LAST_TURNS {
            if !self.turn_with(now, true) {
                return;
            }
        }
    }

    /// Whether it speaks to neighbours, and the network is quiet.
    pub(crate) fn neighbours_only(&self) -> bool {
        self.neighbours.len() > 0 && self.is_quiet
    }

    /// Whether a glance was enough: nothing is to be answered, and the turn that sees to time and the network
    /// was not long ago.
    pub(crate) fn may_go_on(&self, now: Instant) -> bool {
        !self.unsent && now.since(self.turned_at) < GLANCES
    }

    /// Takes in one packet of each neighbour, and leaves what follows and the answers for later: the program, which
    /// may be waiting for that packet, calls again at once. Whether there was any.
    #[inline]
    pub(crate) fn glance(&mut self, now: Instant) -> bool {
        self.neighbours.have_written() && self.take_one_each(now)
    }

    /// Looks at the rings for as long as a program takes to poll again: what comes in between is seen at once.
    #[inline]
    pub(crate) fn look_on(&self) {
        let _ = (0..LOOKS).any(|_| {
            core::hint::spin_loop();
            self.neighbours.have_written()
        });
    }

    fn take_one_each(&mut self, now: Instant) -> bool {
        let taken = self.hear_news() + self.take_packets(now, 1) > 0;
        // An acknowledgement waits: the program may answer, and what comes after it may find the peer's program
        // watching its memory, where it has to wait for the peer's thread.
        self.unsent |= taken && self.device.has_messages_for_links();
        taken
    }

    /// Takes a turn with or without the sockets that nothing has come to yet.
    pub(crate) fn turn_with(&mut self, mut now: Instant, quiet_ones: bool) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.turned_at = now;
        let mut received = self.take_from_neighbours(now, quiet_ones);
        if received > 0 && !self.turns.is_multiple_of(NETWORK_EVERY) {
            // Neighbours hear the answer before the network is looked at, which takes longer than all this.
            self.transmit(now);
            return true;
        }
        if quiet_ones || !self.is_quiet {
            received += self.take_from_network(quiet_ones);
        }
        if received > 0 {
            now = self.now();
        }
        let mut busy = received > 0 || self.has_unsent();
        if self.look_for_strays <= now {
            self.look_for_strays = now + STRAYS_EVERY;
            self.take_strays(now);
            busy = true;
        }
        if self.device.poll_timeout().is_some_and(|due| due <= now) {
            self.device.handle_timeout(now);
            busy = true;
        }
        if !busy {
            return false;
        }
        let sent = self.transmit(now);
        received + sent > 0
    }

    /// Likewise, and tells the program's queues what happened.
    pub(crate) fn turn_and_tell(&mut self, now: Instant) -> bool {
        let worked = self.turn_with(now, true);
        self.tell();
        worked
    }

    /// Whether something may leave that could not before.
    fn has_unsent(&self) -> bool {
        let owes = self.unsent || self.device.owes_links() || self.device.may_reach();
        owes || self.links.waiting() > 0 || self.neighbours.is_full()
    }

    /// One descriptor for all that packets arrive on.
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub(crate) fn arrivals(&self) -> rustix::io::Result<OwnedFd> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for socket in self.links.readable().chain([self.neighbours.watch()]) {
            epoll::add(&set, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(set)
    }

    /// The sockets that packets and neighbours arrive on, and the file that the device shows itself in.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let sockets = self.links.readable().chain(self.neighbours.descriptors());
        let board = self.shown.as_ref().map(|shown| shown.file().as_raw_fd());
        sockets.map(|socket| socket.as_raw_fd()).chain(board).collect()
    }

    /// Ends everything, after peers have had this long to hear what they wait for.
    pub(crate) fn end(&mut self, linger: Duration) {
        self.shown = None;
        let until = self.now() + linger;
        loop {
            let now = self.now();
            let over = self.device.shut_down(now);
            self.transmit(now);
            let worked = self.turn(now);
            if over && !self.neighbours.is_full() || now >= until {
                return;
            }
            if !worked {
                self.links.wait(self.next_due().map_or(until, |due| due.min(until)).since(now));
            }
        }
    }

    /// Sends what may leave; how many packets that were. Nothing does while a fault is not dealt with: a peer
    /// would be told that something was written which was not.
    pub(crate) fn transmit(&mut self, now: Instant) -> usize {
        self.see_to_leases(now);
        let Self { device, links, neighbours, faults, .. } = self;
        if !faults.is_empty() {
            return 0;
        }
        neighbours.with_room_again().for_each(|link| device.release_link(link));
        links.seals.handle_timeout(now);
        let waiting = links.waiting();
        let room = TRANSMIT_BUDGET.saturating_sub(waiting).min(links.room(now));
        device.hold_network(room == 0);
        let (mut sent, mut over_network, mut full) = (0, 0, None);
        // What keeps the device is dealt with before it meets more of that.
        while over_network < room.max(1)
            && faults.is_empty()
            && device.poll_transmit(now, |packet, source| match packet.link {
                Some(link) => full = push(link, packet, source, links, neighbours),
                None => {
                    over_network += 1;
                    faults.extend(links.push(packet, source).err());
                }
            })
        {
            sent += 1;
            full.take().into_iter().for_each(|link| device.hold_link(link));
        }
        if waiting + over_network > 0 {
            links.flush();
        }
        neighbours.announce();
        self.is_quiet &= over_network == 0;
        self.unsent = over_network >= room;
        self.keep_keys();
        sent
    }

    /// Forgets the keys of connections that are no more, and notes those of new ones.
    fn keep_keys(&mut self) {
        let Self { device, links, key_log, .. } = self;
        while let Some(forgotten) = device.poll_forgotten() {
            links.seals.forget(forgotten);
        }
        if let Some(log) = key_log {
            log.append(&mut links.seals);
        }
    }

    /// Takes back what neighbours may not reach any more, and does what we may reach of theirs.
    #[inline]
    fn see_to_leases(&mut self, now: Instant) {
        let Self { device, neighbours, clock, .. } = self;
        loop {
            while let Some(told) = device.poll_leasing() {
                neighbours.tell(&told);
            }
            let reach = |request: &Reach<'_>| neighbours.reach(request).then(|| clock.now());
            if !device.poll_reach(now, reach) {
                return;
            }
        }
    }

    /// Posts a send request. Its packet may be in a neighbour's ring when this returns.
    pub(crate) fn post_send(
        &mut self,
        now: Instant,
        qp: QueuePairNumber,
        request: &SendRequest<'_>,
    ) -> Result<(), VerbsError> {
        let Self { device, links, neighbours, .. } = self;
        let mut full = None;
        device.post_send_and_transmit(now, qp, request, |packet, source| {
            let link = packet.link.expect("packets leave at once over links");
            full = push(link, packet, source, links, neighbours);
        })?;
        full.into_iter().for_each(|link| device.hold_link(link));
        Ok(())
    }

    /// Memory that was not there, each once.
    pub(crate) fn take_faults(&mut self) -> Vec<Fault> {
        let mut faults = core::mem::take(&mut self.faults);
        faults.dedup();
        faults
    }

    /// Speaks to `peer` without the network from now on, if it is a neighbour that may be seen.
    pub(crate) fn meet(&mut self, peer: SocketAddr) {
        if let Some(link) = self.neighbours.meet(peer) {
            self.hear_news();
            self.device.reach_over(peer, link);
        }
    }

    /// Tells the device of links that came and went; how many did.
    fn hear_news(&mut self) -> usize {
        let mut heard = 0;
        while let Some(news) = self.neighbours.poll_news() {
            heard += 1;
            let now = self.clock.now();
            match news {
                News::Up(link) => self.device.link_up(now, link),
                News::Down(link) => self.device.link_down(now, link),
            }
        }
        heard
    }

    /// When there is something to do though nothing arrives.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.device.poll_timeout().into_iter().chain(self.links.room_at()).min()
    }

    /// Tells the program's queues what happened.
    pub(crate) fn tell(&mut self) {
        while let Some(event) = self.next_event() {
            self.watchers.tell(event);
        }
    }

    /// The next thing that happened which concerns a program.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        loop {
            match self.device.poll_event()? {
                Event::ReleaseHeld { connection } => self.held.forget(connection),
                event => return Some(event),
            }
        }
    }
}

/// Sends a packet to a neighbour; the link, if it takes no more after it.
#[inline]
fn push(
    link: LinkId,
    packet: &Transmit,
    source: Source<'_>,
    links: &Links,
    neighbours: &mut Neighbours,
) -> Option<LinkId> {
    let from = links.source_for(packet.context, packet.to.ip());
    (!neighbours.push(link, packet, source, from)).then_some(link)
}
