//! The case of a seed: topology, configuration, traffic, and the mix of faults.

use std::ops::Range;

use weft_topo::build::{FatTree, Hpn, LeafSpine, Rail, TopologyConfig};
use weft_topo::hash::HashAlgorithm;
use weft_topo::{LinkId, NodeId};
use weft_transport::{RecoveryConfig, Retransmission, TransportConfig, congestion, path, recovery};
use weft_units::{BitRate, ByteCount, Duration, Rng, Seed};

use super::broken_link;
use super::draw::{pick, pick_row, up_to};
use super::faults::Faults;
use super::last_words::LastWords;
use super::ports;
use super::random_traffic::{Action, RandomTraffic, TimedAction};
use super::seal::{self, Sealing};
use super::{LONG, path_return_time};
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
    /// The world without the workload.
    pub world: WorldConfig,
    /// Configuration of the engine of hosts with odd numbers until they restart: the two ends of a connection may
    /// differ.
    pub odd: TransportConfig,
    /// Number of every connection's first packet if it is about to wrap; otherwise `None` for a random one.
    pub first_psn: Option<u32>,
    /// The faults.
    pub faults: Vec<FaultConfig>,
    /// `true` if flipped bits reach the engines because UDP checksums are off somewhere. Then only the world's own
    /// accounts can be checked, and the absence of panics.
    pub hostile: bool,
    /// The link that stays broken, if any.
    pub broken_link: Option<LinkId>,
    /// The clock at the start: zero, or shortly before the 32 bits of the wire's timestamps wrap.
    pub start_at: SimTime,
    /// The time at which the network is repaired.
    pub repair_at: SimTime,
    /// Configuration of encryption, if hosts encrypt.
    pub sealing: Option<Sealing>,
    pub(super) traffic: RandomTraffic,
    pub(super) last_words: LastWords,
}

/// The time at which the nanoseconds in a packet's timestamps wrap, in microseconds.
const TIMESTAMP_WRAP: u64 = (1 << 32) / 1_000;

impl Case {
    /// Returns the case of a seed.
    pub fn draw(seed: Seed) -> Self {
        Self::draw_with(seed, |_| None)
    }

    /// Returns the case of a seed with hosts that encrypt, and usually an attacker between them.
    pub fn draw_sealed(seed: Seed) -> Self {
        Self::draw_with(seed, |hostile| {
            Some(seal::draw(&mut seed.child("sealing", 0).rng(), hostile))
        })
    }

    /// Returns a case; `sealing` draws the encryption, with `true` if flipped bits pass checksums.
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
        // Flipped bits cannot harm hosts that require encryption.
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
        let broken_link = if restarts || hostile {
            None
        } else {
            broken_link::draw(&mut rng("scar"), &topology, &built, &mut world)
        };
        let odd = match broken_link {
            Some(_) => world.transport.clone(),
            None => odd(&mut rng("odd"), &world.transport),
        };
        ports::draw(&mut rng("kind of port"), &built, &faults, &mut world);
        // An attacker's packets take paths of no route: pauses could deadlock in a cycle of switches.
        world.fabric.pfc.enabled &= !is_attacked;
        let mut traffic = traffic(&mut rng("chatter"), built.hosts(), &storm);
        if !world.handshake {
            traffic.send_first_messages();
        }
        if share_ports(&mut rng("source ports"), &mut traffic) {
            world.source_ports = SourcePorts::Shared;
        }
        let repair_at = at_micros(storm.end);
        Self {
            last_words: LastWords::new(repair_at, &world, &odd, &mut rng("last words")),
            first_psn: first_psn(&mut rng("first psn")),
            start_at: at_micros(storm.start),
            topology,
            world,
            odd,
            faults,
            hostile,
            broken_link,
            repair_at,
            sealing,
            traffic,
        }
    }

    /// Returns `true` if a kind of fault is in the mix.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.faults.iter().any(|fault| fault.kind() == kind)
    }

    /// Returns `true` if channels are closed on purpose.
    pub(super) fn closes(&self) -> bool {
        self.traffic.closes()
    }

    /// Returns the time in which a repaired path is detected to carry packets again: a path that is down is probed at
    /// least every 16 probe intervals, and one that flapped must reply for 32 more.
    pub(super) fn path_return_time(&self) -> SimSpan {
        path_return_time(&self.world.transport).into()
    }

    /// Returns `true` if an idle connection times out during the case.
    pub(super) fn has_idle_timeouts(&self) -> bool {
        let transport = &self.world.transport;
        transport.keepalive_interval == Duration::ZERO && transport.idle_timeout < LONG
    }

    /// Returns `true` if an attacker forges or changes packets.
    pub(super) fn is_attacked(&self) -> bool {
        self.sealing.as_ref().is_some_and(|sealing| sealing.attacked)
    }

    /// Returns `true` if there may be times in which no packet of a host arrives.
    pub(super) fn may_lose_all_packets(&self) -> bool {
        let faults = [FaultKind::LinkDown, FaultKind::Flap, FaultKind::SwitchDown, FaultKind::Loss];
        faults.iter().any(|&kind| self.has(kind))
    }

    /// Returns `true` if no host sends in the clear.
    pub(super) fn requires_encryption(&self) -> bool {
        self.sealing.as_ref().is_some_and(Sealing::is_required)
    }
}

