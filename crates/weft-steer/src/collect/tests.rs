use weft_route::Installed;
use weft_units::Duration;
use weft_wire::sflow::{DatagramWriter, ETHERNET, IfCounters, RawHeader, Source};

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

fn collector() -> (Collector, Fabric) {
    let fabric = Fabric::new(toml::from_str::<Installed>(FABRIC).unwrap()).unwrap();
    let inventory = "[[router]]\nname = 'leaf'\nagent = '10.0.0.1'\n[[router]]\nname = 'spine'\nagent = '10.0.0.2'";
    (Collector::new(&toml::from_str(inventory).unwrap()), fabric)
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
        let counters = IfCounters { index, out_octets, ..IfCounters::default() };
        self.send(|writer| assert!(writer.counters(1, Source::interface(index), &counters)))
    }
}

fn hear(collector: &mut Collector, fabric: &Fabric, datagrams: &[Vec<u8>]) -> Vec<Heard> {
    let mut heard = vec![];
    let now = Instant::EPOCH + Duration::from_secs(1);
    datagrams.iter().for_each(|bytes| collector.take(bytes, now, fabric, &mut heard));
    heard
}

const NONE: Interface = Interface::Unknown;

#[test]
fn a_packet_that_leaves_is_a_sample_of_its_link() {
    let (mut collector, fabric) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let heard = hear(&mut collector, &fabric, &leaf.packets(1, false, NONE, Interface::Index(3)));
    let [Heard::Sample(sample)] = heard[..] else { panic!("{heard:?}") };
    assert_eq!(fabric.name(sample.link).to_string(), "leaf s0 → spine");
    assert_eq!(sample.flow.to_string(), "10.1.0.2:49152>10.2.0.2:4791/udp");
    assert_eq!((sample.bytes, sample.packets, sample.rate, sample.input), (1000, 1, 16, None));
    // A switch's sample says both ends.
    let both = leaf.packets(1, false, Interface::Index(2), Interface::Index(3));
    let heard = hear(&mut collector, &fabric, &both);
    let [Heard::Sample(sample)] = heard[..] else { panic!("{heard:?}") };
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
    let heard = hear(&mut collector, &fabric, &[datagram]);
    let [Heard::Sample(sample)] = heard[..] else { panic!("{heard:?}") };
    assert_eq!(sample.flow.to_string(), "[fd00:1::2]:49152>[fd00:2::2]:4791/udp/0x12345");
    assert_eq!(sample.flow.src(), fabric.addresses(weft_route::HostId(0)).v6().unwrap());
    // Neighbours that speak with each other are in nobody's flow.
    let mut neighbours = bytes;
    neighbours[22..24].copy_from_slice(&[0xfe, 0x80]);
    let header = RawHeader { bytes: &neighbours, ..header };
    let between_neighbours = leaf.send(|writer| sample_of(writer, header));
    assert!(hear(&mut collector, &fabric, &[between_neighbours]).is_empty());
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
    let heard = hear(&mut collector, &fabric, &datagrams);
    let reports: Vec<(String, u64, u64)> = heard
        .iter()
        .filter_map(|it| match it {
            Heard::Report(it) => Some((fabric.name(it.link).to_string(), it.bytes, it.marks)),
            Heard::Sample(_) => None,
        })
        .collect();
    assert_eq!(
        reports,
        [
            ("leaf s0 → spine".into(), 1_000_000, 5 * 16),
            // Five of six came marked.
            ("spine h9 → host 10.2.0.2".into(), 2_000_000, 16),
        ]
    );
}

#[test]
fn what_is_lost_late_strange_or_no_sflow_is_counted() {
    let (mut collector, fabric) = collector();
    let mut leaf = Agent { address: [10, 0, 0, 1], sequence: 0 };
    let mut datagrams = leaf.packets(10, false, NONE, Interface::Index(3));
    let again = datagrams[2].clone();
    datagrams.drain(4..6);
    datagrams.push(again);
    datagrams.push(b"not sFlow".to_vec());
    datagrams.push(Agent { address: [10, 0, 0, 77], sequence: 0 }.counters(1, 1));
    datagrams.extend(leaf.packets(1, false, NONE, Interface::Index(55)));
    assert_eq!(hear(&mut collector, &fabric, &datagrams).len(), 8);
    let counters = collector.counters();
    assert_eq!((counters.lost, counters.late), (2, 1));
    assert_eq!((counters.malformed, counters.unknown_agent, counters.unplaced), (1, 1, 1));
    // An agent that began anew counts from 1.
    let mut anew = Agent { address: [10, 0, 0, 1], sequence: 0 };
    assert_eq!(
        hear(&mut collector, &fabric, &anew.packets(2, false, NONE, Interface::Index(3))).len(),
        2
    );
}
