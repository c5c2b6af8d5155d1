//! Planned flows as real packets: Linux routers in network namespaces, with a capture in every spine. Without
//! root or a required tool the test is skipped and prints the reason.
#![allow(clippy::disallowed_methods, reason = "this test watches a kernel in real time")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use weft_lab::{Lab, LabSpec, enter};
use weft_plan::cluster::Network;
use weft_plan::ports::{Entropy, Fabric, Flow, SearchLimits, bound, loads, plan};
use weft_testkit::{HASH_SEED, lab_is_missing};
use weft_topo::build::LeafSpine;
use weft_topo::hash::{HashAlgorithm, SwitchHash};
use weft_topo::{Failures, LinkId, NodeId};
use weft_units::{Rng, Seed};

const LEAVES: u32 = 3;
const HOSTS_PER_LEAF: u32 = 2;
const SPINES: u32 = 5;
/// Number of flows of each pair of hosts in a round.
const FLOWS: usize = 60;
/// Number of labs, each with three rounds.
const LABS: u64 = 3;
const UDP: u8 = 17;
const TCP: u8 = 6;
/// The EtherType of IPv4.
const ETHERTYPE: u16 = 0x0800;

/// A flow's protocol, addresses and source port.
type Key = (u8, Ipv4Addr, Ipv4Addr, u16);

#[test]
fn every_planned_flow_takes_the_predicted_links_of_linux_routers() {
    if lab_is_missing("planned flows", &[HASH_SEED]) {
        return;
    }
    let mut bytes = [0; 8];
    File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    let seed = Seed(u64::from_le_bytes(bytes));
    let mut checked = 0;
    for number in 0..LABS {
        let mut rng = seed.child("lab", number).rng();
        checked += three_rounds(number, &mut rng, seed);
    }
    println!("{checked} flows of seed {seed:?} took the predicted links, 0 did not");
    assert!(checked >= 10_000, "{checked} flows");
}

/// Runs three rounds: all links with equal weights; random weights; random weights and a failed link.
fn three_rounds(number: u64, rng: &mut Rng, seed: Seed) -> usize {
    let spec = LabSpec {
        leaves: LEAVES as usize,
        spines: SPINES as usize,
        hosts_per_leaf: HOSTS_PER_LEAF as usize,
        seed: rng.next_u64(),
        ..LabSpec::named(format!("wq{}-{number}", std::process::id()))
    };
    let mut lab = Lab::up(&spec).unwrap();
    let mut network = network(&lab);
    let mut failures = Failures::none();
    let captures: Vec<Socket> = (0..SPINES).map(|spine| capture(&lab, spine)).collect();
    let mut checked = 0;
    for round in 0..3 {
        if round == 1 {
            for leaf in 0..LEAVES {
                for spine in 0..SPINES {
                    let weight = 1 + u32::try_from(rng.below(4)).unwrap();
                    network.weights.insert(uplink(&network, leaf, spine), weight);
                }
            }
        }
        if round == 2 {
            let (leaf, spine) = (rng.below(LEAVES.into()), rng.below(SPINES.into()));
            lab.set_down(&format!("l{leaf}-s{spine}")).unwrap();
            let [leaf, spine] = [leaf, spine].map(|number| u32::try_from(number).unwrap());
            failures.fail_link(uplink(&network, leaf, spine));
        }
        install_routes(&lab, &network, &failures);
        let protocol = if round == 1 { TCP } else { UDP };
        checked += one_round(&lab, &captures, &network, &failures, protocol, seed);
    }
    checked
}

/// Returns the lab's fabric in the planner's form. Hosts, leaves and spines have the same numbers.
fn network(lab: &Lab) -> Network {
    let shape = LeafSpine {
        leaves: LEAVES,
        spines: SPINES,
        hosts_per_leaf: HOSTS_PER_LEAF,
        ..LeafSpine::default()
    };
    let topology = shape.build().unwrap();
    let fabric = lab.fabric();
    let hash = |seed| SwitchHash { algorithm: HashAlgorithm::LinuxFields, seed, rotate: 0 };
    let switches = &fabric.nodes[fabric.hosts()..];
    Network {
        hashes: switches.iter().map(|node| hash(node.hash_seed)).collect(),
        addresses: (0..fabric.hosts()).map(|host| fabric.address(host).into()).collect(),
        weights: BTreeMap::new(),
        names: switches.iter().map(|node| node.name.clone()).collect(),
        topology,
    }
}

