use std::net::Ipv4Addr;

use weft_route::Installed;
use weft_units::Duration;
use weft_wire::sflow::{DatagramWriter, ETHERNET, IfCounters, QueueMarks, RawHeader, Source};

use super::*;

/// A leaf between a host and a spine; agents 10.0.0.1 and 10.0.0.2.
const FABRIC: &str = r#"
    [[router]]
    name = "leaf"
    hash.linux = { policy = 3, seed = 7 }
    port = [
        { name = "h0", ifindex = 2, speed = "1Gbps", to.host = "10.1.0.2" },
        { name = "s0", ifindex = 3, speed = "1Gbps", to.peer = { router = "spine", port = "l0" } },
    ]
    group = [{ name = "up", kind = "single", members = [{ port = "s0" }] }]
    route = [{ to = "0.0.0.0/0", via.group = "up" }]

    [[router]]
    name = "spine"
    hash.linux = { policy = 3, seed = 8 }
    port = [{ name = "l0", ifindex = 2, speed = "1Gbps" }, { name = "h9", ifindex = 3, speed = "1Gbps", to.host = "10.2.0.2" }]
    group = [{ name = "down", kind = "single", members = [{ port = "h9" }] }]
    route = [{ to = "10.2.0.0/16", via.group = "down" }]
"#;

/// The inventory; the spine's agent sends from the spine's management address.
const INVENTORY: &str = r#"
    [[router]]
    name = "leaf"
    agent = "10.0.0.1"

    [[router]]
    name = "spine"
    agent = "10.0.0.2"
    sources = ["10.9.0.2"]
"#;

const LEAF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SPINE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));

fn collector() -> (Collector, Fabric) {
    let fabric = Fabric::new(toml::from_str::<Installed>(FABRIC).unwrap()).unwrap();
    (Collector::new(&toml::from_str(INVENTORY).unwrap()), fabric)
}

/// An Ethernet frame of a UDP packet from 10.1.0.2 to 10.2.0.2.
fn frame(marked: bool) -> [u8; 42] {
    let mut frame = [0; 42];
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, if marked { 3 } else { 2 }]);
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 1, 0, 2, 10, 2, 0, 2]);
    frame[34..38].copy_from_slice(&[0xc0, 0x00, 0x12, 0xb7]);
    frame
}

struct Agent {
    address: [u8; 4],
    sequence: u32,
}

