//! From a seed to a case: topology, configuration, traffic, and the mix of faults.

use std::ops::Range;

use weft_topo::build::{FatTree, Hpn, LeafSpine, Rail, TopologyConfig};
use weft_topo::hash::HashAlgorithm;
use weft_topo::{LinkId, NodeId};
use weft_transport::{RecoveryConfig, Retransmission, TransportConfig, congestion, path, recovery};
use weft_units::{BitRate, ByteCount, Duration, Rng, Seed};

use super::chatter::{Chatter, Deed, What};
use super::faults::Faults;
use super::last_words::LastWords;
use super::ports;
use super::scar;
use super::seal::{self, Sealing};
use crate::fabric::FabricConfig;
use crate::fault::{FaultConfig, Kind as FaultKind};
use crate::queue::{self, QueueConfig};
use crate::scenario::SourcePorts;
use crate::stack::StackConfig;
use crate::switch::buffer::BufferConfig;
use crate::switch::{self, ForwardingConfig};
use crate::time::{SimSpan, SimTime};
use crate::traffic::Side;
use crate::world::{WorldConfig, base_round_trip};

/// One random world.
#[derive(Clone, Debug)]
pub struct Case {
    /// The network.
    pub topology: TopologyConfig,
    /// Everything around the workload.
    pub world: WorldConfig,
    /// The engine of hosts with odd numbers, until they restart: the two ends of a connection need
    /// not be configured alike.
    pub odd: TransportConfig,
    /// Number of every connection's first packet, where it is about to wrap; otherwise random.
    pub first_psn: Option<u32>,
    /// What goes wrong.
    pub faults: Vec<FaultConfig>,
    /// Flipped bits reach the engines: UDP checksums are off somewhere. Then only the world's own
    /// accounts can be checked, and that nothing panics.
    pub hostile: bool,
    /// What stays broken for good.
    pub scar: Option<LinkId>,
    /// What the clock shows when it begins: nothing, or that the 32 bits of the wire's timestamps
    /// are about to wrap.
    pub start_at: SimTime,
    /// When the network is made as good as new.
    pub heal_at: SimTime,
    /// How hosts encrypt, where they do.
    pub sealing: Option<Sealing>,
    pub(super) chatter: Chatter,
    pub(super) last_words: LastWords,
}

/// When the nanoseconds in a packet's timestamps wrap, in microseconds.
const TIMESTAMP_WRAP: u64 = (1 << 32) / 1_000;

impl Case {
    /// The case of a seed.
    pub fn draw(seed: Seed) -> Self {
        Self::draw_with(seed, |_| None)
    }

    /// The same with hosts that encrypt, and mostly an attacker between them.
    pub fn draw_sealed(seed: Seed) -> Self {
        Self::draw_with(seed, |hostile| {
            Some(seal::draw(&mut seed.child("sealing", 0).rng(), hostile))
        })
    }

