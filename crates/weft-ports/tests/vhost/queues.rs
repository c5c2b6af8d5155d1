//! Guests with several pairs of queues: a flow stays in one pair, and pairs are enabled and disabled while frames pass.

use weft_ports::{HEADER_LEN, Port, Position};
use weft_units::{Instant, Seed};
use weft_vpc::{Slot, Staging, Turn};

use crate::common::front_end::{BUFFERS, FrontEnd, RECEIVES, SENDS, USUAL, WRITE, bit, request};
use crate::{Tenant, tenant};

const PAIRS: usize = 4;
const SIZE: u16 = 32;

/// Returns the address of a buffer of 2 KiB of a queue.
fn buffer(queue: usize, head: u16) -> u64 {
    BUFFERS + (20 << 20) + 2_048 * (queue as u64 * u64::from(SIZE) + u64::from(head))
}

/// Returns a guest with [`PAIRS`] pairs of queues whose receive buffers are all available.
fn guest(name: &str) -> Tenant {
    let mut a = tenant(name, SIZE, USUAL | bit::MQ, 1_536);
    a.guest.front.start_pairs(&mut a.port, SIZE, PAIRS);
    for queue in (2..2 * PAIRS).step_by(2) {
        offer_all(&mut a.guest.front, queue, 0..SIZE);
    }
    a
}

fn offer_all(front: &mut FrontEnd, queue: usize, heads: impl Iterator<Item = u16>) {
    for head in heads {
        front.describe(front.queues[queue].table, head, (buffer(queue, head), 2_048, WRITE, 0));
        front.offer(queue, head);
    }
    front.kick(queue);
}

/// Returns a UDP frame of a flow with its virtio header, of 200 bytes: to the guest's port or from it.
fn frame(flow: u16, from_guest: bool) -> Vec<u8> {
    let mut bytes = vec![0; 200];
    bytes[12..24].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    bytes[24..26].copy_from_slice(&[8, 0]);
    let len = u16::try_from(bytes.len() - 26).unwrap();
    bytes[26..35].copy_from_slice(&[
        0x45,
        0,
        len.to_be_bytes()[0],
        len.to_be_bytes()[1],
        0,
        0,
        0,
        0,
        64,
    ]);
    bytes[35] = 17;
    let mut ends = [([10, 0, 0, 1], 53_u16), ([10, 0, 0, 2], 1_000 + flow)];
    if from_guest {
        ends.reverse();
    }
    for (end, (address, port)) in ends.into_iter().enumerate() {
        bytes[38 + 4 * end..][..4].copy_from_slice(&address);
        bytes[46 + 2 * end..][..2].copy_from_slice(&port.to_be_bytes());
    }
    bytes[50..52].copy_from_slice(&(len - 20).to_be_bytes());
    bytes
}

/// Sends a frame of a flow from a pair, which the port takes and releases.
fn send(a: &mut Tenant, flow: u16, pair: usize) {
    let (queue, bytes) = (2 * pair + SENDS, frame(flow, true));
    let front = &mut a.guest.front;
    let head = front.queues[queue].next_offer % SIZE;
    front.write(buffer(queue, head), &bytes);
    front.describe(front.queues[queue].table, head, (buffer(queue, head), 200, 0, 0));
    front.offer(queue, head);
    front.kick(queue);
    let sent = a.port.take(Instant::EPOCH).unwrap().expect("it was sent");
    let mut taken = vec![0; 200];
    a.port.read(sent.token, 0, &mut taken, weft_vpc::Reading::First).unwrap();
    assert_eq!(taken, bytes);
    a.port.release(sent.token);
    a.port.flush().unwrap();
    assert_eq!(a.guest.front.returned(queue).len(), 1);
}

fn claim(a: &mut Tenant, flow: u16, with_head: bool) -> Slot {
    let bytes = frame(flow, false);
    let head = if with_head { &bytes[HEADER_LEN as usize..] } else { &[] };
    a.port.claim(200, Turn::OutOfOrder, Staging::InPlace, head).expect("there is room")
}