fn leaf_node(leaf: u32) -> NodeId {
    NodeId(LEAVES * HOSTS_PER_LEAF + leaf)
}

fn uplink(network: &Network, leaf: u32, spine: u32) -> LinkId {
    network.topology.ports(leaf_node(leaf))[(HOSTS_PER_LEAF + spine) as usize]
}

/// Installs the routes of the model in each leaf, as a routing protocol would.
fn install_routes(lab: &Lab, network: &Network, failures: &Failures) {
    for leaf in 0..LEAVES {
        let mut batch = String::new();
        for other in (0..LEAVES).filter(|&other| other != leaf) {
            write!(batch, "route replace 10.{}.0.0/16", other + 1).unwrap();
            for spine in 0..SPINES {
                let up = uplink(network, leaf, spine);
                let both = [up, uplink(network, other, spine)];
                if both.iter().all(|&link| failures.is_up(&network.topology, link)) {
                    let weight = network.weights.get(&up).copied().unwrap_or(1);
                    let via = format!("10.{}.{spine}.2", 100 + leaf);
                    write!(batch, " nexthop via {via} dev s{spine} weight {weight}").unwrap();
                }
            }
            batch.push('\n');
        }
        let run = || {
            let mut ip = Command::new("ip")
                .args(["-batch", "-"])
                .stdin(Stdio::piped())
                .spawn()
                .expect("the lab needs ip too");
            ip.stdin.take().unwrap().write_all(batch.as_bytes()).unwrap();
            ip.wait().unwrap().success()
        };
        assert!(lab.enter(&format!("l{leaf}"), run).unwrap(), "{batch}");
    }
}

/// Returns a socket that receives every IPv4 packet that passes a spine.
fn capture(lab: &Lab, spine: u32) -> Socket {
    let name = format!("weft-{}.s{spine}", lab.name());
    let protocol = Protocol::from(i32::from(ETHERTYPE.to_be()));
    let socket = enter(&name, || Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)));
    let socket = socket.unwrap().unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn one_round(
    lab: &Lab,
    captures: &[Socket],
    network: &Network,
    failures: &Failures,
    protocol: u8,
    seed: Seed,
) -> usize {
    let entropy = Entropy { protocol, ..Entropy::default() };
    let fabric = Fabric::new(network, failures, entropy).unwrap();
    let topology = &network.topology;
    let leaf_of = |host: NodeId| host.0 / HOSTS_PER_LEAF;
    let pairs = topology.host_ids().flat_map(|a| topology.host_ids().map(move |b| (a, b)));
    let flows: Vec<Flow> = pairs
        .filter(|&(a, b)| leaf_of(a) != leaf_of(b))
        .flat_map(|(a, b)| [Flow { first: topology.ports(a)[0], destination: b }; FLOWS])
        .collect();
    let plan = plan(&fabric, &flows, SearchLimits::default(), seed).unwrap();
    let expected: BTreeMap<Key, u32> = flows
        .iter()
        .zip(&plan.ports)
        .map(|(&flow, &port)| {
            let path = fabric.path(flow, port);
            let [first, up, _, _] = path[..] else { panic!("{path:?} is no way over a spine") };
            let [source, destination] = [topology.link(first).from, flow.destination]
                .map(|host| Ipv4Addr::from(network.addresses[host.index()]));
            let spine = topology.link(up).to.0 - leaf_node(LEAVES).0;
            ((protocol, source, destination, port), spine)
        })
        .collect();
    assert_eq!(expected.len(), flows.len(), "every flow has a five-tuple of its own");

    let seen = send_and_watch(lab, captures, &expected);
    let context = format!("seed {seed:?}, weights {:?}, {failures:?}", network.weights);
    for (key, spine) in &expected {
        assert_eq!(seen[key], BTreeSet::from([*spine]), "{key:?}: {context}");
    }
    let mut on_spine = [0; SPINES as usize];
    seen.values().flatten().for_each(|&spine| on_spine[spine as usize] += 1);
    let planned = loads(&fabric, &flows, &plan.ports).max();
    println!(
        "protocol {protocol}: {} flows, by spine {on_spine:?}; busiest link {planned}, at least {}",
        flows.len(),
        bound(&fabric, &flows).flows
    );
    flows.len()
}

