//! The agent on a lab's real traffic: the samples are correct, and tshark, an independent decoder, reads the same
//! values in the datagrams. Without root or a required tool the test reports that it was skipped, and the reason.
#![allow(clippy::disallowed_methods, reason = "this test watches a kernel in real time")]

mod common;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{is_missing, lab, read};
use weft_steer::agent::{Agent, AgentPlan, Watched};
use weft_trial::routers_of;
use weft_wire::sflow::{
    Datagram, DatagramWriter, IfCounters, Interface, PORT, QueueMarks, Sample, SampledPacket,
    Source,
};

/// The sampling rate. `PACKETS` packets are sent, which cross a leaf through one port in and one port out.
const RATE: u32 = 16;
const PACKETS: u32 = 16_000;

#[test]
fn samples_agree_with_the_sent_packets_and_tshark_reads_the_same() {
    if is_missing("what an sFlow agent draws", false) {
        return;
    }
    let lab = lab("a", |spec| spec.spines = 1);
    let inventory = routers_of(&lab);
    let fabric = read(&inventory);
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_nonblocking(true).unwrap();
    let leaf = inventory.router("l0").unwrap();
    let mut agent = Agent::open(AgentPlan {
        routers: vec![Watched {
            address: leaf.agent,
            namespace: Some(lab.fabric().leaf(0).namespace.clone()),
        }],
        collectors: vec![collector.local_addr().unwrap()],
        source: None,
        rate: RATE,
        flush: Duration::from_millis(20),
        counters: Duration::from_millis(200),
    })
    .unwrap();

    let sender = lab.enter("h0", || UdpSocket::bind("0.0.0.0:50000")).unwrap().unwrap();
    let to = (lab.fabric().address(1), 4791);
    let mut datagrams = vec![];
    for number in 0..PACKETS {
        sender.send_to(&[7; 972], to).unwrap();
        if number % 200 == 0 {
            agent.turn().unwrap();
            datagrams.extend(received(&collector));
        }
    }
    let out = fabric.link_of_port(fabric.find("l0").unwrap(), "s0").unwrap();
    let out = fabric.port_of(out).unwrap().1.ifindex;
    let deadline = Instant::now() + Duration::from_secs(10);
    // Wait until the counters show that all packets have left.
    while octets(&datagrams, out) < u64::from(PACKETS) * 1014 {
        assert!(Instant::now() < deadline, "{} octets", octets(&datagrams, out));
        agent.turn().unwrap();
        datagrams.extend(received(&collector));
    }

    let sampled = sampled(&datagrams);
    let (received_count, sent_count) = (sampled[&(2, true)], sampled[&(out, false)]);
    for (way, count) in [("in", received_count), ("out", sent_count)] {
        // 1,000 are expected. The count is binomial with a standard deviation of 31; six of them do not occur.
        assert!((810..1190).contains(&count), "{count} drawn on the way {way}");
    }
    assert_eq!(agent.counters().dropped, 0);
    assert_eq!(agent.counters().datagrams, datagrams.len() as u64);
    datagrams.push(with_marks());
    agrees_with_tshark(&datagrams);
}

/// Returns a datagram with the marks of two ports' queues, which this kernel need not count: a record that tshark does not
/// know.
fn with_marks() -> Vec<u8> {
    let mut buffer = [0; 400];
    let mut writer = DatagramWriter::new(&mut buffer, [10, 0, 0, 1].into(), 0, 1, 1000);
    for index in [1, 2] {
        let counters = IfCounters { index, out_octets: 1 << 40, ..IfCounters::default() };
        let marks = Some(QueueMarks { marked: 7 });
        assert!(writer.counters(index, Source::interface(index), &counters, marks));
    }
    let length = writer.finish();
    buffer[..length].to_vec()
}