impl Agent {
    fn send(&mut self, fill: impl FnOnce(&mut DatagramWriter<'_>)) -> Vec<u8> {
        self.sequence += 1;
        let mut buffer = [0; 1400];
        let mut writer = DatagramWriter::new(&mut buffer, self.address.into(), 0, self.sequence, 0);
        fill(&mut writer);
        let length = writer.finish();
        buffer[..length].to_vec()
    }

    fn packets(
        &mut self,
        count: u32,
        marked: bool,
        input: Interface,
        output: Interface,
    ) -> Vec<Vec<u8>> {
        let bytes = frame(marked);
        let header = RawHeader { protocol: ETHERNET, frame_len: 1000, stripped: 0, bytes: &bytes };
        let one = |sequence| {
            let source = Source::interface(3);
            let header = Some(header);
            let sample =
                FlowSample { sequence, source, rate: 16, pool: 0, drops: 0, input, output, header };
            self.send(|writer| assert!(writer.flow(&sample)))
        };
        (0..count).map(one).collect()
    }

    fn counters(&mut self, index: u32, out_octets: u64) -> Vec<u8> {
        self.counters_and_marks(index, out_octets, None)
    }

    fn counters_and_marks(&mut self, index: u32, out_octets: u64, marked: Option<u32>) -> Vec<u8> {
        let counters = IfCounters { index, out_octets, ..IfCounters::default() };
        let marks = marked.map(|marked| QueueMarks { marked });
        self.send(|writer| assert!(writer.counters(1, Source::interface(index), &counters, marks)))
    }
}

/// Returns the items of datagrams that come from their agents' sources.
fn collect_all(
    collector: &mut Collector,
    fabric: &Fabric,
    datagrams: &[Vec<u8>],
) -> Vec<CollectedItem> {
    let source = |bytes: &[u8]| match Datagram::parse(bytes) {
        Ok(datagram) if datagram.agent == IpAddr::from([10, 0, 0, 2]) => SPINE,
        _ => LEAF,
    };
    let from = |bytes: &Vec<u8>| (source(bytes), bytes.clone());
    collect_from(collector, fabric, &datagrams.iter().map(from).collect::<Vec<_>>())
}

/// Returns the items of datagrams that come from these addresses, all in one second.
fn collect_from(
    collector: &mut Collector,
    fabric: &Fabric,
    datagrams: &[(IpAddr, Vec<u8>)],
) -> Vec<CollectedItem> {
    let mut received = vec![];
    let now = Instant::EPOCH + Duration::from_secs(1);
    datagrams
        .iter()
        .for_each(|(source, bytes)| collector.ingest(bytes, *source, now, fabric, &mut received));
    received
}

const NONE: Interface = Interface::Unknown;

#[test]
fn a_packet_that_leaves_is_a_sample_of_its_link() {
    let (mut collector, fabric) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let received =
        collect_all(&mut collector, &fabric, &leaf.packets(1, false, NONE, Interface::Index(3)));
    let [CollectedItem::Sample(sample)] = received[..] else { panic!("{received:?}") };
    assert_eq!(fabric.name(sample.link).to_string(), "leaf s0 → spine");
    assert_eq!(sample.flow.to_string(), "10.1.0.2:49152>10.2.0.2:4791/udp");
    assert_eq!((sample.bytes, sample.packets, sample.rate, sample.input), (1000, 1, 16, None));
    // A switch's sample names both interfaces.
    let both = leaf.packets(1, false, Interface::Index(2), Interface::Index(3));
    let received = collect_all(&mut collector, &fabric, &both);
    let [CollectedItem::Sample(sample)] = received[..] else { panic!("{received:?}") };
    assert_eq!(fabric.name(sample.input.unwrap()).to_string(), "host 10.1.0.2 → leaf");
}

#[test]
fn an_ipv6_packet_is_a_sample_too() {
    let both = FABRIC.replace("to.host = \"10.1.0.2\"", "to.host = [\"10.1.0.2\", \"fd00:1::2\"]");
    let fabric = Fabric::new(toml::from_str::<Installed>(&both).unwrap()).unwrap();
    let (mut collector, _) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let mut bytes = [0; 62];
    bytes[12..18].copy_from_slice(&[0x86, 0xdd, 0x60, 0x31, 0x23, 0x45]);
    bytes[20] = 17;
    let ends: [std::net::Ipv6Addr; 2] = ["fd00:1::2", "fd00:2::2"].map(|it| it.parse().unwrap());
    bytes[22..54].copy_from_slice(&ends.map(|it| it.octets()).concat());
    bytes[54..58].copy_from_slice(&[0xc0, 0x00, 0x12, 0xb7]);
    let header = RawHeader { protocol: ETHERNET, frame_len: 1000, stripped: 0, bytes: &bytes };
    let sample_of = |writer: &mut DatagramWriter<'_>, header| {
        let (source, header) = (Source::interface(3), Some(header));
        let (input, output) = (NONE, Interface::Index(3));
        let sample =
            FlowSample { sequence: 1, source, rate: 16, pool: 0, drops: 0, input, output, header };
        assert!(writer.flow(&sample));
    };
    let datagram = leaf.send(|writer| sample_of(writer, header));
    let received = collect_all(&mut collector, &fabric, &[datagram]);
    let [CollectedItem::Sample(sample)] = received[..] else { panic!("{received:?}") };
    assert_eq!(sample.flow.to_string(), "[fd00:1::2]:49152>[fd00:2::2]:4791/udp/0x12345");
    assert_eq!(sample.flow.src(), fabric.addresses(weft_route::HostId(0)).v6().unwrap());
    // Link-local packets between neighbours are in no flow.
    let mut neighbours = bytes;
    neighbours[22..24].copy_from_slice(&[0xfe, 0x80]);
    let header = RawHeader { bytes: &neighbours, ..header };
    let between_neighbours = leaf.send(|writer| sample_of(writer, header));
    assert!(collect_all(&mut collector, &fabric, &[between_neighbours]).is_empty());
    assert_eq!(collector.counters().unplaced, 1);
}

#[test]
fn marks_count_where_they_were_made() {
    let (mut collector, fabric) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let mut spine = Agent { address: [10, 0, 0, 2], sequence: 0 };
    let mut datagrams = leaf.packets(5, true, NONE, Interface::Index(3));
    datagrams.extend(spine.packets(5, true, Interface::Index(2), NONE));
    datagrams.extend(spine.packets(6, true, NONE, Interface::Index(3)));
    datagrams.push(leaf.counters(3, 1_000_000));
    datagrams.push(spine.counters(3, 2_000_000));
    let received = collect_all(&mut collector, &fabric, &datagrams);
    let reports: Vec<(String, u64, u64)> = received
        .iter()
        .filter_map(|it| match it {
            CollectedItem::Report(it) => {
                Some((fabric.name(it.link).to_string(), it.bytes, it.marks))
            }
            CollectedItem::Sample(_) => None,
        })
        .collect();
    assert_eq!(
        reports,
        [
            ("leaf s0 → spine".into(), 1_000_000, 5 * 16),
            // Five of the six packets arrived marked.
            ("spine h9 → host 10.2.0.2".into(), 2_000_000, 16),
        ]
    );
}

