//! The host's addresses as the device uses them: a socket to receive on each, from the start, and sockets to
//! send from on those that are used.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_agent::udp::{Inbox, Senders, SocketConfig, SocketError};
use weft_rnic::{Context, Source, Transmit};
use weft_seal::Seals;
use weft_units::{Duration, Instant};

use super::memory::{self, Fault};
use super::planned::{Planned, Sources};

/// The first of the UDP ports that a host's processes share out among themselves, one each: below those
/// that the kernel gives out by itself.
const FIRST_PORT: u16 = 0x5000;

/// Processes of one host that have the device at a time.
const SHARES: u16 = 256;

/// Where the process with this queue pair receives. The high byte of its number is its share.
pub(crate) fn port_of(queue_pair: u32) -> u16 {
    FIRST_PORT + u16::from(queue_pair.to_be_bytes()[1])
}

/// Hosts that one context may say its address for.
pub(crate) const MAX_ROUTES: usize = 1 << 14;

/// Hosts that are remembered by the address they spoke to.
const MAX_HEARD: usize = 1 << 16;

/// One address.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ip: IpAddr,
    pub(crate) inbox: Inbox,
    senders: Option<Senders>,
    config: SocketConfig,
    planned: Sources,
    /// Looks in a row that found nothing, while nothing left.
    idle: u32,
}

/// Looks that find nothing before an address is taken for quiet: a look is a system call, and a program that
/// speaks to processes of its host only has better things to do.
const QUIET_AFTER: u32 = 1000;

/// All of them.
#[derive(Debug)]
pub(crate) struct Links {
    links: Vec<Link>,
    /// From which address a context speaks to a host: the one that the host was named with there. No context says it for
    /// another.
    routes: BTreeMap<Context, BTreeMap<IpAddr, usize>>,
    /// To which address a host spoke last: answers without a context leave from there.
    heard: BTreeMap<IpAddr, usize>,
    /// The latest packet's context, its destination, and the address that it left from.
    latest: Cell<Option<(Option<Context>, IpAddr, usize)>>,
    /// Encryption of what goes over the network.
    pub(crate) seals: Seals,
    share: u8,
    /// Bytes of a packet.
    packet: u64,
}