/// Sends packets of each flow until a spine has seen one, and returns the spines that did.
fn send_and_watch(
    lab: &Lab,
    captures: &[Socket],
    flows: &BTreeMap<Key, u32>,
) -> BTreeMap<Key, BTreeSet<u32>> {
    let mut seen: BTreeMap<Key, BTreeSet<u32>> = BTreeMap::new();
    let keys: Vec<Key> = flows.keys().copied().collect();
    // Chunks are small because packets that a capture has not read yet must fit into its buffer.
    for chunk in keys.chunks(60) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let unseen = |seen: &BTreeMap<Key, BTreeSet<u32>>| {
            chunk.iter().copied().filter(|key| !seen.contains_key(key)).collect::<Vec<Key>>()
        };
        loop {
            let missing = unseen(&seen);
            if missing.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "no spine saw {missing:?}");
            send(lab, &missing);
            // Address resolution may lose packets; those flows are sent again after this deadline.
            let resend_at = Instant::now() + Duration::from_millis(200);
            while Instant::now() < resend_at && !unseen(&seen).is_empty() {
                watch(captures, flows, &mut seen);
            }
        }
    }
    watch(captures, flows, &mut seen);
    seen
}

/// Sends a UDP datagram or a TCP SYN from each flow's port.
fn send(lab: &Lab, flows: &[Key]) {
    for same in flows.chunk_by(|a, b| a.1 == b.1) {
        let fabric = lab.fabric();
        let host = (0..fabric.hosts()).find(|&host| fabric.address(host) == same[0].1).unwrap();
        let send_all = || {
            for &(protocol, source, destination, port) in same {
                let kind = if protocol == UDP { Type::DGRAM } else { Type::STREAM };
                let socket = Socket::new(Domain::IPV4, kind, None)?;
                socket.set_reuse_address(true)?;
                socket.set_nonblocking(true)?;
                socket.bind(&SockAddr::from(SocketAddrV4::new(source, port)))?;
                // The connection is refused or still pending; either way its SYN has left.
                let connected =
                    socket.connect(&SockAddr::from(SocketAddrV4::new(destination, 4791)));
                if protocol == UDP {
                    connected?;
                    socket.send(b"planned")?;
                }
            }
            io::Result::Ok(())
        };
        lab.enter(&format!("h{host}"), send_all).unwrap().unwrap();
    }
}

/// Records the flows that the captures have seen.
fn watch(captures: &[Socket], flows: &BTreeMap<Key, u32>, seen: &mut BTreeMap<Key, BTreeSet<u32>>) {
    let mut packet = [0; 128];
    for (spine, mut capture) in (0..).zip(captures) {
        loop {
            match capture.read(&mut packet) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                length => length.unwrap(),
            };
            let key = key(&packet);
            if flows.contains_key(&key) {
                seen.entry(key).or_default().insert(spine);
            }
        }
    }
}

/// Returns the flow of an IPv4 packet of UDP or TCP (RFC 791, section 3.1).
fn key(packet: &[u8; 128]) -> Key {
    let address = |at: usize| Ipv4Addr::from_octets(packet[at..at + 4].try_into().unwrap());
    let header = usize::from(packet[0] & 15) * 4;
    let port = u16::from_be_bytes([packet[header], packet[header + 1]]);
    (packet[9], address(12), address(16), port)
}
