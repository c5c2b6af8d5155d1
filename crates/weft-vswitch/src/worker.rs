//! One thread's loop between tenants' ports, its switch and its sockets. It shares no state: a port
//! belongs to one thread, and so do its connections, its rules and its counters.

use std::collections::BTreeMap;
use std::io;

use weft_ports::{Port, Sent};
use weft_trace::pcapng;
use weft_udp::sockets::Sockets;
use weft_udp::wait::{MAX_SLEEP, wait};
use weft_udp::{Budget, Driver, Node};
use weft_units::{Duration, Instant};
use weft_vpc::{Frame, Handover, Place, PortId, Reading, Switch, TenantFrame, Tenants, Vni};
use weft_wire::{MacAddr, Packet, VirtioNetHeader};

use crate::mailbox::{Mail, Mailbox, Router};
use crate::node::SwitchNode;
use crate::port_poller::PortPoller;
use crate::redirect::ThreadIndex;
use crate::tenants::Ports;
use crate::underlay::{Counters, PlainSender};

/// Largest number of frames taken from one port before the other ports.
const MAX_FRAMES_PER_PORT: usize = 64;

/// Number of frames taken in a turn even while more connections wait to send than a turn serves: enough that a peer
/// which floods this host with requests does not silence its tenants.
const MIN_FRAMES_PER_TURN: usize = 16;

/// Number of datagrams after which a turn reads no more. It is larger than the number that leave in one; otherwise
/// arriving datagrams would wait longer and longer where each packet is answered by one.
const MAX_DATAGRAMS_PER_TURN: usize = 256;

/// Maximum number of messages of other threads handled before the sockets are read.
const MAX_MAIL_PER_TURN: usize = 256;

/// The interval at which all ports are serviced.
const SERVICE_INTERVAL: Duration = Duration::from_secs(1);

/// The interval at which overdue buffers are searched for.
const RELEASE_INTERVAL: Duration = Duration::from_millis(4);

/// Maximum time for which a guest's buffer is held: three retransmission timeouts (BIFROST, section 7.4).
const MAX_BUFFER_HOLD: Duration = Duration::from_millis(28);

/// One thread's part of the overlay.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) index: ThreadIndex,
    /// Number of UDP source ports for each thread of another host.
    pub(crate) paths: u16,
    pub(crate) switch: Switch,
    pub(crate) driver: Driver<Sockets>,
    pub(crate) ports: Ports,
    pub(crate) poller: PortPoller,
    /// A buffer for the list of ports that frames are taken from in a turn.
    ready: Vec<PortId>,
    /// The last port that frames were taken from.
    last_served: PortId,
    /// The ports whose guests may move between hosts, with `true` for a guest that runs here.
    movable: BTreeMap<PortId, bool>,
    plain: PlainSender,
    pub(crate) counters: Counters,
    pub(crate) mailbox: Mailbox,
    pub(crate) router: Router,
    /// `true` once its whole configuration is applied: until then it reads no sockets, so that
    /// no early packet meets an incomplete set of rules.
    pub(crate) is_configured: bool,
    serviced: Instant,
    released: Instant,
}

impl Worker {
    pub(crate) fn new(
        (index, paths): (ThreadIndex, u16),
        poller: PortPoller,
        switch: Switch,
        driver: Driver<Sockets>,
        (mailbox, router): (Mailbox, Router),
    ) -> Self {
        Self {
            index,
            paths,
            switch,
            driver,
            ports: Ports::default(),
            poller,
            ready: vec![],
            last_served: PortId(0),
            movable: BTreeMap::new(),
            plain: PlainSender::default(),
            counters: Counters::default(),
            mailbox,
            router,
            is_configured: false,
            serviced: Instant::EPOCH,
            released: Instant::EPOCH,
        }
    }

    /// Returns the limits of a thread's turn.
    pub(crate) fn budget() -> Budget {
        Budget { datagrams: MAX_DATAGRAMS_PER_TURN, ..Budget::default() }
    }

    /// Returns the driver, and the node that it runs.
    fn parts(&mut self) -> (&mut Driver<Sockets>, SwitchNode<'_>) {
        let Self { driver, switch, ports, plain, counters, index, paths, .. } = self;
        let node = SwitchNode { switch, ports, plain, counters, index: *index, paths: *paths };
        (driver, node)
    }

