//! From a seed to a case: topology, configuration, traffic, and the mix of faults.

use weft_topo::NodeId;
use weft_topo::build::{FatTree, Hpn, LeafSpine, TopologyConfig};
use weft_transport::{Retransmission, TransportConfig, congestion, path};
use weft_units::{BitRate, ByteCount, Duration, Rng, Seed};

use super::at_micros;
use super::chatter::{Chatter, Deed, What};
use crate::fabric::FabricConfig;
use crate::fault::{
    Corruption, Duplication, FaultConfig, Flap, Kind as FaultKind, LinkDown, LinkSelector, Loss,
    Reordering, Restart, SwitchDown,
};
use crate::queue::{self, QueueConfig};
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
    /// What goes wrong.
    pub faults: Vec<FaultConfig>,
    /// Flipped bits reach the engines: UDP checksums are off somewhere. Then only the world's own
    /// accounts can be checked, and that nothing panics.
    pub hostile: bool,
    /// When the network is made as good as new.
    pub heal_at: SimTime,
    pub(super) chatter: Chatter,
}

impl Case {
    /// The case of a seed.
    pub fn draw(seed: Seed) -> Self {
        let rng = |part| seed.child(part, 0).rng();
        let topology = topology(&mut rng("topology"));
        let heal_after = 1_000 + rng("heal").below(15_000);
        let built = topology.build().expect("drawn within what can be built");
        let (hosts, switches) = (built.hosts(), built.hosts()..built.nodes());
        let mut faults = Faults { rng: rng("faults"), hosts, switches, until: heal_after };
        let faults = faults.draw();
        let hostile = faults.iter().any(
            |fault| matches!(fault, FaultConfig::Corruption(corruption) if !corruption.checksum),
        );
        let mut world = world(&mut rng("world"));
        let line_rate = built.ports(NodeId(0)).iter().map(|&port| built.link(port).rate.as_bps());
        world.transport.line_rate = BitRate::bps(line_rate.sum()).expect("no rate is zero");
        if let Some(base_rtt) = base_round_trip(&built, &world.transport) {
            world.transport.base_rtt = base_rtt;
        }
        let chatter = chatter(&mut rng("chatter"), hosts, heal_after);
        Self { topology, world, faults, hostile, heal_at: at_micros(heal_after), chatter }
    }

    /// Whether a kind of fault is in the mix.
    pub fn has(&self, kind: FaultKind) -> bool {
        self.faults.iter().any(|fault| fault.kind() == kind)
    }

    /// Whether channels are closed on purpose.
    pub(super) fn closes(&self) -> bool {
        self.chatter.closes()
    }
}

fn pick<T: Copy>(rng: &mut Rng, among: &[T]) -> T {
    among[rng.index(among.len())]
}

/// A number in `1..=most`.
fn up_to(rng: &mut Rng, most: u32) -> u32 {
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
        jitter: SimSpan::from_picos(pick(rng, &[0, 1_000, 1_000_000])),
        nic_packets: pick(rng, &[1, 4, 64]),
        reroute_after: rng.chance(1, 2).then(|| Duration::from_micros(rng.below(3_000))),
    }
}

fn transport(rng: &mut Rng) -> TransportConfig {
    let base = match rng.below(3) {
        0 => TransportConfig::stellar(),
        1 => TransportConfig::bifrost(),
        _ => TransportConfig::ecmp(),
    };
    let rto_min = Duration::from_micros(pick(rng, &[100, 250, 1_000, 4_000]));
    let send_window = pick(rng, &[1, 7, 64, 512, 4096]);
    TransportConfig {
        mtu: pick(rng, &[64, 1000, 1440, 4096, 9000]),
        paths: pick(rng, &[1, 2, 4, 8, 32]),
        policy: pick(rng, path::Kind::ALL),
        spray_unit: pick(rng, &[1, 1, 2, 50]),
        top_k: pick(rng, &[1, 2, 4]),
        congestion: pick(rng, congestion::Kind::ALL),
        send_window,
        reorder_window: pick(rng, &[send_window, 1, 33, 300]),
        ack_every: pick(rng, &[1, 4, 16]),
        ack_delay: Duration::from_nanos(pick(rng, &[0, 5_000, 100_000])),
        retransmission: Retransmission {
            rto_min,
            rto_max: Duration::from_nanos(rto_min.as_nanos() * pick(rng, &[1, 4, 16])),
            backoff: rng.chance(1, 2),
            reorder_bound: Duration::from_micros(pick(rng, &[0, 10, 500])),
        },
        path_down_after: pick(rng, &[1, 3, 8]),
        message_queue: pick(rng, &[1, 3, 1000]),
        ..base
    }
}

