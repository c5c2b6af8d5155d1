//! The order in which bytes and completions become visible while packets are reordered.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use weft_units::{Duration, Seed};

use super::network::{BASE, Fate, LENGTH, Network, every_right};
use crate::*;

const RC: Service = Service::ReliableConnected;

fn gather(wr_id: u64, operation: Operation, sges: &[Sge]) -> SendRequest<'_> {
    SendRequest::new(wr_id, operation, Data::Gather(sges))
}

/// Reorders, loses and duplicates packets.
fn disorder(network: &mut Network, seed: u64) {
    let mut rng = Seed(seed).child("disorder", 0).rng();
    network.rule = Box::new(move |_| match rng.below(100) {
        0..5 => Fate::Drop,
        5..10 => Fate::Duplicate,
        10..70 => Fate::Delay(Duration::from_nanos(rng.below(60_000))),
        _ => Fate::Pass,
    });
}

/// Returns the position of the last write to a byte, in the order of writes.
fn written(network: &Network, offset: u64) -> usize {
    let holds =
        |place: &Place| (place.address..place.address + u64::from(place.len)).contains(&offset);
    network.hosts[1].memory.writes.iter().rposition(holds).expect("it was written")
}

#[test]
fn the_last_byte_of_a_write_is_written_last_and_writes_end_in_order() {
    let mut overtaken = 0;
    for seed in 0..30 {
        let (mut network, a, b) = Network::pair(RC);
        disorder(&mut network, seed);
        for wr_id in 0..6 {
            let write = Operation::Write(b.remote(8000 * wr_id));
            network.post(&a, &gather(wr_id, write, &[a.sge(8000 * wr_id, 8000)]));
        }
        network.completions(&a, 6);
        let last: Vec<_> = (1..=6).map(|write| written(&network, 8000 * write - 1)).collect();
        assert!(last.is_sorted(), "seed {seed}: {last:?}");
        for (write, &end) in (0..).zip(&last) {
            let before = (8000 * write..8000 * write + 7936).step_by(256);
            assert!(before.clone().all(|offset| written(&network, offset) < end), "seed {seed}");
            overtaken += before
                .clone()
                .zip(before.skip(1))
                .filter(|(a, b)| written(&network, *a) > written(&network, *b))
                .count();
        }
        assert!(network.hosts[1].memory.held.is_empty(), "seed {seed}");
    }
    assert!(overtaken > 100, "packets were placed as they came: {overtaken}");
}

#[test]
fn a_write_to_a_relaxed_region_does_not_wait_for_earlier_writes() {
    let (mut network, a, b) = Network::pair(RC);
    let access = every_right() | Access::RELAXED_ORDERING;
    let region = RegionRequest { owner: b.owner, address: 0, length: LENGTH, iova: BASE, access };
    let relaxed = network.hosts[1].device.register(b.domain, &region).unwrap();
    for rkey in [b.key, relaxed] {
        network.hosts[1].memory.writes.clear();
        // The first packet of the first WRITE is late.
        let late = Rc::new(RefCell::new(true));
        network.rule = Box::new(move |on_link| match on_link.message() {
            Some(message) if on_link.from == 0 && message.offset == 0 && late.replace(false) => {
                Fate::Delay(Duration::from_micros(100))
            }
            _ => Fate::Pass,
        });
        for wr_id in 0..2 {
            let write = Operation::Write(Remote { rkey, ..b.remote(1000 * wr_id) });
            network.post(&a, &gather(wr_id, write, &[a.sge(1000 * wr_id, 1000)]));
        }
        network.completions(&a, 2);
        let overtook = written(&network, 1999) < written(&network, 0);
        assert_eq!(overtook, rkey == relaxed);
        assert!(written(&network, 999) > written(&network, 0), "its own bytes come first");
    }
}

#[test]
pub(super) fn an_atomic_sees_the_writes_before_it_and_none_behind_it() {
    for seed in 0..30 {
        let (mut network, a, b) = Network::pair(RC);
        disorder(&mut network, seed);
        for round in 0..8u64 {
            network.memory(&a)[8 * usize::try_from(round).unwrap()..][..8]
                .copy_from_slice(&(100 * round).to_ne_bytes());
            network.post(&a, &gather(0, Operation::Write(b.remote(0)), &[a.sge(8 * round, 8)]));
            let add = Operation::Atomic {
                remote: b.remote(0),
                operation: AtomicOperation::FetchAdd { add: 1 },
            };
            network.post(&a, &gather(1, add, &[a.sge(1000 + 8 * round, 8)]));
        }
        network.completions(&a, 16);
        let memory = network.memory(&a)[1000..1064].to_vec();
        let seen = memory.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        assert!(seen.eq((0..8).map(|round| 100 * round)), "seed {seed}");
    }
}

#[test]
pub(super) fn receive_requests_complete_in_order_with_the_bytes_of_their_messages() {
    for seed in 0..30 {
        let (mut network, a, b) = Network::pair(RC);
        network.fill(&a, seed);
        disorder(&mut network, seed);
        let length = |wr_id: u64| u32::try_from(wr_id * 131 % 1500).unwrap();
        for wr_id in 0..30 {
            network.post_receive(&b, wr_id, &[b.sge(1500 * wr_id, 1500)]);
            network
                .post(&a, &gather(wr_id, Operation::Send, &[a.sge(1500 * wr_id, length(wr_id))]));
        }
        let got: Vec<_> = network.completions(&b, 30).iter().map(|c| (c.wr_id, c.length)).collect();
        let expected: Vec<_> = (0..30).map(|wr_id| (wr_id, length(wr_id))).collect();
        assert_eq!(got, expected, "seed {seed}");
        let (sent, memory) = (network.memory(&a).to_vec(), network.memory(&b));
        for wr_id in 0..30 {
            let from = usize::try_from(1500 * wr_id).unwrap();
            let to = from + length(wr_id) as usize;
            assert_eq!(memory[from..to], sent[from..to], "seed {seed}");
        }
    }
}

#[test]
pub(super) fn a_refused_request_is_never_reported_as_success() {
    // Acknowledgements are fast and refusals are late.
    for seed in 0..20 {
        let (mut network, a, b) = Network::pair(RC);
        let mut rng = Seed(seed).rng();
        network.rule = Box::new(move |on_link| {
            let answer = on_link.from == 1 && on_link.rdma.is_some();
            let slow = if answer { 200_000 } else { 20_000 };
            Fate::Delay(Duration::from_nanos(rng.below(slow)))
        });
        let wrong = Remote { rkey: b.key ^ 1, ..b.remote(0) };
        for wr_id in 0..20 {
            let remote = if wr_id == seed { wrong } else { b.remote(0) };
            network.post(&a, &gather(wr_id, Operation::Write(remote), &[a.sge(0, 300)]));
        }
        let outcomes = network.outcomes(&a, 20);
        for (wr_id, status) in outcomes {
            let expected = match wr_id.cmp(&seed) {
                core::cmp::Ordering::Less => Status::Success,
                core::cmp::Ordering::Equal => Status::RemoteAccess,
                core::cmp::Ordering::Greater => Status::WrFlush,
            };
            assert_eq!(status, expected, "seed {seed}, request {wr_id}");
        }
    }
}
