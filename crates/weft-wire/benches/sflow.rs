//! A benchmark of the sFlow datagrams that one core decodes per second: `cargo bench -p weft-wire --bench sflow`.
//!
//! Each datagram is parsed to its end, with the flow of every sampled packet, as a collector needs it. The result is
//! the fastest of seven rounds, since other load only adds time.

use std::hint::black_box;
use std::time::Instant;

use weft_wire::sflow::{
    Datagram, DatagramWriter, ETHERNET, FlowSample, IfCounters, Interface, RawHeader, Sample,
    SampledPacket, Source,
};

const ROUNDS: u32 = 7;
const DATAGRAMS: u32 = 500_000;

/// Returns a datagram with `flows` sampled packets, of 128 bytes each, and `counters` interface counters.
fn datagram(flows: u32, counters: u32) -> Vec<u8> {
    let mut buffer = [0; 1472];
    let mut writer = DatagramWriter::new(&mut buffer, [10, 0, 0, 1].into(), 0, 7, 1000);
    let mut header = [0; 128];
    header[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    header[23] = 17;
    let raw = RawHeader { protocol: ETHERNET, frame_len: 4178, stripped: 4, bytes: &header };
    for sequence in 0..flows {
        let fits = writer.flow(&FlowSample {
            sequence,
            source: Source::interface(sequence),
            rate: 40_000,
            pool: 1,
            drops: 0,
            input: Interface::Index(1),
            output: Interface::Index(2),
            header: Some(raw),
        });
        assert!(fits, "{flows} flow samples do not fit");
    }
    for sequence in 0..counters {
        let source = Source::interface(sequence);
        let fits = writer.counters(sequence, source, &IfCounters::default(), None);
        assert!(fits, "{counters} counter samples do not fit");
    }
    let length = writer.finish();
    buffer[..length].to_vec()
}

/// Decodes every value of a datagram that a collector needs; returns a sum of them.
fn decode(bytes: &[u8]) -> u64 {
    let Ok(datagram) = Datagram::parse(bytes) else { return 0 };
    let values = datagram.samples.map(|sample| match sample {
        Ok(Sample::Flow(flow)) => {
            let packet = flow.header.as_ref().and_then(SampledPacket::parse);
            packet.map_or(0, |packet| u64::from(packet.ports.1) + u64::from(flow.rate))
        }
        Ok(Sample::Counters(counters)) => {
            counters.interface().ok().flatten().map_or(0, |it| it.out_octets)
        }
        _ => 0,
    });
    values.sum()
}

#[expect(clippy::disallowed_methods, reason = "only benchmarks read a clock in this crate")]
fn seconds(bytes: &[u8]) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..DATAGRAMS).for_each(|_| {
            black_box(decode(black_box(bytes)));
        });
        start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    println!("{:<34} {:>6} {:>18} {:>13}", "datagram", "bytes", "datagrams/s", "samples/s");
    for (name, flows, counters) in [
        ("7 sampled packets", 7, 0),
        ("1 sampled packet", 1, 0),
        ("12 interfaces' counters", 0, 12),
    ] {
        let bytes = datagram(flows, counters);
        let rate = f64::from(DATAGRAMS) / seconds(&bytes);
        let samples = rate * f64::from(flows + counters);
        println!("{name:<34} {:>6} {rate:>18.0} {samples:>13.0}", bytes.len());
    }
}