    /// `sealing` says how hosts encrypt, and is told whether flipped bits get past checksums.
    fn draw_with(seed: Seed, sealing: impl FnOnce(bool) -> Option<Sealing>) -> Self {
        let rng = |part| seed.child(part, 0).rng();
        let topology = topology(&mut rng("topology"));
        let storm = storm(&mut rng("storm"));
        let built = topology.build().expect("drawn within what can be built");
        let mut faults = Faults::new(rng("faults"), &built, storm.clone()).draw();
        let passes_checksums = faults.iter().any(
            |fault| matches!(fault, FaultConfig::Corruption(corruption) if !corruption.checksum),
        );
        let sealing = sealing(passes_checksums);
        let is_attacked = sealing.as_ref().is_some_and(|sealing| sealing.attacked);
        if is_attacked {
            faults.extend(Faults::new(rng("attacks"), &built, storm.clone()).attacks());
        }
        // Who requires encryption has nothing to fear from it.
        let hostile = passes_checksums && sealing.is_none();
        let mut world = world(&mut rng("world"));
        if let Some(sealing) = &sealing {
            world.stack = Some(StackConfig::Sealed(sealing.config.clone()));
            world.handshake = true;
        }
        if world.fabric.forwarding.check_network(&built).is_err() {
            world.fabric.forwarding.kind = switch::Kind::Ecmp;
        }
        let line_rate = built.ports(NodeId(0)).iter().map(|&port| built.link(port).rate.as_bps());
        world.transport.line_rate = BitRate::bps(line_rate.sum()).expect("no rate is zero");
        if let Some(base_rtt) = base_round_trip(&built, &world.transport) {
            world.transport.base_rtt = base_rtt;
        }
        world.transport.recovery = recovery(&mut rng("recovery"), &world);
        let restarts = faults.iter().any(|fault| fault.kind() == FaultKind::Restart);
        let scar = if restarts || hostile {
            None
        } else {
            scar::draw(&mut rng("scar"), &topology, &built, &mut world)
        };
        let odd = match scar {
            Some(_) => world.transport.clone(),
            None => odd(&mut rng("odd"), &world.transport),
        };
        ports::draw(&mut rng("kind of port"), &built, &faults, &mut world);
        // What an attacker sends takes ways that no route takes: switches could wait for each other in a circle.
        world.fabric.pfc.enabled &= !is_attacked;
        let mut chatter = chatter(&mut rng("chatter"), built.hosts(), &storm);
        if !world.handshake {
            chatter.greet();
        }
        if share_ports(&mut rng("source ports"), &mut chatter) {
            world.source_ports = SourcePorts::Shared;
        }
        let heal_at = at_micros(storm.end);
        Self {
            last_words: LastWords::new(heal_at, &world, &odd, &mut rng("last words")),
            first_psn: first_psn(&mut rng("first psn")),
            start_at: at_micros(storm.start),
            topology,
            world,
            odd,
            faults,
            hostile,
            scar,
            heal_at,
            sealing,
            chatter,
        }
    }

    /// Whether a kind of fault is in the mix.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.faults.iter().any(|fault| fault.kind() == kind)
    }

    /// Whether channels are closed on purpose.
    pub(super) fn closes(&self) -> bool {
        self.chatter.closes()
    }

    /// Time in which a healed path is found to carry packets again: a path that is down is probed
    /// at least every 16 probe intervals, and one that flapped must answer for 32 more.
    pub(super) fn paths_return(&self) -> SimSpan {
        paths_return(&self.world.transport).into()
    }

    /// Whether a connection on which nobody speaks ends while the case lasts.
    pub(super) fn tires_of_silence(&self) -> bool {
        let transport = &self.world.transport;
        transport.keepalive_interval == Duration::ZERO && transport.idle_timeout < LONG
    }
}

/// See [`Case::paths_return`].
pub(super) fn paths_return(transport: &TransportConfig) -> Duration {
    transport.probe_interval * 52 + Duration::from_millis(5)
}

/// Longer than any case.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// The epoch plus this many microseconds.
fn at_micros(micros: u64) -> SimTime {
    SimTime::from_picos(micros * 1_000_000)
}

/// The microseconds in which everything may go wrong.
fn storm(rng: &mut Rng) -> Range<u64> {
    let length = 1_000 + rng.below(15_000);
    let start = if rng.chance(1, 3) { TIMESTAMP_WRAP - rng.below(length) } else { 0 };
    start..start + length
}

/// One case in three begins a few packets before the sequence numbers wrap.
fn first_psn(rng: &mut Rng) -> Option<u32> {
    let before = rng.next_u32() % pick(rng, &[4, 100, 3_000]);
    rng.chance(1, 3).then(|| u32::MAX - before)
}

pub(super) fn pick<T: Copy>(rng: &mut Rng, among: &[T]) -> T {
    among[rng.index(among.len())]
}

/// A row of a registry. One that is added takes its share of the draws and leaves the others as they
/// were, so that most seeds stay what they are.
fn pick_row<T: Copy>(rng: &mut Rng, rows: &[T], name: fn(T) -> &'static str) -> T {
    let draw = Seed(rng.next_u64());
    let chosen = rows.iter().max_by_key(|&&row| draw.child(name(row), 0).0);
    *chosen.expect("registries have rows")
}

/// A number in `1..=most`.
pub(super) fn up_to(rng: &mut Rng, most: u32) -> u32 {
    1 + rng.next_u32() % most
}

