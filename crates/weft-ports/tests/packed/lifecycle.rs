//! Front ends with packed rings that restart, and processes of the port that replace each other.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use weft_ports::{Port, Position, VhostConfig, VhostPort};
use weft_units::Seed;
use weft_vpc::{Reading, Staging, Turn};

use crate::common::front_end::{FrontEnd, RECEIVES, SENDS, USUAL, request};
use crate::{FORMAT, Tenant, frame, millis, sent_part, tenant};

/// Carries one frame in each direction.
fn carries(a: &mut Tenant, seed: u64) {
    let bytes = frame(&mut Seed(seed).rng(), 700);
    assert!(a.guest.send(&bytes), "no buffer came back");
    let sent = a.port.take(millis(1)).unwrap().expect("it was sent");
    let mut read = vec![0; 700];
    a.port.read(sent.token, 0, &mut read, Reading::First).unwrap();
    assert_eq!(read, bytes);
    a.port.release(sent.token);
    let slot = a.port.claim(700, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
    a.port.place(slot, 0, &bytes).unwrap();
    a.port.complete(slot);
    a.port.flush().unwrap();
    a.guest.receive();
    assert_eq!(sent_part(&a.guest.received.pop().unwrap()), &bytes[12..]);
}

#[test]
fn a_ring_goes_on_lap_after_lap() {
    // A size that is no power of two, which packed rings may have.
    let mut a = tenant("packed-laps", 24, USUAL, 1_536);
    (0..200).for_each(|seed| carries(&mut a, seed));
    assert_eq!(a.port.holdings().taken, 0);
}

#[test]
fn the_base_of_a_stopped_ring_has_both_positions_and_starts_it_again() {
    let mut a = tenant("packed-base", 24, USUAL, 1_536);
    (0..40).for_each(|seed| carries(&mut a, seed));
    let expected = a.guest.front.queues[SENDS].packed.next;
    assert_ne!(expected, Position::START);
    let body = [1_u32, 0].map(u32::to_ne_bytes).concat();
    let answer = a.guest.front.ask(&mut a.port, request::GET_VRING_BASE, &body) >> 32;
    assert_eq!(answer, u64::from(expected.bits()) * 0x10001);
    assert!(!a.port.is_up());
    a.guest.front.start_queue(&mut a.port, SENDS);
    (0..40).for_each(|seed| carries(&mut a, seed));
}

/// Buffers that the port holds when the ring's memory goes reach the driver when the memory is back.
#[test]
fn a_ring_whose_memory_went_and_came_back_goes_on_with_every_buffer() {
    let mut a = tenant("packed-memory", 24, USUAL, 1_536);
    for round in 0..20 {
        carries(&mut a, round);
        let mut tokens = vec![];
        for seed in 0..3 {
            assert!(a.guest.send(&frame(&mut Seed(seed).rng(), 500)));
            tokens.push(a.port.take(millis(0)).unwrap().unwrap().token);
        }
        let slot = a.port.claim(700, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
        a.port.release(tokens.remove(1));
        let other = File::from(memfd_create("other", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&other, 4_096).unwrap();
        let table = [1, 1 << 40, 4_096, 1 << 40, 0].map(u64::to_ne_bytes).concat();
        a.guest.front.send_request(&mut a.port, request::SET_MEM_TABLE, &table, &[other.as_fd()]);
        assert!(!a.port.is_up());
        a.guest.front.share_memory(&mut a.port);
        assert!(a.port.is_up());
        a.port.flush().unwrap();
        assert_eq!(a.guest.reap(), 3);
        tokens.into_iter().for_each(|token| a.port.release(token));
        a.port.cancel(slot);
        a.guest.receive();
    }
    carries(&mut a, 99);
}

/// The front end of a process that is gone does not know how far it came: QEMU sets the base with which it had started
/// the ring.
#[test]
fn an_upgrade_finds_every_buffer_with_its_guest_and_goes_on_where_the_port_was() {
    let mut a = tenant("packed-upgrade", 64, USUAL, 1_536);
    for round in 0..4 {
        (0..=round * 16).for_each(|seed| carries(&mut a, seed));
        let mut rng = Seed(1).rng();
        let mut tokens = vec![];
        for _ in 0..10 {
            assert!(a.guest.send(&frame(&mut rng, 500)));
            tokens.push(a.port.take(millis(0)).unwrap().unwrap().token);
        }
        [7, 3, 5].into_iter().for_each(|at: usize| a.port.release(tokens[at]));
        let _claimed = a.port.claim(1_000, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
        drop(a.port);
        assert_eq!(a.guest.reap(), 10);
        a.guest.receive();
        a.port = VhostPort::open(&VhostConfig::at(&a.socket.0)).unwrap();
        let mut front = FrontEnd::connect(&a.socket.0, 64, USUAL | FORMAT);
        front.negotiate(&mut a.port);
        std::mem::swap(&mut front.memory, &mut a.guest.front.memory);
        std::mem::swap(&mut front.file, &mut a.guest.front.file);
        front.share_memory(&mut a.port);
        // `start_queue` sets the base of a new ring here.
        for queue in [RECEIVES, SENDS] {
            front.start_queue(&mut a.port, queue);
            std::mem::swap(
                &mut front.queues[queue].packed,
                &mut a.guest.front.queues[queue].packed,
            );
        }
        a.guest.front = front;
        carries(&mut a, 5);
    }
}
