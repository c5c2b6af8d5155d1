//! What a packet's headers cost to read and to write: `cargo bench -p weft-wire`.
//!
//! Nanoseconds an operation, the best of seven rounds: other work on the machine only ever adds.

use std::hint::black_box;
use std::time::Instant;

use weft_wire::{AckHeader, Bitmap, DataHeader, MessageHeader, Packet};

const ROUNDS: u32 = 7;
const OPERATIONS: u32 = 2_000_000;

#[expect(clippy::disallowed_methods, reason = "a benchmark is a clock's one use here")]
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
            // By reference: the value is what is measured, not another copy of it.
            black_box(&Packet::parse(black_box(&datagram[..])));
        });
        let emit = nanoseconds(|| {
            black_box(black_box(&packet).emit(black_box(&mut datagram[..])));
        });
        println!("{name:<17} {parse:>9.1} {emit:>9.1}");
    }
}
