//! Both kinds of ports compared with queueing theory and fluid limits. `docs/validation.md` has the details.

use std::path::Path;

use weft_sim::event::Events;
use weft_sim::fabric::{Fabric, FabricConfig};
use weft_sim::packet::{Hop, PacketSlot};
use weft_sim::port::{Kind, PortConfig};
use weft_sim::queue::QueueConfig;
use weft_sim::{Scenario, SimSpan, SimTime, run};
use weft_topo::NodeId;
use weft_topo::build::LeafSpine;
use weft_units::{BitRate, Seed};

/// Bytes of a packet on the wire.
const SIZE: u16 = 1_000;
/// The service time of one packet at 100 Gb/s, picoseconds.
const SERVICE: u64 = 80_000;

/// Returns arrival times at a port that keep it busy for the share `load` of the time.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "picoseconds of less than a second"
)]
fn poisson_arrivals(load: f64, packets: u32) -> Vec<SimTime> {
    let (gap, mut rng, mut at) = (SERVICE as f64 / load, Seed(7).rng(), 0.0);
    let mut next = || {
        at -= gap * (1.0 - rng.unit()).ln();
        SimTime::from_picos(at as u64)
    };
    (0..packets).map(|_| next()).collect()
}

/// Returns the mean wait of packets that arrive at one port at these times, in service times.
#[expect(clippy::cast_precision_loss, reason = "a mean")]
fn mean_wait(kind: Kind, arrivals: &[SimTime]) -> f64 {
    let rate = BitRate::gbps(100).unwrap();
    let shape = LeafSpine {
        leaves: 1,
        spines: 1,
        hosts_per_leaf: 2,
        host_rate: rate,
        uplink_rates: vec![rate],
        ..LeafSpine::default()
    };
    let topology = shape.build().unwrap();
    let (source, sink, leaf) = (NodeId(1), NodeId(0), NodeId(2));
    let up = topology.ports(source)[0];
    let idle = SimSpan::from_picos(SERVICE) + topology.link(up).propagation.into();
    let nodes = (topology.hosts() + topology.switches()) as usize;
    let queue = QueueConfig { kind: weft_sim::queue::Kind::DropTail, ..QueueConfig::default() };
    let port = PortConfig { kind, ..PortConfig::default() };
    let config = FabricConfig { queue, port, ..FabricConfig::default() };
    let mut fabric = Fabric::new(topology, &config, Seed(1)).unwrap();
    let mut events = Events::new(fabric.lookahead(), vec![0; nodes]);
    for &at in arrivals {
        let packet = fabric.packets.insert(&PacketSlot::default());
        let hop = Hop::new(packet, source, sink, 0, SIZE).on(up, leaf, 0);
        events.schedule_arrival(at, hop);
    }
    let (mut expected, mut waited) = (arrivals.iter(), 0);
    while events.begin(SimTime::FAR_FUTURE) {
        while let Some(node) = events.next_node() {
            while let Some((now, event)) = events.pop() {
                if node == leaf {
                    fabric.serve(now, event, &mut events);
                } else {
                    let expected = expected.next().expect("none is made on the way");
                    waited += now.since(*expected + idle).as_picos();
                }
            }
        }
    }
    assert!(expected.next().is_none(), "none is lost");
    waited as f64 / arrivals.len() as f64 / SERVICE as f64
}

#[test]
fn random_arrivals_wait_as_long_as_queueing_theory_predicts() {
    for load in [0.3, 0.5, 0.7, 0.9] {
        // M/D/1 (Pollaczek and Khinchine): rho / (2 (1 - rho)) service times.
        let theory = load / (2.0 * (1.0 - load));
        let arrivals = poisson_arrivals(load, 1_000_000);
        for kind in [Kind::Fifo, Kind::Priority] {
            let measured = mean_wait(kind, &arrivals);
            println!("{kind:8} load {load}: waits {measured:.4}, theory {theory:.4}");
            let error = (measured / theory - 1.0).abs();
            assert!(error < 0.03, "{kind} at {load}: {measured}, theory {theory}");
        }
    }
}

/// Returns the least and the mean goodput of eight hosts that all send to the other leaf, as shares of the fluid
/// limit: the links' rate times the payload's share of a packet.
fn shares(spines: u32, kind: Kind) -> (f64, f64) {
    let text = format!(
        r#"
        topology = {{ kind = "leaf-spine", leaves = 2, spines = {spines}, hosts_per_leaf = 4 }}
        transport = {{ congestion = "fixed-window", base_rtt = "30us", mtu = 4096 }}
        forwarding = {{ kind = "least-queued" }}
        port = {{ kind = "{kind}" }}
        run = {{ limit = "2ms" }}
        [[workload]]
        kind = "pairs"
        pairs = [[0, 4], [1, 5], [2, 6], [3, 7], [4, 0], [5, 1], [6, 2], [7, 3]]
        size = "1GB"
        "#
    );
    let scenario = Scenario::parse(&text, Path::new("")).unwrap();
    let goodput = run(&scenario, Seed(1)).unwrap().goodput.per_host_gbps;
    assert_eq!(goodput.count, 8);
    let fluid = 100.0 * f64::from(spines.min(4)) / 4.0 * 4_096.0 / 4_174.0;
    println!("{kind:8} {spines} spines: {:.4} {:.4}", goodput.min / fluid, goodput.mean / fluid);
    (goodput.min / fluid, goodput.mean / fluid)
}

#[test]
fn a_permutation_is_served_at_the_rate_of_its_bottleneck() {
    for kind in [Kind::Fifo, Kind::Priority] {
        // ACKs need half a percent; the first packets need a few microseconds of two milliseconds.
        let (least, mean) = shares(4, kind);
        assert!(least > 0.97 && mean < 1.0, "{kind}, as many uplinks as hosts: {least}, {mean}");
        let (least, mean) = shares(2, kind);
        assert!(least > 0.90 && mean > 0.97 && mean < 1.0, "{kind}, half as many: {least}, {mean}");
    }
}
