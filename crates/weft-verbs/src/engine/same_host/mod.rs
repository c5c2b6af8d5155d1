//! Neighbours: processes of this host with the device. Their packets go through shared memory if they have mutual
//! access (`docs/design/same-host.md`); else over UDP, as to other hosts.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use weft_rnic::{Source, Transmit};
use weft_transport::LinkId;
use weft_udp::Clock;
use weft_udp::wait::timespec;
use weft_units::{Duration, Instant};

use super::fork;

mod borrowed;
mod channel;
mod faults;
mod greeting;
mod leased_access;
mod leases;
mod lendable;
mod mapped_access;
mod mapping;
mod maps;
mod pending;
mod proof;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod record;
mod segment;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod untrusted;

use channel::{Channel, Parts};
use greeting::{Greeting, GreetingState};
pub(crate) use leases::LeasedRequests;
use lendable::Lendable;
use pending::PendingPeers;
use record::Record;
use segment::Segment;

/// The timeout of a process's answer to a greeting; after it UDP is used.
const ANSWER_TIME: Duration = Duration::from_millis(100);

/// The interval after which such a process is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Maximum number of records taken from one neighbour before the others have their turn.
pub(super) const BUDGET: usize = 128;

/// A change of the neighbours, for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Up(LinkId),
    Down(LinkId),
}

/// The processes of this host with which this one communicates or may communicate.
#[derive(Debug)]
pub(crate) struct Neighbours {
    port: u16,
    addresses: Vec<IpAddr>,
    /// The socket for their connections; `None` if shared memory is switched off, or the kernel lacks it.
    listener: Option<OwnedFd>,
    /// The descriptor that wakes this process.
    doorbell: OwnedFd,
    /// The epoll of the listener, the doorbell, the pending peers and the channels' sockets.
    watch: OwnedFd,
    channels: Vec<Channel>,
    pending_peers: PendingPeers,
    /// The port being asked, and accepted connections whose request yields to this process's own.
    asked: Option<u16>,
    deferred: Vec<OwnedFd>,
    /// The peers that were looked for, and the time before which not to ask again.
    met: BTreeMap<SocketAddr, Instant>,
    changes: Vec<Change>,
    links: u32,
    /// The memory that this process lends.
    lendable: Lendable,
    executed: LeasedRequests,
}

impl Neighbours {
    /// Opens the neighbours of the process with this port and these addresses.
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub(super) fn open(port: u16, addresses: Vec<IpAddr>) -> rustix::io::Result<Self> {
        Self::with(port, addresses, greeting::listen(port).ok())
    }

    /// Opens an empty set: all packets go over the network.
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub(super) fn none() -> rustix::io::Result<Self> {
        Self::with(0, Vec::new(), None)
    }

    fn with(
        port: u16,
        addresses: Vec<IpAddr>,
        listener: Option<OwnedFd>,
    ) -> rustix::io::Result<Self> {
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [Some(&doorbell), listener.as_ref()].into_iter().flatten() {
            listen_to(&watch, fd.as_fd())?;
        }
        Ok(Self {
            port,
            addresses,
            listener,
            doorbell,
            watch,
            channels: Vec::new(),
            pending_peers: PendingPeers::default(),
            asked: None,
            deferred: Vec::new(),
            met: BTreeMap::new(),
            changes: Vec::new(),
            links: 0,
            lendable: Lendable::default(),
            executed: LeasedRequests::default(),
        })
    }

    /// Returns the descriptor that is readable when [`Self::service`] has work, or when a neighbour has written and
    /// this process sleeps.
    pub(super) fn watch(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Returns the descriptors that a child of fork must close: an open one would hide its parent's end from
    /// neighbours.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listener.iter().map(AsFd::as_fd)
    }

    /// Returns the link that leads to a peer, if it is a neighbour. Asks it once, and waits for its answer, for
    /// [`ANSWER_TIME`] at most.
    pub(super) fn meet(&mut self, peer: SocketAddr) -> Option<LinkId> {
        self.listener.as_ref()?;
        let now = Clock.now();
        if self.met.get(&peer).is_some_and(|&until| now < until) {
            return None;
        }
        let ours = self.addresses.contains(&peer.ip()) && peer.port() != self.port;
        let link = if ours { self.link_to(peer.port(), now) } else { None };
        self.asked = None;
        self.deferred.clear();
        let again = ours && link.is_none();
        let until = if again { Clock.now() + ASK_AGAIN } else { Instant::FAR_FUTURE };
        self.met.insert(peer, until);
        link
    }

