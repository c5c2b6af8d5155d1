//! Tests of in-place guest reordering (BIFROST, 4.2, figure 12), and of exhausted guest buffers.

use weft_ports::{HEAD_LEN, Port};
use weft_units::Seed;
use weft_vpc::{Staging, Turn};

use crate::common::front_end::{RECEIVES, USUAL, bit};
use crate::{frame, millis, sent_part, tenant};

#[test]
fn packets_are_placed_as_they_arrive_and_shown_in_order_with_one_interrupt() {
    let mut b = tenant("figure12", 8, USUAL & !bit::EVENT_IDX, 1_536);
    let mut rng = Seed(1).rng();
    let frames: Vec<_> = (0..3).map(|_| frame(&mut rng, 200)).collect();
    // The frames arrive in the order 3, 1, 2, which take descriptors 0, 1, 2.
    let [third, first, second] = [2, 0, 1].map(|at: usize| {
        let slot = b.port.claim(200, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
        b.port.place(slot, 100, &frames[at][100..]).unwrap();
        b.port.place(slot, 0, &frames[at][..100]).unwrap();
        slot
    });
    let mut peeked = [0; HEAD_LEN as usize];
    assert_eq!(b.port.peek(first, &mut peeked), 200);
    assert_eq!(peeked[..200], frames[0]);
    for slot in [first, second, third] {
        b.port.complete(slot);
        assert_eq!(
            (b.guest.front.returned(RECEIVES), b.guest.front.interrupts(RECEIVES)),
            (vec![], 0)
        );
    }
    b.port.flush().unwrap();
    assert_eq!(b.guest.front.interrupts(RECEIVES), 1);
    assert_eq!(b.guest.front.returned(RECEIVES), [(1, 200), (2, 200), (0, 200)]);
    b.port.flush().unwrap();
    assert_eq!(b.guest.front.interrupts(RECEIVES), 0);
}

#[test]
fn with_event_idx_the_guest_selects_the_buffer_after_which_it_wants_an_interrupt() {
    let mut b = tenant("event-idx", 8, USUAL, 1_536);
    b.guest.front.request_interrupt(RECEIVES, 2);
    let mut interrupts = vec![];
    for _ in 0..4 {
        let slot = b.port.claim(64, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
        b.port.place(slot, 0, &frame(&mut Seed(1).rng(), 64)).unwrap();
        b.port.complete(slot);
        b.port.flush().unwrap();
        interrupts.push(b.guest.front.interrupts(RECEIVES));
    }
    // An interrupt when the third buffer is used (virtio 1.2, 2.7.7.2 and 2.8.10).
    assert_eq!(interrupts, [0, 0, 1, 0]);
}

#[test]
fn a_cancelled_buffer_is_used_for_the_next_frame() {
    let mut b = tenant("cancel", 8, USUAL, 1_536);
    let dropped = b.port.claim(4_000, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
    b.port.cancel(dropped);
    let slot = b.port.claim(1_000, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
    let sent = frame(&mut Seed(1).rng(), 1_000);
    b.port.place(slot, 0, &sent).unwrap();
    b.port.complete(slot);
    let slot = b.port.claim(2_000, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
    b.port.complete(slot);
    b.port.flush().unwrap();
    let returned = b.guest.front.returned(RECEIVES);
    assert_eq!(returned, [(0, 1_000), (1, 1_536), (2, 464)]);
}

#[test]
fn the_frame_that_all_others_wait_for_gets_a_buffer_although_they_hold_all() {
    let mut b = tenant("hold-all", 16, USUAL, 1_536);
    let mut rng = Seed(1).rng();
    let frames: Vec<_> = (0..17).map(|_| frame(&mut rng, 1_500)).collect();
    // The first frame is late; the others fill the ring.
    let early: Vec<_> = frames[1..]
        .iter()
        .map(|frame| (b.port.claim(1_500, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap(), frame))
        .collect();
    for &(slot, frame) in &early {
        b.port.place(slot, 0, frame).unwrap();
    }
    let first = b.port.claim(1_500, Turn::Next, Staging::InPlace, &[]).unwrap();
    b.port.place(first, 0, &frames[0]).unwrap();
    b.port.complete(first);
    early.iter().for_each(|&(slot, _)| b.port.complete(slot));
    b.port.flush().unwrap();
    b.guest.receive();
    assert_eq!(b.guest.received.len(), 16);
    // The evicted frame waits for buffers, which the guest has made available again.
    b.port.service(millis(1)).unwrap();
    b.guest.receive();
    let received: Vec<_> = b.guest.received.iter().map(|frame| sent_part(frame)).collect();
    let sent: Vec<_> = frames.iter().map(|frame| &frame[12..]).collect();
    assert_eq!(received, sent);
    assert_eq!(b.port.holdings().claimed_memory, 0);
}

#[test]
fn a_slow_guest_makes_the_sender_wait_and_costs_no_memory() {
    let mut b = tenant("slow", 4, USUAL, 1_536);
    for _ in 0..4 {
        let slot = b.port.claim(1_500, Turn::Next, Staging::InPlace, &[]).unwrap();
        b.port.place(slot, 0, &frame(&mut Seed(1).rng(), 1_500)).unwrap();
        b.port.complete(slot);
        b.port.flush().unwrap();
    }
    let mut gathered = 0;
    for _ in 0..100 {
        // One frame may wait in the port; the others wait at their sender.
        if let Some(slot) = b.port.claim(1_500, Turn::Next, Staging::InPlace, &[]) {
            b.port.complete(slot);
            gathered += 1;
        }
        assert_eq!(b.port.claim(1_500, Turn::OutOfOrder, Staging::InPlace, &[]), None);
        b.port.flush().unwrap();
    }
    assert_eq!(gathered, 1);
    assert!(b.port.holdings().claimed_memory <= 4_096);
}
