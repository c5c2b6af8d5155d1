//! Labs to steer, and real flows whose way every router tells.
#![allow(dead_code, unreachable_pub, reason = "each test uses what it needs")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{LinkAddr, MsgFlags, recvmsg};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use weft_lab::{Lab, LabSpec, enter, requirements};
use weft_route::{Fabric, Flow, LinkId};
use weft_steer::Inventory;
use weft_topo::hash::FiveTuple;
use weft_units::{Rng, Seed};

pub const UDP: u8 = 17;
pub const TCP: u8 = 6;
pub const PORT: u16 = 4791;
/// Only sockets for all protocols see what leaves (packet(7)).
const ETH_P_ALL: u16 = 0x0003;

/// Says why a test cannot run here, if so.
pub fn is_missing(frr: bool) -> bool {
    let wanted =
        |name: &str, essential: bool| essential || name.contains("seed") || (frr && name == "FRR");
    let missing = requirements().into_iter().find(|it| wanted(&it.name, it.essential) && !it.met);
    if let Some(missing) = &missing {
        let text = format!("SKIPPED: no {} ({})\n", missing.name, missing.fix);
        io::stderr().write_all(text.as_bytes()).unwrap();
    }
    missing.is_some()
}

/// A seed that is another one in every run.
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

/// The fabric as its kernels have it now.
pub fn read(inventory: &Inventory) -> Fabric {
    Fabric::new(inventory.read_tables().unwrap()).unwrap()
}

/// Packets that leave a router, by interface.
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

    /// Notes on which links the flows were seen to leave routers.
    fn look(&self, fabric: &Fabric, seen: &mut BTreeMap<Flow, BTreeSet<LinkId>>) {
        let mut packet = [0; 64];
        for (name, socket) in &self.0 {
            let router = fabric.find(name).unwrap();
            loop {
                let mut room = [IoSliceMut::new(&mut packet)];
                let flags = MsgFlags::MSG_DONTWAIT;
                let message = match recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut room, None, flags)
                {
                    Err(Errno::EAGAIN) => break,
                    message => message.unwrap(),
                };
                let Some(from) = message.address else { continue };
                if from.pkttype() != libc::PACKET_OUTGOING {
                    continue;
                }
                let index = u32::try_from(from.ifindex()).unwrap();
                let link = fabric.link_of_ifindex(router, index);
                if let Some(links) = seen.get_mut(&flow_of(&packet)) {
                    links.insert(link.expect("every interface is known"));
                }
            }
        }
    }
}

/// The flow of an IPv4 packet of UDP or TCP (RFC 791, section 3.1).
fn flow_of(packet: &[u8; 64]) -> Flow {
    let header = usize::from(packet[0] & 15) * 4;
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let address = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
    Flow(FiveTuple {
        src: address(12),
        dst: address(16),
        src_port: port(header),
        dst_port: port(header + 2),
        protocol: packet[9],
    })
}

/// Random flows between hosts of different leaves, so many of each pair.
pub fn flows(lab: &Lab, each: usize, protocol: u8, rng: &mut Rng) -> Vec<Flow> {
    let fabric = lab.fabric();
    let mut flows = BTreeSet::new();
    for source in 0..fabric.hosts() {
        let others = (0..fabric.hosts()).filter(|&it| fabric.leaf_of(it) != fabric.leaf_of(source));
        for destination in others {
            let wanted = flows.len() + each;
            while flows.len() < wanted {
                flows.insert(Flow(FiveTuple {
                    src: fabric.address(source).to_bits(),
                    dst: fabric.address(destination).to_bits(),
                    src_port: 10_000 + u16::try_from(rng.below(50_000)).unwrap(),
                    dst_port: PORT,
                    protocol,
                }));
            }
        }
    }
    flows.into_iter().collect()
}

/// Sends a packet of each flow until it was seen on every link that is predicted, and gives the flows that
/// took another way, with where they were seen.
pub fn mispredicted(
    lab: &Lab,
    taps: &Taps,
    fabric: &Fabric,
    flows: &[Flow],
) -> Vec<(Flow, BTreeSet<LinkId>, BTreeSet<LinkId>)> {
    let routers = |links: &[LinkId]| -> BTreeSet<LinkId> {
        links.iter().copied().filter(|&link| fabric.port_of(link).is_some()).collect()
    };
    let predicted: BTreeMap<Flow, BTreeSet<LinkId>> =
        flows.iter().map(|&flow| (flow, routers(fabric.path(&flow.0).links()))).collect();
    let mut seen: BTreeMap<Flow, BTreeSet<LinkId>> =
        flows.iter().map(|&flow| (flow, BTreeSet::new())).collect();
    let give_up = Instant::now() + Duration::from_secs(20);
    for some in flows.chunks(200) {
        loop {
            let missing: Vec<Flow> = some
                .iter()
                .copied()
                .filter(|flow| !seen[flow].is_superset(&predicted[flow]))
                .collect();
            if missing.is_empty() || Instant::now() > give_up {
                break;
            }
            // One that has been seen elsewhere is wrong already.
            send(lab, &missing);
            let patience = Instant::now() + Duration::from_millis(200);
            let done = |seen: &BTreeMap<Flow, BTreeSet<LinkId>>| {
                missing.iter().all(|flow| seen[flow].is_superset(&predicted[flow]))
            };
            while Instant::now() < patience && !done(&seen) {
                taps.look(fabric, &mut seen);
            }
        }
    }
    taps.look(fabric, &mut seen);
    let wrong = flows.iter().filter(|flow| seen[flow] != predicted[flow]);
    wrong.map(|flow| (*flow, predicted[flow].clone(), seen[flow].clone())).collect()
}

/// A datagram of a connected socket, or the first segment of a connection, from each flow's port.
fn send(lab: &Lab, flows: &[Flow]) {
    for same in flows.chunk_by(|a, b| a.0.src == b.0.src) {
        let fabric = lab.fabric();
        let source = Ipv4Addr::from_bits(same[0].0.src);
        let host = (0..fabric.hosts()).find(|&host| fabric.address(host) == source).unwrap();
        let send_all = || {
            for Flow(tuple) in same {
                let kind = if tuple.protocol == UDP { Type::DGRAM } else { Type::STREAM };
                let socket = Socket::new(Domain::IPV4, kind, None)?;
                socket.set_reuse_address(true)?;
                socket.set_nonblocking(true)?;
                socket.bind(&SockAddr::from(SocketAddrV4::new(source, tuple.src_port)))?;
                let to = SocketAddrV4::new(Ipv4Addr::from_bits(tuple.dst), tuple.dst_port);
                // A connection is refused, or still under way: its first segment has left.
                let connected = socket.connect(&SockAddr::from(to));
                if tuple.protocol == UDP {
                    connected?;
                    // An earlier datagram was refused; this one leaves all the same.
                    let _ = socket.send(b"predicted");
                }
            }
            io::Result::Ok(())
        };
        lab.enter(&format!("h{host}"), send_all).unwrap().unwrap();
    }
}