    /// Takes turns until `stop` returns `true`.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(crate) fn run(&mut self, stop: impl Fn() -> bool) -> io::Result<()> {
        while !stop() {
            if !self.is_configured {
                // `Drop` of the pool sends an order as well.
                let Some(mail) = self.mailbox.wait() else { return Ok(()) };
                self.process(self.driver.now(), mail);
            } else if !self.turn() {
                self.sleep()?;
            }
        }
        Ok(())
    }

    /// Adds a port to this thread.
    ///
    /// # Errors
    /// The kernel refuses another descriptor.
    pub(crate) fn add_port(
        &mut self,
        id: PortId,
        port: Box<dyn Port>,
        may_move: bool,
    ) -> io::Result<()> {
        self.poller.add(id, port.fd())?;
        self.ports.insert(id, port);
        if may_move {
            self.movable.insert(id, false);
        }
        Ok(())
    }

    /// Removes a port: the buffers it holds go back to its tenant.
    pub(crate) fn remove_port(&mut self, id: PortId) {
        self.movable.remove(&id);
        self.router.forget_port(id);
        self.switch.remove_port(self.driver.now(), id, &mut self.ports);
        if let Some(port) = self.ports.remove(id) {
            self.poller.remove(id, port.fd());
        }
    }

    /// Returns the ports whose guests may move between hosts and run here.
    pub(crate) fn present(&self) -> impl Iterator<Item = PortId> + '_ {
        self.movable.iter().filter(|(_, present)| **present).map(|(&id, _)| id)
    }

    /// Sets or removes the permanent place of a machine.
    pub(crate) fn set_place(&mut self, vni: Vni, mac: MacAddr, place: Option<Place>) {
        self.switch.set_place(self.driver.now(), vni, mac, place, &mut self.ports);
    }

    /// Takes one turn without blocking. Returns `true` if there was work.
    fn turn(&mut self) -> bool {
        let (driver, mut node) = self.parts();
        let received = driver.receive(0, &mut node);
        let now = driver.now();
        driver.receive_strays(now, &mut node);
        let read = self.process_mail(now);
        self.watch_moves(now);
        let taken = self.poll_frames(now);
        let (driver, mut node) = self.parts();
        node.handle_timeout(now);
        let sent = driver.transmit(now, &mut node);
        let handed = self.hand_over();
        if now.since(self.serviced) >= SERVICE_INTERVAL {
            self.serviced = now;
            self.service(now);
            self.ports.flush_captures();
            self.router.remove_idle();
        }
        self.release_overdue_buffers(now);
        self.ports.flush();
        received + read + taken + sent + handed > 0
    }

    /// Tells the switch which guests that may move between hosts have started or stopped here, and announces those
    /// that started.
    fn watch_moves(&mut self, now: Instant) {
        for (&id, present) in &mut self.movable {
            let is_up = self.ports.is_up(id);
            if is_up != *present {
                *present = is_up;
                self.switch.set_present(now, id, is_up, &mut self.ports);
            }
            let announcement = self.ports.with(id, |port| Ok(port.take_announcement(now)));
            if let Some(Sent { token, len }) = announcement {
                let frame = TenantFrame { port: id, token, len };
                self.switch.announce(now, frame, &mut self.ports);
            }
        }
    }

    /// Carries out orders and handovers of other threads. Returns their number.
    fn process_mail(&mut self, now: Instant) -> usize {
        let mut read = 0;
        while read < MAX_MAIL_PER_TURN
            && let Some(mail) = self.mailbox.next()
        {
            read += 1;
            self.process(now, mail);
        }
        read
    }

    fn process(&mut self, now: Instant, mail: Mail) {
        match mail {
            Mail::Order(order) => order(self),
            Mail::Handover(handover, counted) => {
                self.ingest_handover(now, handover);
                drop(counted);
            }
        }
    }

    /// Handles a handover of another thread: set-up packets and sealed datagrams need the keys.
    fn ingest_handover(&mut self, now: Instant, handover: Handover) {
        let (driver, mut node) = self.parts();
        match handover {
            Handover::Datagram { arrival, mut bytes } => {
                node.ingest(now, &arrival, &mut bytes, &mut driver.seals);
            }
            Handover::Packet { arrival, packet: Packet::Setup(header), payload, .. } => {
                node.admit(now, &arrival, &header, &payload, &mut driver.seals);
            }
            other => node.switch.handle_handover(now, other, node.ports),
        }
    }

    /// Takes frames that tenants sent, no more than can leave soon, and returns their number: connections take
    /// turns, also for ACKs and answers to probes, and a round over thousands that all have frames lasts longer
    /// than their peers' timeout. The remaining frames wait with their tenants.
    fn poll_frames(&mut self, now: Instant) -> usize {
        if !self.poller.is_small() {
            self.service_ready(now);
        }
        let mut ready = std::mem::take(&mut self.ready);
        self.poller.ready(&mut ready);
        let next = ready.partition_point(|&id| id <= self.last_served);
        ready.rotate_left(next);
        let limit = (self.driver.budget().packets)
            .saturating_sub(self.switch.ready_connections())
            .max(MIN_FRAMES_PER_TURN);
        let mut taken = 0;
        for &id in &ready {
            if taken == limit {
                break;
            }
            self.last_served = id;
            taken += self.poll_frames_of(now, id, MAX_FRAMES_PER_PORT.min(limit - taken));
        }
        self.ready = ready;
        taken
    }

    /// Takes at most `limit` frames that one tenant sent, and returns their number.
    fn poll_frames_of(&mut self, now: Instant, id: PortId, limit: usize) -> usize {
        let mut head = [0; VirtioNetHeader::LEN + Frame::MIN_PARSE_BYTES];
        for taken in 0..limit {
            let Some(sent) = self.ports.with(id, |port| port.take(now)) else {
                self.poller.set_idle(id);
                return taken;
            };
            let known = head.len().min(sent.len as usize);
            let head = &mut head[..known];
            self.ports.read(id, sent.token, 0, head, Reading::First);
            self.ports.record(id, pcapng::Direction::Out, head, sent.len);
            self.ports.mirror(id, sent.token, sent.len);
            let (switch, tenants) = (&mut self.switch, &mut self.ports);
            let frame = TenantFrame { port: id, token: sent.token, len: sent.len };
            switch.handle_frame(now, frame, head, tenants);
        }
        limit
    }

    /// Services the ports whose descriptors are readable, if there are many ports.
    fn service_ready(&mut self, now: Instant) {
        for id in self.poller.poll() {
            self.ports.with(id, |port| port.service(now));
        }
    }

    /// Sends handovers to other threads. Returns their number.
    fn hand_over(&mut self) -> usize {
        let mut handed = 0;
        self.router.send_late();
        while let Some((thread, handover)) = self.switch.poll_handover() {
            handed += 1;
            self.counters.not_handed_over += u64::from(!self.router.send(thread, handover));
        }
        handed
    }

    fn service(&mut self, now: Instant) {
        for &id in self.poller.ports() {
            self.ports.with(id, |port| port.service(now));
        }
    }

    /// Releases buffers that tenants have waited for too long.
    fn release_overdue_buffers(&mut self, now: Instant) {
        if now.since(self.released) >= RELEASE_INTERVAL {
            self.released = now;
            self.ports.iter_mut().for_each(|(_, port)| {
                port.release_overdue(now, MAX_BUFFER_HOLD);
            });
        }
    }

    fn sleep(&mut self) -> io::Result<()> {
        self.mailbox.waker.begin_sleep();
        let now = self.driver.now();
        if self.process_mail(now) > 0 {
            self.mailbox.waker.end_sleep();
            return Ok(());
        }
        let sockets = &self.driver.sockets;
        let due = [self.switch.poll_timeout(), sockets.outbox.retry_at()];
        let due = due.into_iter().flatten().min();
        let span = due.map_or(MAX_SLEEP, |due| due.since(now).min(MAX_SLEEP));
        let own = sockets.inbox.readable().chain([self.mailbox.waker.as_fd()]);
        let blocked = sockets.outbox.blocked();
        if !self.poller.is_small() {
            // The next turn begins with a poll of the ports.
            let woken = wait(own.chain([self.poller.as_fd()]), blocked, span);
            self.mailbox.waker.end_sleep();
            return woken.map(drop);
        }
        let ports = self.ports.iter().map(|(_, port)| port.fd());
        let ready = wait(ports.chain(own), blocked, span);
        self.mailbox.waker.end_sleep();
        let now = self.driver.now();
        for (id, _) in self.ports.ids().into_iter().zip(ready?).filter(|(_, ready)| *ready) {
            self.ports.with(id, |port| port.service(now));
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        for (_, port) in self.ports.iter_mut() {
            port.return_buffers();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use weft_seal::{SealConfig, Seals};
    use weft_transport::{Secret, TransportConfig};
    use weft_udp::sockets::SocketConfig;
    use weft_units::Seed;
    use weft_vpc::SwitchConfig;

    use super::*;

    /// Returns a worker without ports, on a port of loopback.
    fn worker() -> Worker {
        let config = SwitchConfig::new(TransportConfig::bifrost());
        let switch = Switch::new(config, Seed(1), Secret::new([7; 16])).unwrap();
        let sockets = Sockets::open(&SocketConfig::new("127.0.0.1:0".parse().unwrap(), 1)).unwrap();
        let (mailbox, address) = Mailbox::open().unwrap();
        let router = (mailbox, Router::new(vec![address]));
        let index = (ThreadIndex { thread: 0, threads: 1 }, 1);
        let seals = Seals::new(SealConfig::off(), [7; 32]);
        let driver = Driver::new(sockets, seals, Worker::budget());
        Worker::new(index, PortPoller::new().unwrap(), switch, driver, router)
    }

    /// Checks that a turn reads more single datagrams than leave in one. With thousands of connections each ACK
    /// comes alone; one batch per turn would be fewer than leave, and the rest would wait until the kernel has no
    /// room.
    #[test]
    fn a_turn_takes_more_datagrams_that_come_alone_than_leave_in_one() {
        const SENT: u64 = 2 * MAX_DATAGRAMS_PER_TURN as u64;
        let mut worker = worker();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..SENT {
            // Shorter than a VXLAN header, and of lengths that the kernel does not merge.
            let datagram = [0; 7];
            let len = 1 + usize::try_from(number % 7).unwrap();
            sender.send_to(&datagram[..len], worker.driver.sockets.local()).unwrap();
        }
        let mut turns = 0;
        while worker.counters.malformed < SENT {
            let mut readable =
                [PollFd::from_borrowed_fd(worker.driver.sockets.readable(), PollFlags::IN)];
            let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(poll(&mut readable, Some(&timeout)), Ok(1), "some datagrams are lost");
            worker.turn();
            turns += 1;
        }
        assert!(turns <= 3, "{turns} turns for {SENT} datagrams");
    }
}
