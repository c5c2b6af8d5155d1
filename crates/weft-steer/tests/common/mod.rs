//! Labs to steer, and real flows whose path is captured at every router.
#![allow(dead_code, unreachable_pub, reason = "each test uses what it needs")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{LinkAddr, MsgFlags, recvmsg};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use weft_lab::{Lab, LabSpec, enter};
use weft_route::{AlarmRules, Fabric, Flow, LinkId};
use weft_steer::agent::{AgentPlan, Watched};
use weft_steer::{Daemon, Inventory};
use weft_testkit::HASH_SEED;
use weft_topo::hash::FiveTuple6;
use weft_trial::routers_of;
use weft_units::{Rng, Seed};

pub const UDP: u8 = 17;
pub const TCP: u8 = 6;
pub const PORT: u16 = 4791;
/// The protocol of a packet socket that also sees outgoing packets (packet(7)).
const ETH_P_ALL: u16 = 0x0003;

/// Returns `true`, and records the skip, if a test of steering cannot run here.
pub fn is_missing(test: &str, frr: bool) -> bool {
    let also = if frr { &[HASH_SEED, "FRR"][..] } else { &[HASH_SEED] };
    weft_testkit::lab_is_missing(test, also)
}

/// Returns a seed that differs in every run.
pub fn any_seed() -> Seed {
    let mut bytes = [0; 8];
    File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    Seed(u64::from_le_bytes(bytes))
}

pub fn lab(name: &str, change: impl FnOnce(&mut LabSpec)) -> Lab {
    let mut spec = LabSpec::named(format!("ws{name}{}", std::process::id()));
    change(&mut spec);
    Lab::up(&spec).unwrap()
}

pub fn millis(count: u64) -> weft_units::Duration {
    weft_units::Duration::from_millis(count)
}

/// Returns rules of alarms with windows of 0.5 s instead of the paper's 10 s.
pub fn short_windows() -> AlarmRules {
    AlarmRules {
        window: millis(500),
        marks: 100,
        in_a_row: 3,
        within: millis(3000),
        phase: millis(1500),
        at_a_router: 5,
    }
}

/// Returns agents of all routers of a lab, which report to a controller several times in such a window.
pub fn agents(lab: &Lab, daemon: &Daemon) -> AgentPlan {
    let routers = routers_of(lab).routers.into_iter().map(|router| Watched {
        address: router.agent,
        namespace: Some(lab.fabric().node(&router.name).unwrap().namespace.clone()),
    });
    AgentPlan {
        routers: routers.collect(),
        collectors: vec![daemon.listening().unwrap()],
        source: None,
        rate: 8,
        flush: Duration::from_millis(20),
        counters: Duration::from_millis(150),
    }
}

/// Makes hosts' sockets send flow label zero, which is predicted. If routers hash the label, packets are sent by
/// [`by_hand`].
pub fn no_flow_labels(lab: &Lab) {
    for host in 0..lab.fabric().hosts() {
        set(lab, &format!("h{host}"), "ipv6/auto_flowlabels", "0");
    }
}

/// Sets a value below `/proc/sys/net` at a node.
pub fn set(lab: &Lab, node: &str, sysctl: &str, value: &str) {
    let path = format!("/proc/sys/net/{sysctl}");
    lab.enter(node, || std::fs::write(&path, value)).unwrap().unwrap();
}

/// Reads the fabric from its kernels.
pub fn read(inventory: &Inventory) -> Fabric {
    Fabric::new(inventory.read_tables().unwrap()).unwrap()
}

/// The capture sockets of routers, which see the packets that leave them.
pub struct Taps(Vec<(String, Socket)>);

