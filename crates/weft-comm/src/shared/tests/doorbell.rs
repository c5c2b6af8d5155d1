//! The wake-ups of a rank that sleeps, over one pair of ranks.

use rustix::event::{PollFd, PollFlags};
use weft_units::{Duration, Instant};

use super::{SLOTS, pair};
use crate::rendezvous::now;
use crate::shared::{Received, Shared};
use crate::wait::wait;

/// Returns `true` if a rank was woken within `timeout`.
fn is_woken(rank: &Shared, timeout: Duration) -> bool {
    let mut descriptors = [PollFd::from_borrowed_fd(rank.descriptor(), PollFlags::IN)];
    wait(&mut descriptors, timeout);
    !descriptors[0].revents().is_empty()
}

/// Takes the next message, and releases its slot.
fn receive(rank: &mut Shared, from: usize) -> bool {
    let Some(received) = rank.receive(from, now()) else { return false };
    if let Received::Slot(slot) = received {
        rank.release(&slot);
    }
    true
}

#[test]
fn only_a_rank_that_sleeps_is_woken_and_only_once() {
    let [mut one, mut other] = pair(None);
    assert!(one.send(1, now(), b"awake", b""));
    assert!(!is_woken(&other, Duration::ZERO), "an awake rank costs no system call");
    assert_eq!(other.arm(now()), None, "there is a message");
    assert!(receive(&mut other, 0));
    other.disarm();
    assert_eq!(other.arm(now()), Some(Duration::MAX));
    assert!(one.send(1, now(), b"first", b"") && one.send(1, now(), b"second", b""));
    assert!(is_woken(&other, Duration::ZERO));
    let mut bytes = [0; 64];
    assert_eq!(
        rustix::io::read(other.descriptor(), &mut bytes),
        Ok(1),
        "one byte for two messages"
    );
    other.disarm();
    // Its slots are free again, which its sender, asleep, does not wait for.
    assert_eq!(one.arm(now()), Some(Duration::MAX));
    assert!(receive(&mut other, 0) && receive(&mut other, 0));
    assert!(!is_woken(&one, Duration::ZERO));
}

#[test]
fn a_rank_that_found_no_room_is_woken_when_a_slot_is_free() {
    let [mut one, mut other] = pair(None);
    while one.send(1, now(), b"", &[1; 100]) {}
    assert_eq!(one.arm(now()), Some(Duration::MAX));
    assert!(receive(&mut other, 0));
    assert!(is_woken(&one, Duration::ZERO));
    one.disarm();
    assert_eq!(one.arm(now()), None, "there is room");
    one.disarm();
    assert_eq!(one.arm(now()), Some(Duration::MAX), "room that nobody used is reported once");
    one.disarm();
    // Copies free their slots too.
    while one.send(1, now(), b"", &[1; 100]) {}
    let held: Vec<Received> = core::iter::from_fn(|| other.receive(0, now())).collect();
    assert_eq!(held.len(), SLOTS);
    assert_eq!(one.arm(now()), None);
}

#[test]
fn a_sleep_ends_when_an_emulated_link_has_carried_a_message() {
    let [mut one, mut other] = pair(Some(1_000_000));
    let start = Instant::from_nanos(5_000_000);
    assert!(one.send(1, start, &[0; 3], &[7; 497]));
    assert_eq!(other.arm(start), Some(Duration::from_micros(500)));
    assert_eq!(other.arm(start + Duration::from_micros(500)), None);
}

/// Two threads in turn, each of which sleeps until the other wakes it: a lost wake-up lasts as long as the limit.
#[test]
fn no_wake_up_is_lost_between_two_that_sleep() {
    const ROUNDS: usize = 5_000;
    const LIMIT: Duration = Duration::from_secs(20);
    let serve = |mut own: Shared, other: usize, begins: bool| {
        if begins {
            assert!(own.send(other, now(), b"0", b""));
        }
        for round in 0..ROUNDS {
            while !receive(&mut own, other) {
                let asleep = own.arm(now()).is_some();
                assert!(
                    !asleep || is_woken(&own, LIMIT),
                    "asleep beside a message in round {round}"
                );
                own.disarm();
            }
            assert!(own.send(other, now(), b"next", b""));
        }
    };
    let [one, other] = pair(None);
    let thread = std::thread::spawn(move || serve(other, 0, false));
    serve(one, 1, true);
    thread.join().unwrap();
}