fn received(collector: &UdpSocket) -> Vec<Vec<u8>> {
    let mut datagrams = vec![];
    let mut buffer = [0; 2048];
    loop {
        match collector.recv(&mut buffer) {
            Ok(length) => datagrams.push(buffer[..length].to_vec()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return datagrams,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the bytes that an interface has sent, from its last counters.
fn octets(datagrams: &[Vec<u8>], interface: u32) -> u64 {
    let samples = datagrams.iter().flat_map(|it| Datagram::parse(it).unwrap().samples);
    let counters = samples.filter_map(|it| match it.unwrap() {
        Sample::Counters(counters) => counters.interface().unwrap(),
        _ => None,
    });
    counters.filter(|it| it.index == interface).map(|it| it.out_octets).max().unwrap_or(0)
}

/// Returns the number of sampled packets of the test's flow, by interface and by `true` for received packets.
fn sampled(datagrams: &[Vec<u8>]) -> BTreeMap<(u32, bool), u32> {
    let mut sampled = BTreeMap::new();
    for sample in datagrams.iter().flat_map(|it| Datagram::parse(it).unwrap().samples) {
        let Ok(Sample::Flow(flow)) = sample else { continue };
        let header = flow.header.unwrap();
        let ours = |packet: &SampledPacket| packet.ports == (50_000, 4791) && packet.protocol == 17;
        if SampledPacket::parse(&header).as_ref().is_some_and(ours) {
            assert_eq!((header.frame_len, flow.rate), (1014, RATE));
            let is_received = matches!(flow.input, Interface::Index(_));
            *sampled.entry((flow.source.index, is_received)).or_default() += 1;
        }
    }
    sampled
}

/// Checks that both decoders read the same numbers, datagram by datagram and sample by sample.
fn agrees_with_tshark(datagrams: &[Vec<u8>]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let capture = folder.join(format!("sflow-{}.pcap", std::process::id()));
    std::fs::write(&capture, pcap(datagrams)).unwrap();
    const FIELDS: [&str; 12] = [
        "sflow_245.sequence_number",
        "sflow_245.sysuptime",
        "sflow_245.numsamples",
        "sflow.flow_sample.sequence_number",
        "sflow.flow_sample.sampling_rate",
        "sflow.flow_sample.sample_pool",
        "sflow.flow_sample.input_interface",
        "sflow_245.header.frame_length",
        "sflow_245.ifindex",
        "sflow_245.ifinoct",
        "sflow_245.ifoutoct",
        "sflow_245.ifspeed",
    ];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&capture).args(["-T", "fields", "-E", "separator=;"]);
    tshark.args(["-d", &format!("udp.port=={PORT},sflow")]);
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    let output = match tshark.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let reason = "no tshark (sudo apt-get install tshark)";
            return weft_testkit::skip("sFlow as tshark reads it", reason);
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let theirs: Vec<&str> = text.lines().collect();
    let ours: Vec<String> = datagrams.iter().map(|it| fields(it)).collect();
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs, ours);
    }
    let _ = std::fs::remove_file(capture);
}

/// Returns a datagram's fields in tshark's format.
fn fields(bytes: &[u8]) -> String {
    let datagram = Datagram::parse(bytes).unwrap();
    let mut columns = vec![vec![]; 12];
    let mut put = |column: usize, number: u64| columns[column].push(number.to_string());
    put(0, datagram.sequence.into());
    put(1, datagram.uptime_ms.into());
    put(2, datagram.samples.count() as u64);
    for sample in datagram.samples {
        match sample.unwrap() {
            Sample::Flow(flow) => {
                let numbers = [flow.sequence, flow.rate, flow.pool];
                let input = match flow.input {
                    Interface::Index(index) => index,
                    _ => 0,
                };
                let length = flow.header.unwrap().frame_len;
                for (column, number) in (3..).zip(numbers.into_iter().chain([input, length])) {
                    put(column, number.into());
                }
            }
            Sample::Counters(counters) => {
                let it = counters.interface().unwrap().unwrap();
                let numbers = [it.index.into(), it.in_octets, it.out_octets, it.speed];
                (8..).zip(numbers).for_each(|(column, number)| put(column, number));
            }
            Sample::Other { .. } => panic!("the agent sends nothing else"),
        }
    }
    columns.iter().map(|column| column.join(",")).collect::<Vec<_>>().join(";")
}

/// Returns a capture file of these payloads, in IPv4 and UDP to sFlow's port (pcap, link type 228: IPv4).
fn pcap(payloads: &[Vec<u8>]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 228]);
    for payload in payloads {
        let udp = u16::try_from(payload.len() + 8).unwrap();
        let length = u32::from(udp) + 20;
        file.extend(words(&[0, 0, length, length]));
        file.extend([0x45, 0]);
        file.extend((udp + 20).to_be_bytes());
        file.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        for number in [50_000, PORT, udp, 0] {
            file.extend(number.to_be_bytes());
        }
        file.extend(payload);
    }
    file
}
