//! The host's addresses as the device uses them: each has a socket to receive on, from the start, and sockets to send
//! from once it is used.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::BorrowedFd;

use weft_rnic::{Context, Source, Transmit};
use weft_seal::Seals;
use weft_udp::SocketSet;
use weft_udp::sockets::{Inbox, Senders, SocketConfig, SocketError, Wire};
use weft_udp::wait::wait;
use weft_units::{Duration, Instant};

use super::memory::{self, Fault};
use super::planned::{Planned, PlannedSocket, Present, Sources};
use super::source_ports::{FIRST_CHOSEN_PORT, SourcePorts};
use crate::errno::{EINVAL, Errno, Outcome};

/// The first of the UDP ports that a host's processes divide among themselves, one each: below the kernel's ephemeral
/// ports.
const FIRST_PORT: u16 = 0x5000;

/// Maximum number of processes of one host that have the device at a time.
const SHARES: u16 = 256;

/// Returns the port at which the process with this queue pair receives. The high byte of the number is its share.
pub(crate) fn port_of(queue_pair: u32) -> u16 {
    FIRST_PORT + u16::from(queue_pair.to_be_bytes()[1])
}

/// Maximum number of hosts for which one context may choose its address.
pub(crate) const MAX_ROUTES: usize = 1 << 14;

/// Maximum number of hosts whose last destination address is remembered.
const MAX_ARRIVED_AT: usize = 1 << 16;

/// One address.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ip: IpAddr,
    inbox: Inbox,
    senders: Option<Senders>,
    config: SocketConfig,
    planned: Sources,
    chosen: SourcePorts,
    /// Number of consecutive reads that found nothing, while nothing was sent.
    idle: u32,
}

/// Number of empty reads after which an address is quiet: a read is a system call, which slows a program that
/// communicates only inside its host.
const QUIET_AFTER: u32 = 1000;

/// All addresses.
#[derive(Debug)]
pub(crate) struct Links {
    links: Vec<Link>,
    /// The address from which a context sends to a host: the one that the program named for that host. No context
    /// chooses for another.
    routes: BTreeMap<Context, BTreeMap<IpAddr, usize>>,
    /// The address to which a host sent last: answers without a context leave from there.
    arrived_at: BTreeMap<IpAddr, usize>,
    /// The latest packet's context and destination, and the address that it left from.
    latest: Cell<Option<(Option<Context>, IpAddr, usize)>>,
    share: u8,
    /// Size of a packet, bytes.
    packet: u64,
}