    fn link_to(&mut self, port: u16, now: Instant) -> Option<LinkId> {
        if let Some(link) = self.link_with(port) {
            return Some(link);
        }
        let socket = greeting::connect(port)?;
        let (segment, file) = Segment::make().ok()?;
        greeting::send(&socket, self.port, &[file.as_fd(), self.doorbell.as_fd()])?;
        self.asked = Some(port);
        let (mut now, until) = (now, now + ANSWER_TIME);
        loop {
            match greeting::receive(&socket, 1) {
                GreetingState::Refused => return None,
                GreetingState::Accepted(greeting) if greeting.port == port => {
                    return self.accept_peer(socket, greeting, segment, true);
                }
                GreetingState::Accepted(_) => return None,
                GreetingState::Nothing => {}
            }
            // If both ask at once, each waits for the other: the lower port's request is answered, and the other's
            // withdrawn. If both were answered, one end would use a channel that the other takes for a former one.
            self.accept_pending(now);
            if port < self.port
                && let Some(link) = self.link_with(port)
            {
                return Some(link);
            }
            now = Clock.now();
            if now >= until {
                return None;
            }
            let mut watched = vec![PollFd::new(&socket, PollFlags::IN)];
            watched.extend(self.listener.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            watched.extend(self.pending_peers.sockets().map(|fd| PollFd::new(fd, PollFlags::IN)));
            // An interrupted or failed poll counts as a short one.
            let _ = poll(&mut watched, Some(&timespec(until.since(now))));
        }
    }

    fn link_with(&self, port: u16) -> Option<LinkId> {
        let to = self
            .channels
            .iter()
            .find(|channel| channel.port == port && !channel.gone && !channel.broken);
        to.map(|channel| channel.link)
    }

    /// Answers connections.
    fn accept_pending(&mut self, now: Instant) {
        let Some(listener) = &self.listener else { return };
        for (socket, greeting) in self.pending_peers.poll_greetings(listener, &self.watch, now) {
            self.answer(socket, greeting);
        }
    }

    fn answer(&mut self, socket: OwnedFd, mut greeting: Greeting) {
        if self.asked == Some(greeting.port) && self.port < greeting.port {
            // The peer must wait, and not give up, until it has answered this process's request.
            self.deferred.push(socket);
            return;
        }
        let file = greeting.descriptors.remove(0);
        let Ok(segment) = Segment::take(&file) else { return };
        if greeting::send(&socket, self.port, &[self.doorbell.as_fd()]).is_some() {
            self.accept_peer(socket, greeting, segment, false);
        }
    }

    fn accept_peer(
        &mut self,
        socket: OwnedFd,
        greeting: Greeting,
        segment: Segment,
        made: bool,
    ) -> Option<LinkId> {
        let Greeting { port, pid, mut descriptors } = greeting;
        let doorbell = descriptors.pop()?;
        listen_to(&self.watch, socket.as_fd()).ok()?;
        fork::hold(socket.as_fd());
        // A share belongs to one process: the former holder of this port is dead, though its sockets may not have
        // closed yet, and nothing new may start over its link.
        let former = self.channels.iter_mut().filter(|channel| channel.port == port);
        former.for_each(|channel| channel.gone = true);
        self.met.retain(|peer, _| peer.port() != port);
        let link = LinkId(self.links);
        self.links += 1;
        let channel = Channel::new(link, Parts { port, pid, socket, doorbell, segment, made });
        // The thread may be asleep already.
        channel.set_asleep(true);
        self.channels.push(channel);
        self.changes.push(Change::Up(link));
        Some(link)
    }

    /// Handles new connections, and detects neighbours that are gone.
    pub(super) fn service(&mut self, now: Instant) {
        if self.listener.is_none() {
            return;
        }
        self.channels.iter_mut().for_each(Channel::unmap_revoked);
        let mut watched = [PollFd::new(&self.watch, PollFlags::IN)];
        if !matches!(poll(&mut watched, Some(&timespec(Duration::ZERO))), Ok(1)) {
            return;
        }
        self.accept_pending(now);
        for channel in &mut self.channels {
            // No bytes follow the greetings.
            channel.gone |= !greeting::is_quiet(channel.socket());
        }
    }

    /// Returns the next change of the neighbours.
    pub(super) fn poll_change(&mut self) -> Option<Change> {
        if self.changes.is_empty() {
            let gone = self.channels.iter().position(Channel::is_over);
            let mut channel = self.channels.swap_remove(gone?);
            channel.revoke(|_| true);
            fork::release(channel.socket());
            // A process may reappear under the same port, and is asked anew.
            self.met.retain(|peer, _| peer.port() != channel.port);
            return Some(Change::Down(channel.link));
        }
        Some(self.changes.remove(0))
    }

    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    /// Returns `true` if there is a record to [`Self::receive`].
    #[inline]
    pub(super) fn have_records(&self) -> bool {
        self.channels.iter().any(Channel::has_records)
    }

    /// Passes at most `max` packets from neighbour number `index` to `take`, with their source address. Returns their
    /// number.
    pub(super) fn receive(
        &mut self,
        index: usize,
        max: usize,
        mut take: impl FnMut(&Arrived<'_>),
    ) -> usize {
        let Self { channels, addresses, .. } = self;
        let channel = &mut channels[index];
        let mut taken = 0;
        while taken < max
            && let Some(unread) = channel.peek()
        {
            taken += 1;
            let record = record::parse(&unread, channel.last_received);
            let record = record.filter(|record| is_credible(channel, addresses, record));
            channel.broken |= record.is_none();
            if let Some(record) = &record {
                let from = SocketAddr::new(record.from, channel.port);
                take(&Arrived { link: channel.link, from, record });
            }
            channel.release(unread.len());
            if channel.broken {
                break;
            }
        }
        if taken > 0 {
            channel.notify_room();
        }
        taken
    }

    /// Sends a packet over a link, from this address. Returns `false` if the link is full afterwards.
    pub(super) fn push(
        &mut self,
        link: LinkId,
        transmit: &Transmit,
        source: Source<'_>,
        from: IpAddr,
    ) -> bool {
        let over = self.channels.iter_mut().find(|channel| channel.link == link);
        over.is_none_or(|channel| {
            channel.push(transmit, source, from);
            !channel.is_full()
        })
    }

    /// Returns the links that were full and have room again.
    pub(super) fn with_room_again(&mut self) -> impl Iterator<Item = LinkId> {
        let channels = self.channels.iter_mut();
        channels.filter_map(|channel| channel.finds_room().then_some(channel.link))
    }

    /// Wakes neighbours for the records written.
    pub(super) fn announce(&mut self) {
        self.channels.iter_mut().for_each(Channel::announce);
    }

    /// Returns `true` if a link is full.
    pub(super) fn is_full(&self) -> bool {
        self.channels.iter().any(Channel::is_full)
    }

    /// Announces that this process does not check the rings until it is woken. Returns `false` if a ring holds a
    /// record.
    pub(super) fn fall_asleep(&self) -> bool {
        self.channels.iter().for_each(|channel| channel.set_asleep(true));
        !self.have_records()
    }

    /// Announces that the thread checks the rings. Only this may read the doorbell's counter: a neighbour that rang
    /// does not ring again, and the thread would sleep on.
    pub(super) fn wake_up(&self) {
        if self.listener.is_none() {
            return;
        }
        let _ = rustix::io::read(&self.doorbell, &mut [0; 8]);
        self.channels.iter().for_each(|channel| channel.set_asleep(false));
    }
}

/// A packet from a neighbour.
#[derive(Debug)]
pub(super) struct Arrived<'a> {
    pub(super) link: LinkId,
    pub(super) from: SocketAddr,
    pub(super) record: &'a Record<'a>,
}

/// Returns `true` if a neighbour may use this source address: it has this host's addresses, and no others.
fn is_credible(channel: &mut Channel, addresses: &[IpAddr], record: &Record<'_>) -> bool {
    let stated = Some((record.from, record.to));
    let known = channel.last_received == stated || addresses.contains(&record.from);
    channel.last_received = stated.filter(|_| known);
    known
}

fn listen_to(watch: &OwnedFd, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    epoll::add(watch, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const HERE: [u8; 4] = [127, 0, 0, 1];

    /// Asks the process with a port, then handles the consequences. Returns the link, the changes and the number of
    /// channels.
    fn meet(own: u16, other: u16, at_once: &Barrier) -> (Option<LinkId>, Vec<Change>, usize) {
        let mut neighbours = Neighbours::open(own, vec![HERE.into()]).unwrap();
        at_once.wait();
        let link = neighbours.meet(SocketAddr::from((HERE, other)));
        at_once.wait();
        (0..2).for_each(|_| neighbours.service(Clock.now()));
        at_once.wait();
        let mut changes = Vec::new();
        neighbours.service(Clock.now());
        while let Some(change) = neighbours.poll_change() {
            changes.push(change);
        }
        let channels = neighbours.len();
        at_once.wait();
        (link, changes, channels)
    }

    #[test]
    fn two_processes_that_ask_each_other_at_once_agree_on_one_link() {
        for round in 0..40 {
            let (low, high) = (61_000 + 2 * round, 61_001 + 2 * round);
            let at_once = Barrier::new(2);
            let ends = std::thread::scope(|scope| {
                let other = scope.spawn(|| meet(high, low, &at_once));
                [meet(low, high, &at_once), other.join().unwrap()]
            });
            for (link, changes, channels) in ends {
                let link = link.expect("the other answers");
                assert_eq!((changes, channels), (vec![Change::Up(link)], 1), "round {round}");
            }
        }
    }
}