impl Taps {
    pub fn open(lab: &Lab) -> Self {
        let fabric = lab.fabric();
        let tap = |node: &weft_lab::Node| {
            let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
            let open = || Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol));
            let socket = enter(&node.namespace, open).unwrap().unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.set_recv_buffer_size(8 << 20).unwrap();
            (node.name.clone(), socket)
        };
        Self(fabric.nodes[fabric.hosts()..].iter().map(tap).collect())
    }

    /// Records the links on which the flows leave routers.
    fn capture(&self, fabric: &Fabric, seen: &mut BTreeMap<Flow, BTreeSet<LinkId>>) {
        let mut packet = [0; 64];
        for (name, socket) in &self.0 {
            let router = fabric.find(name).unwrap();
            loop {
                let mut buffers = [IoSliceMut::new(&mut packet)];
                let flags = MsgFlags::MSG_DONTWAIT;
                let message =
                    match recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut buffers, None, flags) {
                        Err(Errno::EAGAIN) => break,
                        message => message.unwrap(),
                    };
                let Some(from) = message.address else { continue };
                if from.pkttype() != libc::PACKET_OUTGOING {
                    continue;
                }
                let index = u32::try_from(from.ifindex()).unwrap();
                let link = fabric.link_of_ifindex(router, index);
                let flow = flow_of(&packet);
                if let Some(links) = flow.and_then(|flow| seen.get_mut(&flow)) {
                    links.insert(link.expect("every interface is known"));
                }
            }
        }
    }
}

/// Returns the flow of a UDP or TCP packet in IPv4 (RFC 791, section 3.1) or IPv6 (RFC 8200, section 3).
fn flow_of(packet: &[u8; 64]) -> Option<Flow> {
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let address4 =
        |at: usize| -> IpAddr { <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap().into() };
    let address6 =
        |at: usize| -> IpAddr { <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap().into() };
    match packet[0] >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let from = SocketAddr::new(address4(12), port(header));
            let to = SocketAddr::new(address4(16), port(header + 2));
            Flow::new(from, to, packet[9])
        }
        6 => {
            let from = SocketAddr::new(address6(8), port(40));
            let to = SocketAddr::new(address6(24), port(42));
            let flow = Flow::new(from, to, packet[6]);
            let label = u32::from_be_bytes(packet[..4].try_into().unwrap()) & 0xf_ffff;
            flow.map(|flow| labelled(flow, label))
        }
        _ => None,
    }
}

/// Sets the flow label of an IPv6 flow.
pub fn labelled(flow: Flow, flow_label: u32) -> Flow {
    match flow {
        Flow::V6(tuple) => Flow::V6(FiveTuple6 { flow_label, ..tuple }),
        Flow::V4(_) => flow,
    }
}

/// Returns a host's address.
pub fn address(lab: &Lab, host: usize, v6: bool) -> IpAddr {
    let fabric = lab.fabric();
    if v6 { fabric.address6(host).unwrap().into() } else { fabric.address(host).into() }
}

/// Returns random flows between hosts of different leaves, `each` per pair.
pub fn flows(lab: &Lab, each: usize, (v6, protocol): (bool, u8), rng: &mut Rng) -> Vec<Flow> {
    let fabric = lab.fabric();
    let mut flows = BTreeSet::new();
    for source in 0..fabric.hosts() {
        let others = (0..fabric.hosts()).filter(|&it| fabric.leaf_of(it) != fabric.leaf_of(source));
        for destination in others {
            let wanted = flows.len() + each;
            while flows.len() < wanted {
                let port = 10_000 + u16::try_from(rng.below(50_000)).unwrap();
                let from = SocketAddr::new(address(lab, source, v6), port);
                let to = SocketAddr::new(address(lab, destination, v6), PORT);
                flows.insert(Flow::new(from, to, protocol).unwrap());
            }
        }
    }
    flows.into_iter().collect()
}

/// A function that sends packets of flows: through a socket of the flow, as programs do, or whole on a raw socket, so
/// that the kernel knows only the packet.
pub type Send = fn(&[Flow]) -> io::Result<()>;