/// Buffers from where most packets are lost to where none is; always with room for one.
fn fabric(rng: &mut Rng, mtu: u16) -> FabricConfig {
    let limit = ByteCount(pick(rng, &[12_000, 40_000, 1_000_000, 64_000_000]));
    let alpha = f64::from(up_to(rng, 8)) / 4.0;
    let room = if alpha < 1.0 { 8 } else { 2 } * (u64::from(mtu) + 100);
    FabricConfig {
        forwarding: ForwardingConfig {
            kind: pick(rng, switch::Kind::ALL),
            hash: pick(rng, weft_topo::hash::HashAlgorithm::ALL),
            ..ForwardingConfig::default()
        },
        queue: QueueConfig {
            kind: pick(rng, queue::Kind::ALL),
            limit,
            ecn_min: ByteCount(pick(rng, &[0, 10_000, 100_000])),
            ..QueueConfig::default()
        },
        buffer: BufferConfig {
            size: ByteCount(pick(rng, &[30_000, 300_000, 64_000_000]).max(room)),
            alpha,
        },
    }
}

fn chatter(rng: &mut Rng, hosts: u32, until: u64) -> Chatter {
    let pairs: Vec<_> = (0..up_to(rng, 6))
        .map(|_| {
            let from = rng.next_u32() % hosts;
            let to = (from + up_to(rng, hosts - 1)) % hosts;
            (NodeId(from), NodeId(to))
        })
        .collect();
    let mut deeds = Vec::new();
    let closing = rng.chance(1, 4);
    let longest = pick(rng, &[100, 10_000, 200_000]);
    for pair in 0..pairs.len() {
        let mut deed = |micros, what| deeds.push(Deed { at: at_micros(micros), pair, what });
        let opened = rng.below(until / 2);
        deed(opened, What::Open);
        for _ in 0..rng.below(20) {
            let from = if rng.chance(3, 4) { Side::Opener } else { Side::Peer };
            let length = rng.next_u32() % longest;
            deed(opened + rng.below(until - opened), What::Send { from, length });
        }
        if closing && rng.chance(1, 2) {
            let closed = opened + rng.below(until);
            deed(closed, What::Close);
            deed(closed + rng.below(1_000), What::Open);
            deed(closed + 1_000, What::Send { from: Side::Opener, length: longest });
        }
    }
    Chatter::new(pairs, deeds)
}

/// Draws the mix of faults.
struct Faults {
    rng: Rng,
    hosts: u32,
    switches: std::ops::Range<u32>,
    /// Microseconds until the network is healed.
    until: u64,
}

impl Faults {
    fn draw(&mut self) -> Vec<FaultConfig> {
        let mut faults = Vec::new();
        for &kind in FaultKind::ALL {
            // Restarts change what may be asked of everything else: fewer cases have them.
            let odds = if kind == FaultKind::Restart { 5 } else { 2 };
            if self.rng.chance(1, odds) {
                let times = up_to(&mut self.rng, 2);
                faults.extend((0..times).map(|_| self.fault(kind)));
            }
        }
        faults
    }

    fn micros(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.rng.below(most))
    }

    /// From one in three to one in three thousand, each order of magnitude alike.
    fn probability(&mut self) -> f64 {
        let tenths = self.rng.next_u32() % 30;
        (0..tenths).fold(0.3, |chance, _| chance * 0.794_328)
    }

    fn links(&mut self) -> LinkSelector {
        use LinkSelector::{All, HostLinks, RandomUplink, Uplinks};
        pick(&mut self.rng, &[All, HostLinks, Uplinks, RandomUplink, RandomUplink])
    }

    fn fault(&mut self, kind: FaultKind) -> FaultConfig {
        let at = self.micros(self.until);
        let links = self.links();
        let probability = self.probability();
        let duration = self.rng.chance(1, 2).then(|| self.micros(self.until));
        match kind {
            FaultKind::LinkDown => FaultConfig::LinkDown(LinkDown { links, at, duration }),
            FaultKind::Flap => FaultConfig::Flap(Flap {
                links: LinkSelector::RandomUplink,
                at,
                down: self.micros(500),
                up: self.micros(500),
                times: up_to(&mut self.rng, 20),
            }),
            FaultKind::SwitchDown => {
                let count = self.switches.end - self.switches.start;
                let switch = self.switches.start + self.rng.next_u32() % count;
                FaultConfig::SwitchDown(SwitchDown { switch, at, duration })
            }
            FaultKind::Loss => FaultConfig::Loss(Loss { links, probability, at, duration }),
            FaultKind::Duplication => {
                FaultConfig::Duplication(Duplication { links, probability, at, duration })
            }
            FaultKind::Reordering => {
                let by = self.micros(300);
                FaultConfig::Reordering(Reordering { links, probability, by, at, duration })
            }
            FaultKind::Corruption => {
                let checksum = self.rng.chance(7, 8);
                FaultConfig::Corruption(Corruption { links, probability, checksum, at, duration })
            }
            FaultKind::Restart => {
                FaultConfig::Restart(Restart { host: self.rng.next_u32() % self.hosts, at })
            }
        }
    }
}
