//! Tests of frames from guest to guest over a lossy network, for guests with different features.

use weft_ports::{Custody, Port};
use weft_units::Seed;

use crate::common::front_end::{USUAL, bit};
use crate::common::wire::{Impairments, Wire};
use crate::{Tenant, frame, millis, sent_part, tenant};

/// Sends `count` frames of up to `longest` bytes from one guest to the other.
fn carry(a: &mut Tenant, b: &mut Tenant, longest: usize, count: usize, seed: u64) -> Wire {
    let mut rng = Seed(seed).child("frames", 0).rng();
    let frames: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let len = 26 + rng.index(longest - 26);
            frame(&mut rng, len)
        })
        .collect();
    let mut wire = Wire::new(Impairments { loss: 30, reordering: 64 }, seed);
    let (mut next, mut turns) = (0, 0);
    while b.guest.received.len() < count {
        while next < count && a.guest.send(&frames[next]) {
            next += 1;
        }
        a.port.service(millis(turns)).unwrap();
        b.port.service(millis(turns)).unwrap();
        wire.turn(&mut a.port, &mut b.port, millis(turns));
        b.guest.receive();
        turns += 1;
        assert!(turns < 100_000, "{} of {count} frames", b.guest.received.len());
    }
    assert_eq!(wire.reports, Vec::<String>::new());
    for (at, (received, sent)) in b.guest.received.iter().zip(&frames).enumerate() {
        assert!(sent_part(received) == &sent[12..], "frame {at}");
    }
    a.guest.reap();
    wire
}

#[test]
fn frames_of_all_sizes_cross_in_order_over_merged_buffers() {
    let mut a = tenant("merge-a", 1_024, USUAL, 1_536);
    let mut b = tenant("merge-b", 1_024, USUAL, 1_536);
    a.guest.piece = 4_096;
    let wire = carry(&mut a, &mut b, 65_000, 400, 1);
    assert!(wire.largest > 60_000);
    let (sent, received) = (a.port.counters(), b.port.counters());
    assert_eq!((sent.sent_frames, received.received_frames), (400, 400));
    assert_eq!(sent.sent_bytes, received.received_bytes);
    assert_eq!(received.lost + received.bad_header + sent.bad_chain + sent.unreadable, 0);
    // The first retransmission showed that this guest keeps its buffers unchanged until they return.
    assert_eq!(a.port.custody(), Custody::Guest);
    assert_eq!(a.port.holdings().taken, 0);
}

#[test]
fn a_guest_without_merged_buffers_gets_frames_in_large_ones() {
    let features = USUAL & !(bit::MRG_RXBUF | bit::EVENT_IDX | bit::INDIRECT);
    let mut a = tenant("large-a", 256, features, 66 << 10);
    let mut b = tenant("large-b", 256, features, 66 << 10);
    a.guest.piece = 20_000;
    carry(&mut a, &mut b, 65_000, 200, 2);
}

#[test]
fn a_queue_shorter_than_what_is_under_way_delays_frames_and_loses_none() {
    let mut a = tenant("short-a", 1_024, USUAL, 1_536);
    let mut b = tenant("short-b", 64, USUAL, 1_536);
    carry(&mut a, &mut b, 9_000, 600, 3);
    assert_eq!(b.port.counters().lost, 0);
    assert!(b.port.counters().no_buffer > 0, "the queue was never full");
}

#[test]
fn small_frames_of_an_ordinary_guest_need_no_memory_here() {
    let mut a = tenant("small-a", 1_024, USUAL, 1_536);
    let mut b = tenant("small-b", 1_024, USUAL, 1_536);
    carry(&mut a, &mut b, 1_514, 3_000, 4);
    // The guest has custody now: a held frame costs only its head and its first descriptor.
    for _ in 0..200 {
        assert!(a.guest.send(&frame(&mut Seed(5).rng(), 1_526)));
    }
    let before = a.port.holdings().taken_memory;
    while a.port.take(millis(1)).unwrap().is_some() {}
    let held = a.port.holdings();
    assert_eq!(held.taken, 200);
    assert!(held.taken_memory - before < 200 * 400, "{} bytes", held.taken_memory - before);
}