fn topology(rng: &mut Rng) -> TopologyConfig {
    let rate = BitRate::gbps(pick(rng, &[1, 10, 25, 100])).expect("not zero");
    let propagation = Duration::from_nanos(pick(rng, &[50, 500, 1_000, 20_000]));
    match rng.below(4) {
        0 => TopologyConfig::FatTree(FatTree {
            hosts: 2 + up_to(rng, 14),
            tiers: pick(rng, &[2, 3]),
            rate,
            propagation,
            ..FatTree::default()
        }),
        1 => TopologyConfig::Hpn(Hpn {
            segments: 2,
            servers_per_segment: up_to(rng, 3),
            rails: up_to(rng, 2),
            planes: 2,
            aggregations: up_to(rng, 4),
            port_rate: rate,
            uplink_rate: rate,
            propagation,
        }),
        2 => TopologyConfig::Rail(Rail {
            blocks: up_to(rng, 3),
            servers_per_block: up_to(rng, 2),
            rails: 2 * up_to(rng, 2),
            spines: up_to(rng, 4),
            port_rate: rate,
            uplink_rate: rate,
            propagation,
        }),
        _ => TopologyConfig::LeafSpine(LeafSpine {
            leaves: 1 + up_to(rng, 3),
            spines: up_to(rng, 4),
            hosts_per_leaf: up_to(rng, 4),
            parallel_links: up_to(rng, 2),
            host_rate: rate,
            uplink_rates: vec![rate],
            propagation,
        }),
    }
}

fn world(rng: &mut Rng) -> WorldConfig {
    let place_delay = if rng.chance(1, 3) { 1 + rng.below(20_000) } else { 0 };
    let transport = transport(rng);
    WorldConfig {
        fabric: fabric(rng, transport.mtu),
        transport,
        handshake: rng.chance(1, 2),
        place_delay: Duration::from_nanos(place_delay),
        pcie: None,
        stack: None,
        jitter: SimSpan::from_picos(pick(rng, &[0, 1_000, 1_000_000])),
        nic_packets: pick(rng, &[1, 4, 64]),
        bond: false,
        source_ports: SourcePorts::Random,
        reroute_after: rng.chance(1, 2).then(|| Duration::from_micros(rng.below(3_000))),
        controller: None,
    }
}

fn transport(rng: &mut Rng) -> TransportConfig {
    let base = match rng.below(3) {
        0 => TransportConfig::stellar(),
        1 => TransportConfig::bifrost(),
        _ => TransportConfig::ecmp(),
    };
    let rto_min = Duration::from_micros(pick(rng, &[100, 250, 1_000, 4_000]));
    let retransmission = Retransmission {
        rto_min,
        rto_max: rto_min * pick(rng, &[1, 4, 16]),
        backoff: rng.chance(1, 2),
        reorder_bound: Duration::from_micros(pick(rng, &[0, 10, 500])),
    };
    // Short, but longer than the storm and the retransmission timeout after it: whoever is there to
    // answer has answered by then.
    let silence = Duration::from_millis(60) + retransmission.rto_max * 3;
    let send_window = pick(rng, &[1, 7, 64, 512, 4096]);
    TransportConfig {
        mtu: pick(rng, &[64, 1000, 1440, 4096, 9000]),
        paths: pick(rng, &[1, 2, 4, 8, 32]),
        policy: pick_row(rng, path::Kind::ALL, path::Kind::name),
        spray_unit: pick(rng, &[1, 1, 2, 50]),
        top_k: pick(rng, &[1, 2, 4]),
        congestion: pick_row(rng, congestion::Kind::ALL, congestion::Kind::name),
        send_window,
        reorder_window: pick(rng, &[send_window, 1, 33, 300]),
        ack_every: pick(rng, &[1, 4, 16]),
        ack_delay: Duration::from_nanos(pick(rng, &[0, 5_000, 100_000])),
        retransmission,
        path_down_after: pick(rng, &[1, 3, 8]),
        probe_interval: Duration::from_micros(pick(rng, &[100, 1_000, 10_000])),
        idle_timeout: pick(rng, &[LONG, LONG, silence]),
        keepalive_interval: pick(rng, &[Duration::ZERO, Duration::ZERO, Duration::from_millis(5)]),
        peer_timeout: pick(rng, &[Duration::from_secs(2), silence]),
        message_queue: pick(rng, &[1, 3, 1000]),
        ..base
    }
}