impl Links {
    /// Takes a share of the host that no other process has, on all of these addresses. Packets have `packet` bytes of
    /// payload and take `wire`.
    ///
    /// # Errors
    /// All shares are taken, or the kernel has no more sockets.
    pub(crate) fn open(
        addresses: &[IpAddr],
        paths: u16,
        packet: u16,
        wire: Wire,
        planned: &Planned,
    ) -> Result<Self, SocketError> {
        let mut refusal = None;
        for share in 0..SHARES {
            let bound: Result<Vec<Link>, SocketError> = addresses
                .iter()
                .map(|&ip| {
                    let local = SocketAddr::new(ip, FIRST_PORT + share);
                    // AF_XDP refuses the loopback interface, which every device has, with a line.
                    let wire = if ip.is_loopback() { Wire::Kernel } else { wire };
                    let config = SocketConfig { wire, ..SocketConfig::new(local, paths) };
                    Link::open(config, planned)
                })
                .collect();
            match bound {
                Ok(links) => {
                    let share = u8::try_from(share).expect("a share fits in a byte");
                    return Ok(Self {
                        links,
                        routes: BTreeMap::new(),
                        arrived_at: BTreeMap::new(),
                        latest: Cell::new(None),
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

    /// Returns the high byte of this process's queue pair numbers.
    pub(crate) fn share(&self) -> u8 {
        self.share
    }

    /// Returns an address.
    pub(crate) fn ip(&self, index: usize) -> IpAddr {
        self.links[index].ip
    }

    /// Returns `true` if an address received or sent a packet recently.
    pub(crate) fn is_active(&self, index: usize) -> bool {
        let link = &self.links[index];
        link.senders.is_some() && link.idle < QUIET_AFTER
    }

    /// Returns the address from which a context sends to `peer`; `peer` itself if this host has no address of its
    /// family.
    #[inline]
    pub(crate) fn source_for(&self, context: Option<Context>, peer: IpAddr) -> IpAddr {
        self.index_for(context, peer).map_or(peer, |index| self.links[index].ip)
    }

    #[inline]
    fn index_for(&self, context: Option<Context>, peer: IpAddr) -> Option<usize> {
        if let Some((of, to, index)) = self.latest.get()
            && (of, to) == (context, peer)
        {
            return Some(index);
        }
        let same_family = |link: &Link| link.ip.is_ipv4() == peer.is_ipv4();
        let routes = context.and_then(|context| self.routes.get(&context));
        let route =
            routes.and_then(|routes| routes.get(&peer)).or_else(|| self.arrived_at.get(&peer));
        let index = route.copied().or_else(|| self.links.iter().position(same_family))?;
        self.latest.set(Some((context, peer, index)));
        Some(index)
    }

    /// Makes a context send to `peer` from this address from now on.
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

    /// Opens the source port that a context chose for packets to `peer`, at the address from which it sends there.
    ///
    /// # Errors
    /// The port is none of RoCE v2's, another process has it, or the context has chosen too many.
    pub(crate) fn claim_port(
        &mut self,
        context: Context,
        peer: IpAddr,
        port: NonZeroU16,
    ) -> Outcome<()> {
        if port.get() < FIRST_CHOSEN_PORT {
            return Err(EINVAL);
        }
        let index = self.index_for(Some(context), peer).ok_or(EINVAL)?;
        let Link { senders, config, chosen, inbox, .. } = &mut self.links[index];
        if !chosen.may_claim(context, port) {
            return Err(Errno(libc::ENOSPC));
        }
        let senders = open_once(senders, config, inbox).map_err(Errno::from_socket)?;
        chosen.claim(context, port, senders, config).map_err(Errno::from_socket)
    }

    /// Removes the routes and the source ports of a closed context.
    pub(crate) fn forget(&mut self, context: Context) {
        self.routes.remove(&context);
        self.links.iter_mut().for_each(|link| link.chosen.forget(context));
        self.latest.set(None);
    }

    /// Writes a packet for sending. Without sockets for it, the packet is lost.
    ///
    /// # Errors
    /// Its payload cannot be read. The bytes that leave in its place are not a packet.
    pub(crate) fn push(
        &mut self,
        transmit: &Transmit,
        source: Source<'_>,
        seals: &mut Seals,
    ) -> Result<(), Fault> {
        let to = transmit.to.ip();
        let Some(index) = self.index_for(transmit.context, to) else { return Ok(()) };
        let link = &mut self.links[index];
        link.idle = 0;
        let socket = link.socket(transmit);
        let class = transmit.marking.traffic_class;
        let Ok(senders) = link.senders() else { return Ok(()) };
        let wrap = seals.wrap(&transmit.to, transmit.connection, &transmit.packet);
        let header = transmit.packet.len() + transmit.rdma.map_or(0, |rdma| rdma.header_len());
        let size = header + usize::from(transmit.payload_len) + wrap.len();
        let size = u16::try_from(size).expect("an MTU of at most 9000 bytes and headers");
        let mut written = Ok(());
        senders.outbox.push_classed(&transmit.to, socket, class, size, |out| {
            written = write_packet(transmit, source, wrap.inside_mut(0, out));
            match written {
                Ok(()) => seals.seal(wrap, 0, out),
                Err(_) => out.fill(0),
            }
        });
        written
    }

    /// Makes packets leave from the ports of another plan from now on.
    ///
    /// # Errors
    /// A port is taken, or the kernel has no more sockets. Addresses before that one may have the new plan.
    pub(crate) fn plan(&mut self, planned: &Planned) -> Result<(), SocketError> {
        self.links.iter_mut().try_for_each(|link| link.plan(planned))
    }

    /// Returns the number of packets that the kernel can take. If several addresses are used, a full one does not hold
    /// back the others.
    pub(crate) fn room(&mut self, now: Instant) -> usize {
        let used = self.links.iter_mut().filter_map(|link| {
            let senders = link.senders.as_mut()?;
            let used = link.idle < QUIET_AFTER || senders.outbox.room_at().is_some();
            used.then_some(senders)
        });
        let bytes = used.map(|senders| senders.outbox.room(now)).max().unwrap_or(u64::MAX);
        usize::try_from(bytes.div_ceil(self.packet)).unwrap_or(usize::MAX)
    }

    /// Returns the next time at which there may be room again.
    pub(crate) fn room_at(&self) -> Option<Instant> {
        let senders = self.links.iter().filter_map(|link| link.senders.as_ref());
        senders.filter_map(|senders| senders.outbox.room_at()).min()
    }

    /// Returns the sockets that packets arrive on.
    pub(crate) fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.links.iter().flat_map(|link| link.inbox.readable())
    }

    /// Waits for a packet, for `span` at most.
    pub(crate) fn wait(&self, span: Duration) {
        // A failed wait counts as a short one.
        let _ = wait(self.readable(), std::iter::empty(), span);
    }
}

impl SocketSet for Links {
    #[inline]
    fn addresses(&self) -> usize {
        self.links.len()
    }

    fn receive(&mut self, index: usize) -> io::Result<usize> {
        let link = &mut self.links[index];
        let messages = link.inbox.receive();
        let has_any = messages.as_ref().is_ok_and(|&messages| messages > 0);
        link.idle = if has_any { 0 } else { link.idle.saturating_add(1) };
        messages
    }

    #[inline]
    fn inbox(&mut self, index: usize) -> &mut Inbox {
        &mut self.links[index].inbox
    }

    #[inline]
    fn record_arrival(&mut self, peer: IpAddr, index: usize) {
        if self.arrived_at.get(&peer) == Some(&index) {
            return;
        }
        if self.arrived_at.len() >= MAX_ARRIVED_AT {
            // Any host can forge an address in a packet. Active peers are recorded again.
            self.arrived_at.clear();
        }
        self.arrived_at.insert(peer, index);
        self.latest.set(None);
    }

    fn stray(&mut self, index: usize) -> Option<(SocketAddr, &mut [u8])> {
        self.links[index].senders.as_mut()?.stray()
    }

    fn waiting(&self) -> usize {
        let senders = self.links.iter().filter_map(|link| link.senders.as_ref());
        senders.map(|senders| senders.outbox.waiting()).sum()
    }

    fn flush(&mut self) {
        self.links
            .iter_mut()
            .filter_map(|link| link.senders.as_mut())
            .for_each(|senders| senders.outbox.flush());
    }
}

impl Link {
    fn open(config: SocketConfig, planned: &Planned) -> Result<Self, SocketError> {
        let planned = planned.from(config.local.ip(), config.paths);
        let further_source_ports = planned.own().iter().map(|socket| socket.port).collect();
        let config = SocketConfig { further_source_ports, ..config };
        let (inbox, _) = Inbox::open(&config)?;
        let (ip, chosen) = (config.local.ip(), SourcePorts::default());
        Ok(Self { ip, inbox, senders: None, config, planned, chosen, idle: 0 })
    }

    fn plan(&mut self, planned: &Planned) -> Result<(), SocketError> {
        if self.planned.is_empty() && !planned.has(self.ip) {
            return Ok(());
        }
        let senders = open_once(&mut self.senders, &self.config, &mut self.inbox)?;
        let of_sockets = senders
            .outbox
            .source_ports()
            .map_err(|cause| SocketError::Refused { what: "ask for a socket's port", cause })?;
        let sources = planned.replacing(
            self.ip,
            &Present {
                own: self.planned.own(),
                of_paths: &of_sockets[..usize::from(self.config.paths).min(of_sockets.len())],
                chosen: Some(&self.chosen),
                next: senders.outbox.next_index(),
            },
        );
        let is_new = |socket: &&PlannedSocket| !self.planned.own().contains(socket);
        let changes = sources.own().iter().filter(is_new).map(|socket| (socket.index, socket.port));
        senders.replace(&self.config, &changes.collect::<Vec<_>>())?;
        self.planned = sources;
        Ok(())
    }

    fn senders(&mut self) -> Result<&mut Senders, SocketError> {
        open_once(&mut self.senders, &self.config, &mut self.inbox)
    }

    /// Returns the socket for a packet: that of the source port which the program chose, or else that of its path. A
    /// context that has moved to another address since has no chosen port here.
    #[inline]
    fn socket(&self, transmit: &Transmit) -> u16 {
        let chosen = transmit.marking.source_port.and_then(|port| self.chosen.socket(port));
        chosen.unwrap_or_else(|| {
            self.planned.socket(transmit.to.ip(), transmit.path.0, self.config.paths)
        })
    }
}

/// Opens the sockets to send from on first use. If the inbox receives by AF_XDP, they send by it, too.
fn open_once<'a>(
    senders: &'a mut Option<Senders>,
    config: &SocketConfig,
    inbox: &mut Inbox,
) -> Result<&'a mut Senders, SocketError> {
    if senders.is_none() {
        let mut opened = Senders::open(config)?;
        if let Some(sender) = inbox.take_xdp_sender() {
            opened.send_by(sender)?;
        }
        *senders = Some(opened);
    }
    Ok(senders.as_mut().expect("opened just now"))
}

/// Writes a packet to `out`.
fn write_packet(transmit: &Transmit, source: Source<'_>, out: &mut [u8]) -> Result<(), Fault> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        let addresses = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let planned = Planned::from_environment().unwrap();
        Links::open(&addresses, 1, 1_024, Wire::Kernel, &planned).unwrap()
    }

    fn address(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    /// A hostile process names a host before another does, from an address that gets no answers.
    #[test]
    fn a_route_of_one_context_does_not_affect_another() {
        let (mut links, peer) = (links(), address(9));
        let [hostile, honest] = [Context(1), Context(2)];
        links.route(hostile, peer, 1).unwrap();
        assert_eq!(links.source_for(Some(honest), peer), address(1));
        links.route(honest, peer, 0).unwrap();
        let source = |links: &Links, context| links.source_for(Some(context), peer);
        assert_eq!((source(&links, hostile), source(&links, honest)), (address(2), address(1)));
        // Its choice does not apply to answers without a context either.
        links.route(hostile, peer, 1).unwrap();
        links.record_arrival(peer, 0);
        assert_eq!(links.source_for(None, peer), address(1));
        links.forget(honest);
        links.record_arrival(peer, 1);
        assert_eq!(source(&links, honest), address(2), "the hostile route has no effect");
    }

    #[test]
    fn neither_a_context_nor_an_unknown_host_fills_the_tables() {
        let mut links = links();
        let host = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        for number in 0..MAX_ROUTES {
            assert!(links.may_route(Context(1), host(number)));
            links.route(Context(1), host(number), 0).unwrap();
        }
        assert!(!links.may_route(Context(1), host(MAX_ROUTES)));
        assert!(links.may_route(Context(1), host(5)) && links.may_route(Context(2), host(5)));
        (0..3 * MAX_ARRIVED_AT).for_each(|number| links.record_arrival(host(number), 1));
        assert!(links.arrived_at.len() <= MAX_ARRIVED_AT);
    }

    #[test]
    fn packets_leave_from_another_plans_ports_once_it_is_set() {
        let mut links = links();
        let rows = |ports: &[u16]| {
            let row = |port: &u16| format!("127.0.0.1,127.0.0.9,{port}\n");
            let rows: String = ports.iter().map(row).collect();
            Planned::parse(&format!("source,destination,source_port\n{rows}")).unwrap()
        };
        let ports = |links: &mut Links, peer: u8| -> Vec<u16> {
            let link = &mut links.links[0];
            let all = link.senders().unwrap().outbox.source_ports().unwrap();
            let sockets = (0..3).map(|path| link.planned.socket(address(peer), path, 1));
            sockets.map(|socket| all[usize::from(socket)]).collect()
        };
        let senders = links.links[0].senders().unwrap();
        let unplanned = senders.outbox.source_ports().unwrap()[0];
        // Ports below the kernel's, which no other test takes.
        links.plan(&rows(&[11_001, 11_002])).unwrap();
        assert_eq!(ports(&mut links, 9), [11_001, 11_002, 11_001]);
        links.plan(&rows(&[11_002, 11_003, unplanned])).unwrap();
        assert_eq!(ports(&mut links, 9), [11_002, 11_003, unplanned]);
        assert_eq!(ports(&mut links, 8), [unplanned; 3]);
        assert!(links.links[1].senders.is_none(), "the plan has no port of this address");
        links.plan(&rows(&[11_003])).unwrap();
        assert_eq!(ports(&mut links, 9), [11_003; 3]);
    }
}