/// The leaf's agent reports its queue's marks, the spine's does not.
#[test]
fn a_queues_own_count_replaces_the_estimate_of_its_port_only() {
    let (mut collector, fabric) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let mut spine = Agent { address: [10, 0, 0, 2], sequence: 0 };
    let mut datagrams = vec![
        leaf.counters_and_marks(3, 1_000_000, Some(4_000_000_000)),
        spine.counters(3, 1_000_000),
    ];
    datagrams.extend(leaf.packets(5, true, NONE, Interface::Index(3)));
    datagrams.extend(spine.packets(6, true, NONE, Interface::Index(3)));
    datagrams.push(leaf.counters_and_marks(3, 2_000_000, Some(4_000_000_123)));
    datagrams.push(spine.counters(3, 2_000_000));
    // The count of a forged report, beyond the packets sent, is not used.
    datagrams.push(leaf.counters_and_marks(3, 2_000_100, Some(4_000_100_123)));
    datagrams.push(leaf.counters_and_marks(3, 3_000_000, Some(4_000_000_133)));
    let received = collect_all(&mut collector, &fabric, &datagrams);
    let reports = received.iter().filter_map(|it| match it {
        CollectedItem::Report(it) => {
            Some((fabric.from(it.link) == End::Router(RouterId(0)), it.bytes, it.marks))
        }
        CollectedItem::Sample(_) => None,
    });
    assert_eq!(
        reports.collect::<Vec<_>>(),
        [
            (true, 1_000_000, 0),
            (false, 1_000_000, 0),
            (true, 2_000_000, 123),
            (false, 2_000_000, 6 * 16),
            (true, 2_000_100, 123),
            (true, 3_000_000, 133),
        ]
    );
    assert_eq!(collector.counters().doubted, 1);
    let source = |router: &str, port: &str| {
        collector.marks_source(fabric.link_of_port(fabric.find(router)?, port)?)
    };
    assert_eq!(source("leaf", "s0"), Some(MarksSource::Queue));
    assert_eq!(source("spine", "h9"), Some(MarksSource::Samples));
    assert_eq!(source("spine", "l0"), None);
}

#[test]
fn counters_before_a_damaged_record_of_marks_are_used() {
    let (mut collector, fabric) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let mut damaged = leaf.counters_and_marks(3, 1_000_000, Some(7));
    // The length of the last record is before its only word.
    let length_at = damaged.len() - 8;
    damaged[length_at..][..4].copy_from_slice(&2_u32.to_be_bytes());
    let received = collect_all(&mut collector, &fabric, &[damaged]);
    let [CollectedItem::Report(report)] = received[..] else { panic!("{received:?}") };
    assert_eq!((report.bytes, report.marks, collector.counters().malformed), (1_000_000, 0, 1));
}

#[test]
fn lost_late_unknown_and_malformed_datagrams_are_counted() {
    let (mut collector, fabric) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let mut datagrams = leaf.packets(10, false, NONE, Interface::Index(3));
    let again = datagrams[2].clone();
    datagrams.drain(4..6);
    datagrams.push(again);
    datagrams.push(b"not sFlow".to_vec());
    datagrams.push(Agent { address: [10, 0, 0, 77], sequence: 0 }.counters(1, 1));
    datagrams.extend(leaf.packets(1, false, NONE, Interface::Index(55)));
    assert_eq!(collect_all(&mut collector, &fabric, &datagrams).len(), 8);
    let counters = collector.counters();
    assert_eq!((counters.lost, counters.late), (2, 1));
    assert_eq!((counters.malformed, counters.unknown_agent, counters.unplaced), (1, 1, 1));
    // An agent that restarted counts from 1, and is accepted from its third datagram on.
    let mut restarted = Agent { address: [10, 0, 0, 1], sequence: 0 };
    assert_eq!(
        collect_all(
            &mut collector,
            &fabric,
            &restarted.packets(4, false, NONE, Interface::Index(3))
        )
        .len(),
        2
    );
}

/// The attacker is a host that reaches the collector's port and knows the fabric's names.
#[test]
fn an_off_path_host_that_calls_itself_a_routers_agent_is_refused() {
    let (mut collector, fabric) = collector();
    let attacker = IpAddr::from([192, 0, 2, 66]);
    let mut forged = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let mut forgeries = forged.packets(500, true, NONE, Interface::Index(3));
    forgeries.push(forged.counters(3, 1_000_000));
    forgeries.push(b"not sFlow".to_vec());
    let forgeries: Vec<(IpAddr, Vec<u8>)> =
        forgeries.into_iter().map(|it| (attacker, it)).collect();
    assert_eq!(collect_from(&mut collector, &fabric, &forgeries), []);
    let counters = collector.counters();
    assert_eq!((counters.refused, counters.datagrams, counters.malformed), (502, 0, 0));
    let refused: Vec<Refused> = collector.refused().collect();
    assert_eq!(refused, [Refused { source: attacker, count: 502 }]);
    // The leaf's own report is then processed as if there had been no attack.
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let received = collect_all(&mut collector, &fabric, &[leaf.counters(3, 5)]);
    let [CollectedItem::Report(report)] = received[..] else { panic!("{received:?}") };
    assert_eq!((report.bytes, report.marks), (5, 0));
}