impl Links {
    /// Takes a share of the host that no other process has, on all of these addresses. Packets have so many bytes of
    /// payload.
    ///
    /// # Errors
    /// All shares are taken, or the kernel has no more sockets.
    pub(crate) fn open(
        addresses: &[IpAddr],
        paths: u16,
        packet: u16,
        planned: &Planned,
        seals: Seals,
    ) -> Result<Self, SocketError> {
        let mut refusal = None;
        for share in 0..SHARES {
            let bound: Result<Vec<Link>, SocketError> = addresses
                .iter()
                .map(|&ip| Link::open(SocketAddr::new(ip, FIRST_PORT + share), paths, planned))
                .collect();
            match bound {
                Ok(links) => {
                    let share = u8::try_from(share).expect("a byte tells them apart");
                    return Ok(Self {
                        links,
                        routes: BTreeMap::new(),
                        heard: BTreeMap::new(),
                        latest: Cell::new(None),
                        seals,
                        share,
                        packet: packet.into(),
                    });
                }
                Err(error @ SocketError::Bind { .. }) => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refusal.expect("every share was tried"))
    }

    /// The high byte of this process's queue pairs' numbers.
    pub(crate) fn share(&self) -> u8 {
        self.share
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Link> {
        self.links.get_mut(index)
    }

    /// Returns one address, and the encryption of what arrives there.
    pub(crate) fn get_with_seals(&mut self, index: usize) -> Option<(&mut Link, &mut Seals)> {
        Some((self.links.get_mut(index)?, &mut self.seals))
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether anything came to an address, or left from it, not long ago.
    pub(crate) fn is_lively(&self, index: usize) -> bool {
        let link = &self.links[index];
        link.senders.is_some() && link.idle < QUIET_AFTER
    }

    /// Returns the address from which a context speaks to `peer`.
    #[inline]
    pub(crate) fn source_for(&self, context: Option<Context>, peer: IpAddr) -> IpAddr {
        self.index_for(context, peer).map_or(peer, |index| self.links[index].ip)
    }

    #[inline]
    fn index_for(&self, context: Option<Context>, peer: IpAddr) -> Option<usize> {
        if let Some((who, to, index)) = self.latest.get()
            && (who, to) == (context, peer)
        {
            return Some(index);
        }
        let same_family = |link: &Link| link.ip.is_ipv4() == peer.is_ipv4();
        let routes = context.and_then(|context| self.routes.get(&context));
        let route = routes.and_then(|routes| routes.get(&peer)).or_else(|| self.heard.get(&peer));
        let index = route.copied().or_else(|| self.links.iter().position(same_family))?;
        self.latest.set(Some((context, peer, index)));
        Some(index)
    }

    /// Has a context speak to `peer` from this address from now on.
    ///
    /// # Errors
    /// The kernel has no more sockets.
    pub(crate) fn route(
        &mut self,
        context: Context,
        peer: IpAddr,
        index: usize,
    ) -> Result<(), SocketError> {
        self.links[index].senders()?;
        self.routes.entry(context).or_default().insert(peer, index);
        self.latest.set(None);
        Ok(())
    }

    /// Returns `true` if a context has a route to `peer`, or room for one.
    pub(crate) fn may_route(&self, context: Context, peer: IpAddr) -> bool {
        let routes = self.routes.get(&context);
        routes.is_none_or(|routes| routes.len() < MAX_ROUTES || routes.contains_key(&peer))
    }

    /// Forgets what a context said that is no more.
    pub(crate) fn forget(&mut self, context: Context) {
        self.routes.remove(&context);
        self.latest.set(None);
    }

    /// Notes that a packet came from `peer` to this address.
    #[inline]
    pub(crate) fn heard_from(&mut self, peer: IpAddr, index: usize) {
        if self.heard.get(&peer) == Some(&index) {
            return;
        }
        if self.heard.len() >= MAX_HEARD {
            // Anybody can write any address into a packet. Who speaks on is heard again.
            self.heard.clear();
        }
        self.heard.insert(peer, index);
        self.latest.set(None);
    }

    /// Lays out a packet for sending. It is lost where there are no sockets for it.
    ///
    /// # Errors
    /// Its payload is not there. What leaves in its place is no packet.
    pub(crate) fn push(&mut self, transmit: &Transmit, source: Source<'_>) -> Result<(), Fault> {
        let to = transmit.to.ip();
        let Some(index) = self.index_for(transmit.context, to) else { return Ok(()) };
        let link = &mut self.links[index];
        link.idle = 0;
        let path = link.planned.socket(to, transmit.path.0, link.config.paths);
        let Ok(senders) = link.senders() else { return Ok(()) };
        let seals = &mut self.seals;
        let wrap = seals.wrap(&transmit.to, transmit.connection, &transmit.packet);
        let header = transmit.packet.len() + transmit.rdma.map_or(0, |rdma| rdma.header_len());
        let size = header + usize::from(transmit.payload_len) + wrap.len();
        let size = u16::try_from(size).expect("an MTU of at most 9000 bytes and headers");
        let mut laid = Ok(());
        senders.outbox.push(&transmit.to, path, size, |out| {
            laid = lay(transmit, source, wrap.inside_mut(0, out));
            match laid {
                Ok(()) => seals.seal(wrap, 0, out),
                Err(_) => out.fill(0),
            }
        });
        laid
    }

    /// Hands everything to the kernel.
    pub(crate) fn flush(&mut self) {
        self.links
            .iter_mut()
            .filter_map(|link| link.senders.as_mut())
            .for_each(|senders| senders.outbox.flush());
    }

    /// Datagrams that the kernel has not taken yet.
    pub(crate) fn waiting(&self) -> usize {
        let senders = self.links.iter().filter_map(|link| link.senders.as_ref());
        senders.map(|senders| senders.outbox.waiting()).sum()
    }

    /// Packets that the kernel may be given. Where several addresses are used, one that is full holds back none that are
    /// not.
    pub(crate) fn room(&mut self, now: Instant) -> usize {
        let used = self.links.iter_mut().filter_map(|link| {
            let senders = link.senders.as_mut()?;
            let used = link.idle < QUIET_AFTER || senders.outbox.room_at().is_some();
            used.then_some(senders)
        });
        let bytes = used.map(|senders| senders.outbox.room(now)).max().unwrap_or(u64::MAX);
        usize::try_from(bytes.div_ceil(self.packet)).unwrap_or(usize::MAX)
    }

    /// When there may be room again.
    pub(crate) fn room_at(&self) -> Option<Instant> {
        let senders = self.links.iter().filter_map(|link| link.senders.as_ref());
        senders.filter_map(|senders| senders.outbox.room_at()).min()
    }

    /// The sockets that packets arrive on.
    pub(crate) fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.links.iter().map(|link| link.inbox.socket())
    }

    /// Waits for a packet, this long at most.
    pub(crate) fn wait(&self, span: Duration) {
        let mut watched: Vec<PollFd<'_>> =
            self.readable().map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
        // An interrupted or failed poll is a short one.
        let _ = poll(&mut watched, Some(&timespec(span)));
    }
}

impl Link {
    fn open(local: SocketAddr, paths: u16, planned: &Planned) -> Result<Self, SocketError> {
        let planned = planned.from(local.ip());
        let further_source_ports = planned.ports.clone();
        let config = SocketConfig { further_source_ports, ..SocketConfig::new(local, paths) };
        let (inbox, _) = Inbox::open(&config)?;
        Ok(Self { ip: local.ip(), inbox, senders: None, config, planned, idle: 0 })
    }

    fn senders(&mut self) -> Result<&mut Senders, SocketError> {
        if self.senders.is_none() {
            self.senders = Some(Senders::open(&self.config)?);
        }
        Ok(self.senders.as_mut().expect("opened just now"))
    }

    /// Takes in what arrived; how many messages that were.
    pub(crate) fn receive(&mut self) -> usize {
        let messages = self.inbox.receive().unwrap_or(0);
        self.idle = if messages > 0 { 0 } else { self.idle.saturating_add(1) };
        messages
    }

    /// What arrived where nothing is expected, if anything.
    pub(crate) fn stray(&mut self) -> Option<(SocketAddr, &[u8])> {
        self.senders.as_mut()?.stray()
    }
}

/// Writes a packet out.
fn lay(transmit: &Transmit, source: Source<'_>, out: &mut [u8]) -> Result<(), Fault> {
    let mut len = transmit.packet.emit(out);
    if let Some(header) = &transmit.rdma {
        len += header.emit(&mut out[len..]);
    }
    let payload = &mut out[len..];
    match source {
        Source::Memory(places) => {
            places.iter().try_fold(payload, |out, &place| memory::read(place, out))?;
        }
        Source::Inline(bytes) => payload.copy_from_slice(bytes),
        Source::Anything => payload.fill(0),
    }
    Ok(())
}

/// A span as the kernel has it.
pub(crate) fn timespec(span: Duration) -> Timespec {
    let (seconds, nanos) = (span.as_nanos() / 1_000_000_000, span.as_nanos() % 1_000_000_000);
    Timespec {
        tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos).expect("below a thousand million"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        let addresses = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let planned = Planned::from_environment().unwrap();
        let seals = Seals::new(weft_seal::SealConfig::off(), [0; 32]);
        Links::open(&addresses, 1, 1_024, &planned, seals).unwrap()
    }

    fn address(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    /// What a hostile process tries that names a host before another does, from an address where no answer comes.
    #[test]
    fn from_where_a_context_speaks_to_a_host_is_its_own_affair() {
        let (mut links, peer) = (links(), address(9));
        let [hostile, honest] = [Context(1), Context(2)];
        links.route(hostile, peer, 1).unwrap();
        assert_eq!(links.source_for(Some(honest), peer), address(1));
        links.route(honest, peer, 0).unwrap();
        let source = |links: &Links, context| links.source_for(Some(context), peer);
        assert_eq!((source(&links, hostile), source(&links, honest)), (address(2), address(1)));
        // Nor does it decide for answers that are nobody's.
        links.route(hostile, peer, 1).unwrap();
        links.heard_from(peer, 0);
        assert_eq!(links.source_for(None, peer), address(1));
        links.forget(honest);
        links.heard_from(peer, 1);
        assert_eq!(source(&links, honest), address(2), "it is as if it had said nothing");
    }

    #[test]
    fn no_context_and_no_stranger_fills_the_table() {
        let mut links = links();
        let host = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        for number in 0..MAX_ROUTES {
            assert!(links.may_route(Context(1), host(number)));
            links.route(Context(1), host(number), 0).unwrap();
        }
        assert!(!links.may_route(Context(1), host(MAX_ROUTES)));
        assert!(links.may_route(Context(1), host(5)) && links.may_route(Context(2), host(5)));
        (0..3 * MAX_HEARD).for_each(|number| links.heard_from(host(number), 1));
        assert!(links.heard.len() <= MAX_HEARD);
    }
}