/// In some cases losses are found as RDMA NICs find them. Both ends do alike, and go-back-N only where
/// the network keeps the order: it gets nowhere elsewhere.
fn recovery(rng: &mut Rng, world: &WorldConfig) -> RecoveryConfig {
    let keeps_order = world.transport.policy.spread() == path::Spread::One
        && world.fabric.forwarding.kind == switch::Kind::Ecmp;
    let kind = match rng.below(8) {
        0 => recovery::Kind::Irn,
        1 | 2 if keeps_order => recovery::Kind::GoBackN,
        5 => recovery::Kind::Timeout,
        _ => recovery::Kind::PerPath,
    };
    let nack_interval = Duration::from_micros(pick(rng, &[0, 4, 100]));
    let out_of_order = pick(rng, &[0, 1, 64]);
    RecoveryConfig { kind, out_of_order, nack_interval, ..RecoveryConfig::default() }
}

/// In one case of three all connections of a host send from the same ports and share what they learn of paths; in
/// half of those they are all between the same two hosts.
fn share_ports(rng: &mut Rng, chatter: &mut Chatter) -> bool {
    let (shares, two_hosts) = (rng.chance(1, 3), rng.chance(1, 2));
    if shares && two_hosts {
        chatter.keep_to_two_hosts();
    }
    shares
}

/// In one case of three an engine that keeps and sends other amounts than its peers.
fn odd(rng: &mut Rng, others: &TransportConfig) -> TransportConfig {
    if rng.chance(2, 3) {
        return others.clone();
    }
    TransportConfig {
        mtu: pick(rng, &[256, 1440, 9000]).min(others.mtu),
        paths: pick(rng, &[1, 3, 16]),
        policy: pick_row(rng, path::Kind::ALL, path::Kind::name),
        congestion: pick_row(rng, congestion::Kind::ALL, congestion::Kind::name),
        send_window: pick(rng, &[1, 100, 1000]),
        reorder_window: pick(rng, &[1, 5, 200]),
        ack_every: pick(rng, &[1, 8]),
        ..others.clone()
    }
}

/// Buffers from where most packets are lost to where none is; always with room for one.
fn fabric(rng: &mut Rng, mtu: u16) -> FabricConfig {
    let limit = ByteCount(pick(rng, &[12_000, 40_000, 1_000_000, 64_000_000]));
    let alpha = f64::from(up_to(rng, 8)) / 4.0;
    let room = if alpha < 1.0 { 8 } else { 2 } * (u64::from(mtu) + 100);
    FabricConfig {
        forwarding: ForwardingConfig {
            kind: pick_row(rng, switch::Kind::ALL, switch::Kind::name),
            hash: pick_row(rng, HashAlgorithm::ALL, HashAlgorithm::name),
            ..ForwardingConfig::default()
        },
        queue: QueueConfig {
            kind: pick_row(rng, queue::Kind::ALL, queue::Kind::name),
            limit,
            ecn_min: ByteCount(pick(rng, &[0, 10_000, 100_000])),
            ..QueueConfig::default()
        },
        buffer: BufferConfig {
            size: ByteCount(pick(rng, &[30_000, 300_000, 64_000_000]).max(room)),
            alpha,
        },
        ..FabricConfig::default()
    }
}

fn chatter(rng: &mut Rng, hosts: u32, storm: &Range<u64>) -> Chatter {
    let pairs: Vec<_> = (0..up_to(rng, 6))
        .map(|_| {
            let from = rng.next_u32() % hosts;
            let to = (from + up_to(rng, hosts - 1)) % hosts;
            (NodeId(from), NodeId(to))
        })
        .collect();
    let length = storm.end - storm.start;
    let mut deeds = Vec::new();
    let closing = rng.chance(1, 4);
    let longest = pick(rng, &[100, 10_000, 200_000]);
    for pair in 0..pairs.len() {
        let mut deed = |micros, what| {
            deeds.push(Deed { at: at_micros(storm.start + micros), pair, what });
        };
        let opened = rng.below(length / 2);
        deed(opened, What::Open);
        for _ in 0..rng.below(20) {
            let from = if rng.chance(3, 4) { Side::Opener } else { Side::Peer };
            let bytes = rng.next_u32() % longest;
            deed(opened + rng.below(length - opened), What::Send { from, length: bytes });
        }
        if closing && rng.chance(1, 2) {
            let closed = opened + rng.below(length);
            deed(closed, What::Close);
            deed(closed + rng.below(1_000), What::Open);
            deed(closed + 1_000, What::Send { from: Side::Opener, length: longest });
        }
    }
    Chatter::new(pairs, deeds)
}