/// The attacker is a router, or controls one, and claims to be another router's agent.
#[test]
fn a_router_speaks_for_itself_alone() {
    let (mut collector, fabric) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let mut spine = Agent { address: [10, 0, 0, 2], sequence: 0 };
    let forgeries = [
        (SPINE, leaf.counters(3, 7)),
        (LEAF, spine.counters(3, 7)),
        // If sources are listed, the agent's own address is not accepted.
        (IpAddr::from([10, 0, 0, 2]), spine.counters(3, 7)),
    ];
    assert_eq!(collect_from(&mut collector, &fabric, &forgeries), []);
    assert_eq!((collector.counters().refused, collector.counters().unknown_agent), (3, 0));
    // A socket of both families shows IPv4 sources as mapped addresses.
    let mapped: IpAddr = "::ffff:10.9.0.2".parse().unwrap();
    assert_eq!(collect_from(&mut collector, &fabric, &[(mapped, spine.counters(3, 7))]).len(), 1);
}

/// The attacker can forge a router's address. It cannot be distinguished; one forged datagram changes nothing.
#[test]
fn forged_numbers_and_counters_do_not_displace_the_routers_own() {
    let (mut collector, fabric) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let mut datagrams = vec![leaf.counters(3, 1_000)];
    datagrams.push(Agent { address: [10, 0, 0, 1], sequence: 1 << 30 }.counters(3, 2_000));
    datagrams.push(leaf.counters(3, 1_500));
    // The link carries 125 MB per second.
    datagrams.push(leaf.counters(3, 1_000_000_000));
    datagrams.push(leaf.counters(3, 10));
    datagrams.push(leaf.counters(3, 2_500));
    let received = collect_all(&mut collector, &fabric, &datagrams);
    let bytes = received.iter().map(|it| match it {
        CollectedItem::Report(report) => report.bytes,
        CollectedItem::Sample(sample) => panic!("{sample:?}"),
    });
    assert_eq!(bytes.collect::<Vec<_>>(), [1_000, 1_500, 2_500]);
    let counters = collector.counters();
    assert_eq!((counters.jumped, counters.doubted, counters.reports), (1, 2, 3));
}

#[test]
fn event_counts_continue_when_the_inventory_is_read_again() {
    let (mut collector, fabric) = collector();
    let attacker = IpAddr::from([192, 0, 2, 66]);
    collect_from(&mut collector, &fabric, &[(attacker, vec![])]);
    collector.set_inventory(&toml::from_str(INVENTORY).unwrap());
    assert_eq!((collector.counters().refused, collector.refused().count()), (1, 1));
}

#[test]
fn counters_of_a_gnmi_server_replace_those_of_the_routers_sflow() {
    let (_, fabric) = collector();
    let inventory =
        INVENTORY.replacen("10.0.0.1\"", "10.0.0.1\"\napply.gnmi.address = 'leaf:9339'", 1);
    let mut collector = Collector::new(&toml::from_str(&inventory).unwrap());
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    assert!(collect_all(&mut collector, &fabric, &[leaf.counters(3, 500_000)]).is_empty());
    assert_eq!(
        collect_all(&mut collector, &fabric, &leaf.packets(2, true, NONE, Interface::Index(3)))
            .len(),
        2
    );
    let mut marks = vec![];
    for (bytes, marked) in [(1_000_000, u32::MAX), (2_000_000, 9)] {
        let counters = ["s0", "s9"].map(|port| PortCounters {
            port: port.into(),
            bytes,
            marks: Some(QueueMarks { marked }),
        });
        collector.ingest_counters(
            "leaf",
            &counters,
            Instant::EPOCH + Duration::from_secs(bytes / 1_000_000),
            &fabric,
            &mut marks,
        );
    }
    let reports: Vec<u64> = marks
        .iter()
        .map(|it| match it {
            CollectedItem::Report(report) => report.marks,
            CollectedItem::Sample(sample) => panic!("{sample:?}"),
        })
        .collect();
    // The first count is a start; marks until then are the samples'. A port that the fabric lacks is ignored.
    assert_eq!(reports, [32, 32 + 10]);
}
