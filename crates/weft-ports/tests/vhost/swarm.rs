//! Random tests of two guests and a lossy network, with random events at guests and buffers: every frame arrives once,
//! whole, in order. A failure names its seed, and the seed becomes a named test.

use weft_ports::Port;
use weft_units::{Duration, Rng, Seed};

use crate::common::front_end::{USUAL, bit};
use crate::common::wire::{Impairments, Wire};
use crate::{Tenant, frame, millis, sent_part, tenant};

/// Returns a guest with random features.
fn any_tenant(name: &str, rng: &mut Rng) -> Tenant {
    let size = 16 << rng.below(6);
    let mut features = USUAL;
    for optional in [bit::EVENT_IDX, bit::GUEST_CSUM | bit::GUEST_TSO4, bit::GUEST_TSO6] {
        if rng.chance(1, 3) {
            features &= !optional;
        }
    }
    let mergeable = rng.chance(2, 3);
    if !mergeable {
        features &= !bit::MRG_RXBUF;
    }
    tenant(name, size, features, if mergeable { 1_536 } else { 16_384 })
}

/// Performs a random disturbance.
fn disturb(a: &mut Tenant, b: &mut Tenant, next: &mut usize, now: u64, rng: &mut Rng) {
    match rng.below(60) {
        0 => *next -= a.guest.restart(&mut a.port),
        1 => drop(b.guest.restart(&mut b.port)),
        2 => a.guest.front.share_memory(&mut a.port),
        3 => b.guest.front.share_memory(&mut b.port),
        4..8 => drop(a.port.release_overdue(millis(now), Duration::from_millis(rng.below(6)))),
        8..12 => {
            if let Some(slot) = b.port.claim(
                26 + rng.next_u32() % 9_000,
                weft_vpc::Turn::OutOfOrder,
                weft_vpc::Staging::InPlace,
                &[],
            ) {
                b.port.cancel(slot);
            }
        }
        _ => {}
    }
}

#[test]
fn every_frame_arrives_once_and_in_order_whatever_happens_to_guests() {
    const FRAMES: usize = 120;
    let (mut restarts, mut overdue) = (0, 0);
    for seed in 0..120 {
        let mut rng = Seed(seed).child("swarm", 0).rng();
        let mut a = any_tenant(&format!("swarm-a-{seed}"), &mut rng);
        let mut b = any_tenant(&format!("swarm-b-{seed}"), &mut rng);
        let longest = 1 + rng.index(9_000);
        let frames: Vec<Vec<u8>> = (0..FRAMES)
            .map(|_| {
                let len = 26 + rng.index(longest);
                frame(&mut rng, len)
            })
            .collect();
        let impairments = Impairments { loss: rng.below(200), reordering: 1 + rng.index(100) };
        let mut wire = Wire::new(impairments, seed);
        let (mut next, mut turn) = (0, 0);
        while b.guest.received.len() < FRAMES {
            while next < FRAMES && rng.chance(9, 10) && a.guest.send(&frames[next]) {
                next += 1;
            }
            let before = next;
            disturb(&mut a, &mut b, &mut next, turn, &mut rng);
            restarts += u64::from(next != before);
            a.port.service(millis(turn)).unwrap();
            b.port.service(millis(turn)).unwrap();
            wire.turn(&mut a.port, &mut b.port, millis(turn));
            if rng.chance(2, 3) {
                b.guest.receive();
            }
            turn += 1;
            assert!(turn < 20_000, "seed {seed}: {} frames", b.guest.received.len());
        }
        assert_eq!(wire.reports, Vec::<String>::new(), "seed {seed}");
        for (at, (received, sent)) in b.guest.received.iter().zip(&frames).enumerate() {
            assert!(sent_part(received) == &sent[12..], "seed {seed}: frame {at}");
        }
        assert_eq!(b.port.counters().lost + b.port.counters().bad_header, 0, "seed {seed}");
        overdue += a.port.counters().overdue;
        let (a, b) = (a.port.holdings(), b.port.holdings());
        assert_eq!((a.taken, b.claimed, b.waiting, b.claimed_memory), (0, 0, 0, 0), "seed {seed}");
    }
    assert!(restarts > 20 && overdue > 50, "{restarts} restarts, {overdue} overdue");
}