fn finish(a: &mut Tenant, slot: Slot, flow: u16) {
    a.port.place(slot, 0, &frame(flow, false)).unwrap();
    a.port.complete(slot);
    a.port.flush().unwrap();
}

/// Returns the pairs into which the guest received frames since the last call, and makes their buffers available.
fn received(a: &mut Tenant) -> Vec<usize> {
    let mut pairs = vec![];
    for pair in 0..PAIRS {
        let queue = 2 * pair + RECEIVES;
        let returned = a.guest.front.returned(queue);
        pairs.extend(returned.iter().filter(|&&(_, len)| len > 0).map(|_| pair));
        returned.iter().for_each(|&(head, _)| a.guest.front.offer(queue, head));
        a.guest.front.kick(queue);
    }
    pairs
}

#[test]
fn a_flow_stays_in_one_pair_of_queues_in_both_directions() {
    let mut a = guest("queues-flow");
    let count = a.guest.front.ask(&mut a.port, request::GET_QUEUE_NUM, &[]);
    assert!(count >= PAIRS as u64);
    for flow in 0..200 {
        let pair = usize::from(flow) % PAIRS;
        send(&mut a, flow, pair);
        for with_head in [true, false] {
            let slot = claim(&mut a, flow, with_head);
            finish(&mut a, slot, flow);
            assert_eq!(received(&mut a), [pair], "flow {flow}");
        }
    }
    // The guest's scheduler moves a flow to another processor.
    send(&mut a, 7, 0);
    let slot = claim(&mut a, 7, true);
    finish(&mut a, slot, 7);
    assert_eq!(received(&mut a), [0]);
}

#[test]
fn flows_that_the_guest_never_sent_use_all_pairs() {
    let mut a = guest("queues-spread");
    let mut seen = [0; PAIRS];
    for flow in 0..200 {
        let slot = claim(&mut a, flow, true);
        finish(&mut a, slot, flow);
        received(&mut a).into_iter().for_each(|pair| seen[pair] += 1);
    }
    assert!(seen.iter().sum::<usize>() == 200 && seen.iter().all(|&count| count > 20), "{seen:?}");
}

/// Frames that were claimed or wait in a pair reach the guest by another after the pair is disabled.
#[test]
fn no_frame_is_lost_when_pairs_are_disabled_and_enabled() {
    let mut a = guest("queues-enable");
    let mut rng = Seed(3).child("pairs", 0).rng();
    let mut enabled = [true; PAIRS];
    let (mut claimed, mut expected, mut arrived) = (vec![], 0, 0);
    for step in 0..4_000 {
        let flow = u16::try_from(rng.below(64)).unwrap();
        match rng.below(8) {
            0 => {
                let pair = 1 + rng.index(PAIRS - 1);
                enabled[pair] = !enabled[pair];
                for queue in [2 * pair, 2 * pair + 1] {
                    a.guest.front.set_enabled(&mut a.port, queue, enabled[pair]);
                }
            }
            1 | 2 => {
                let running: Vec<_> = (0..PAIRS).filter(|&pair| enabled[pair]).collect();
                send(&mut a, flow, running[rng.index(running.len())]);
            }
            3 | 4 if claimed.len() < 8 => {
                claimed.push((claim(&mut a, flow, rng.chance(1, 2)), flow));
                expected += 1;
            }
            _ if !claimed.is_empty() => {
                let (slot, flow) = claimed.swap_remove(rng.index(claimed.len()));
                finish(&mut a, slot, flow);
            }
            _ => {}
        }
        let pairs = received(&mut a);
        assert!(pairs.iter().all(|&pair| enabled[pair]), "step {step}: {pairs:?} of {enabled:?}");
        arrived += pairs.len();
    }
    for (slot, flow) in claimed {
        finish(&mut a, slot, flow);
    }
    arrived += received(&mut a).len();
    assert_eq!(arrived, expected);
    let holdings = a.port.holdings();
    assert_eq!((holdings.claimed, holdings.waiting, holdings.claimed_memory), (0, 0, 0));
    assert_eq!(a.port.counters().bad_chain, 0);
}