/// Sends packets of each flow until it was captured on every predicted link. Returns the flows that took another path,
/// with their predicted and captured links.
pub fn mispredicted(
    lab: &Lab,
    taps: &Taps,
    fabric: &Fabric,
    flows: &[Flow],
    send: Send,
) -> Vec<(Flow, BTreeSet<LinkId>, BTreeSet<LinkId>)> {
    let routers = |links: &[LinkId]| -> BTreeSet<LinkId> {
        links.iter().copied().filter(|&link| fabric.port_of(link).is_some()).collect()
    };
    let predicted: BTreeMap<Flow, BTreeSet<LinkId>> =
        flows.iter().map(|&flow| (flow, routers(fabric.path(&flow).links()))).collect();
    let mut seen: BTreeMap<Flow, BTreeSet<LinkId>> =
        flows.iter().map(|&flow| (flow, BTreeSet::new())).collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    for chunk in flows.chunks(200) {
        loop {
            let missing: Vec<Flow> = chunk
                .iter()
                .copied()
                .filter(|flow| !seen[flow].is_superset(&predicted[flow]))
                .collect();
            if missing.is_empty() || Instant::now() > deadline {
                break;
            }
            // Flows that were captured on other links are sent too; they are mispredicted already.
            send_all(lab, &missing, send);
            let wave_end = Instant::now() + Duration::from_millis(200);
            let done = |seen: &BTreeMap<Flow, BTreeSet<LinkId>>| {
                missing.iter().all(|flow| seen[flow].is_superset(&predicted[flow]))
            };
            while Instant::now() < wave_end && !done(&seen) {
                taps.capture(fabric, &mut seen);
            }
        }
    }
    taps.capture(fabric, &mut seen);
    let wrong = flows.iter().filter(|flow| seen[flow] != predicted[flow]);
    wrong.map(|flow| (*flow, predicted[flow].clone(), seen[flow].clone())).collect()
}

/// Sends the flows from their hosts.
fn send_all(lab: &Lab, flows: &[Flow], send: Send) {
    let hosts = lab.fabric().hosts();
    for same in flows.chunk_by(|a, b| a.src() == b.src()) {
        let is_it = |&host: &usize| address(lab, host, same[0].src().is_ipv6()) == same[0].src();
        let host = (0..hosts).find(is_it).unwrap();
        lab.enter(&format!("h{host}"), || send(same)).unwrap().unwrap();
    }
}

/// Sends a datagram of a connected socket, or the first segment of a connection, from each flow's port.
pub fn by_sockets(flows: &[Flow]) -> io::Result<()> {
    for flow in flows {
        let (src_port, dst_port) = flow.ports();
        let kind = if flow.protocol() == UDP { Type::DGRAM } else { Type::STREAM };
        let from = SocketAddr::new(flow.src(), src_port);
        let socket = Socket::new(Domain::for_address(from), kind, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::from(from))?;
        // The connection is refused or pending, but its first segment has left.
        let connected = socket.connect(&SockAddr::from(SocketAddr::new(flow.dst(), dst_port)));
        if flow.protocol() == UDP {
            connected?;
            // The error may be the refusal of an earlier datagram; this one leaves all the same.
            let _ = socket.send(b"predicted");
        }
    }
    Ok(())
}

/// Sends a datagram of each flow with the predicted header; its checksum is not checked.
pub fn by_hand(flows: &[Flow]) -> io::Result<()> {
    let raw = |domain| Socket::new(domain, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)));
    let (v4, v6) = (raw(Domain::IPV4)?, raw(Domain::IPV6)?);
    for flow in flows {
        let (src_port, dst_port) = flow.ports();
        let mut packet = match flow {
            Flow::V4(tuple) => {
                let mut header = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, tuple.protocol, 0, 0];
                header.extend([tuple.src.to_be_bytes(), tuple.dst.to_be_bytes()].concat());
                header
            }
            Flow::V6(tuple) => {
                let mut header = ((6 << 28) | tuple.flow_label).to_be_bytes().to_vec();
                header.extend([0, 8, tuple.protocol, 64]);
                header.extend([tuple.src.octets(), tuple.dst.octets()].concat());
                header
            }
        };
        packet.extend([src_port, dst_port, 8, 0].map(u16::to_be_bytes).concat());
        let socket = if flow.dst().is_ipv6() { &v6 } else { &v4 };
        socket.send_to(&packet, &SockAddr::from(SocketAddr::new(flow.dst(), 0)))?;
    }
    Ok(())
}

/// Stops the other threads when it is dropped.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
