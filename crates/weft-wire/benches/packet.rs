//! A benchmark of parsing and emitting a packet's headers: `cargo bench -p weft-wire`.
//!
//! It prints nanoseconds per operation, the minimum of seven rounds, since other load only adds time.

use std::hint::black_box;
use std::time::Instant;

use weft_wire::{AckHeader, Bitmap, DataHeader, MessageHeader, Packet};

const ROUNDS: u32 = 7;
const OPERATIONS: u32 = 2_000_000;

#[expect(clippy::disallowed_methods, reason = "only benchmarks read a clock in this crate")]
fn nanoseconds(mut operation: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..OPERATIONS).for_each(|_| operation());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    let header = DataHeader { psn: 17, destination_cid: 0xabcd, ..DataHeader::default() };
    let bitmap =
        |words: &[u32]| AckHeader { bitmap: Bitmap::from_words(words), ..AckHeader::default() };
    let packets = [
        ("data", Packet::data(header, None)),
        ("data and message", Packet::data(header, Some(MessageHeader::default()))),
        ("ack, no bitmap", Packet::Ack(bitmap(&[]))),
        ("ack, 8 words", Packet::Ack(bitmap(&[1; 8]))),
    ];
    println!("{:<17} {:>9} {:>9}", "packet", "parse ns", "emit ns");
    for (name, packet) in packets {
        let mut datagram = [0; 1500];
        packet.emit(&mut datagram);
        let parse = nanoseconds(|| {
            // By reference, so that the time does not include another copy of the value.
            black_box(&Packet::parse(black_box(&datagram[..])));
        });
        let emit = nanoseconds(|| {
            black_box(black_box(&packet).emit(black_box(&mut datagram[..])));
        });
        println!("{name:<17} {parse:>9.1} {emit:>9.1}");
    }
}