/// A guest that never makes buffers of a pair available again, while frames whose first bytes come late are for it.
#[test]
fn frames_for_a_pair_that_is_not_served_are_bounded() {
    let mut a = guest("queues-stalled");
    send(&mut a, 7, 1);
    let (mut accepted, mut delivered) = (0, 0);
    for _ in 0..10_000 {
        let Some(slot) = a.port.claim(200, Turn::Next, Staging::InPlace, &[]) else { break };
        finish(&mut a, slot, 7);
        accepted += 1;
        let returned = a.guest.front.returned(RECEIVES);
        delivered += returned.iter().filter(|&&(_, len)| len > 0).count();
        returned.iter().for_each(|&(head, _)| a.guest.front.offer(RECEIVES, head));
        a.guest.front.kick(RECEIVES);
    }
    let waiting = a.port.holdings().waiting;
    assert!(waiting <= weft_ports::Limits::default().frames, "{waiting} frames wait");
    // The others reach the guest in the pair that claimed them.
    assert_eq!(delivered + waiting + usize::from(SIZE), accepted);
    assert_eq!(accepted, 10_000);
}

/// The error of a queue is reported by the next flush, before which its front end may be gone.
#[test]
fn a_broken_queue_of_a_front_end_that_is_gone_ends_nothing() {
    for disconnects in [false, true] {
        let mut a = guest(&format!("queues-broken-{disconnects}"));
        send(&mut a, 7, 1);
        let front = &mut a.guest.front;
        // The first buffer of the pair's guest is not for writing.
        if front.features & bit::PACKED == 0 {
            front.describe(front.queues[2].table, 0, (buffer(2, 0), 2_048, 0, 0));
        } else {
            front.set_flags(2, Position::START, FrontEnd::available(Position::START, 0));
        }
        let bytes = frame(7, false);
        let head = &bytes[HEADER_LEN as usize..];
        assert_eq!(a.port.claim(200, Turn::OutOfOrder, Staging::InPlace, head), None);
        if disconnects {
            a.guest.front.stream.shutdown(std::net::Shutdown::Both).unwrap();
            a.port.service(Instant::EPOCH).unwrap_err();
            a.port.flush().unwrap();
        } else {
            let report = a.port.flush().unwrap_err().to_string();
            assert!(report.contains("receiving"), "{report}");
        }
        assert_eq!(a.port.is_up(), !disconnects);
    }
}

#[test]
fn a_queue_past_the_maximum_is_refused_with_the_fix() {
    let mut a = guest("queues-many");
    let body = [200_u32, 64].map(u32::to_ne_bytes).concat();
    let refused = a.guest.front.try_send_request(&mut a.port, request::SET_VRING_NUM, &body, &[]);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("queue 200 of 32") && text.contains("`queue-pairs`"), "{text}");
    assert!(a.port.is_up());
}

/// QEMU 7.2 adds and removes a memory region once for each pair of queues.
#[test]
fn a_region_that_was_added_twice_is_there_until_it_was_removed_twice() {
    let mut a = guest("queues-regions");
    let region = [0, 1 << 30, 4_096, 1 << 30, 0].map(u64::to_ne_bytes).concat();
    let file = a.guest.front.file.try_clone().unwrap();
    for _ in 0..2 {
        let files = &[std::os::fd::AsFd::as_fd(&file)];
        a.guest.front.send_request(&mut a.port, request::ADD_MEM_REG, &region, files);
        assert_eq!(a.port.holdings().regions.0, 2);
    }
    for left in [2, 1] {
        a.guest.front.send_request(&mut a.port, request::REM_MEM_REG, &region, &[]);
        assert_eq!(a.port.holdings().regions.0, left);
    }
    let removed = a.guest.front.try_send_request(&mut a.port, request::REM_MEM_REG, &region, &[]);
    assert!(removed.unwrap_err().to_string().contains("no such memory region"));
    assert!(a.port.is_up());
}