/// Returns the epoch plus this many microseconds.
fn at_micros(micros: u64) -> SimTime {
    SimTime::from_picos(micros * 1_000_000)
}

/// Returns the span of the faults, microseconds.
fn storm(rng: &mut Rng) -> Range<u64> {
    let length = 1_000 + rng.below(15_000);
    let start = if rng.chance(1, 3) { TIMESTAMP_WRAP - rng.below(length) } else { 0 };
    start..start + length
}

/// Returns a number a few packets before the sequence numbers wrap, in one case of three.
fn first_psn(rng: &mut Rng) -> Option<u32> {
    let before = rng.next_u32() % pick(rng, &[4, 100, 3_000]);
    rng.chance(1, 3).then(|| u32::MAX - before)
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
    // The timeout is short, but longer than the faults and the retransmission timeout after them: a peer that exists
    // has replied by then.
    let silence = Duration::from_millis(60) + retransmission.rto_max * 3;
    let send_window = pick(rng, &[1, 7, 64, 512, 4096]);
    TransportConfig {
        mtu: pick(rng, &[64, 1000, 1440, 4096, 9000]),
        paths: pick(rng, &[1, 2, 4, 8, 32]),
        policy: pick_row(rng, path::Kind::ALL, path::Kind::name),
        spray_unit: pick(rng, &[1, 1, 2, 50]),
        top_k: pick(rng, &[1, 2, 4]),
        congestion: control(rng),
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

/// Draws a congestion control. One that needs telemetry has none at most of the swarm's ports, where it is refused.
fn control(rng: &mut Rng) -> congestion::Kind {
    let rows = congestion::Kind::ALL.iter().copied().filter(|kind| !kind.needs_telemetry());
    pick_row(rng, &rows.collect::<Vec<_>>(), congestion::Kind::name)
}

/// Draws a loss recovery of RDMA NICs in some cases. Both ends use the same, and go-back-N only if the network keeps
/// the order: otherwise it makes no progress.
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
    let suspend_silent = rng.chance(1, 2);
    RecoveryConfig {
        kind,
        out_of_order,
        nack_interval,
        suspend_silent,
        ..RecoveryConfig::default()
    }
}

/// Draws whether all connections of a host share source ports and the state of paths (one case of three); in half of
/// those they are all between the same two hosts.
fn share_ports(rng: &mut Rng, traffic: &mut RandomTraffic) -> bool {
    let (shares, two_hosts) = (rng.chance(1, 3), rng.chance(1, 2));
    if shares && two_hosts {
        traffic.keep_to_two_hosts();
    }
    shares
}

/// Draws, in one case of three, an engine with other limits than its peers'.
fn odd(rng: &mut Rng, others: &TransportConfig) -> TransportConfig {
    if rng.chance(2, 3) {
        return others.clone();
    }
    TransportConfig {
        mtu: pick(rng, &[256, 1440, 9000]).min(others.mtu),
        paths: pick(rng, &[1, 3, 16]),
        policy: pick_row(rng, path::Kind::ALL, path::Kind::name),
        congestion: control(rng),
        send_window: pick(rng, &[1, 100, 1000]),
        reorder_window: pick(rng, &[1, 5, 200]),
        ack_every: pick(rng, &[1, 8]),
        ..others.clone()
    }
}

/// Draws buffers from sizes that drop most packets to sizes that drop none, always with room for one.
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

/// Draws the traffic: channels between pairs of hosts, and messages and closures on them.
fn traffic(rng: &mut Rng, hosts: u32, storm: &Range<u64>) -> RandomTraffic {
    let pairs: Vec<_> = (0..up_to(rng, 6))
        .map(|_| {
            let from = rng.next_u32() % hosts;
            let to = (from + up_to(rng, hosts - 1)) % hosts;
            (NodeId(from), NodeId(to))
        })
        .collect();
    let length = storm.end - storm.start;
    let mut actions = Vec::new();
    let closing = rng.chance(1, 4);
    let longest = pick(rng, &[100, 10_000, 200_000]);
    for pair in 0..pairs.len() {
        let mut schedule = |micros, action| {
            actions.push(TimedAction { at: at_micros(storm.start + micros), pair, action });
        };
        let opened = rng.below(length / 2);
        schedule(opened, Action::Open);
        for _ in 0..rng.below(20) {
            let from = if rng.chance(3, 4) { Side::Opener } else { Side::Peer };
            let bytes = rng.next_u32() % longest;
            schedule(opened + rng.below(length - opened), Action::Send { from, length: bytes });
        }
        if closing && rng.chance(1, 2) {
            let closed = opened + rng.below(length);
            schedule(closed, Action::Close);
            schedule(closed + rng.below(1_000), Action::Open);
            schedule(closed + 1_000, Action::Send { from: Side::Opener, length: longest });
        }
    }
    RandomTraffic::new(pairs, actions)
}
