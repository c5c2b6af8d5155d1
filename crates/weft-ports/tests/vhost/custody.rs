//! Tests of the place where a frame is kept until it is acknowledged (BIFROST, 4.4 and 7.4).

use weft_ports::{Custody, HEAD_LEN, Port, PortError};
use weft_units::{Duration, Seed};
use weft_vpc::{Reading, Token};

use crate::common::front_end::{SENDS, USUAL};
use crate::common::guest::Guest;
use crate::{Tenant, frame, millis, tenant};

const LEN: usize = 3_000;

/// Sends a frame and takes it.
fn sent(a: &mut Tenant, seed: u64) -> (Token, Vec<u8>) {
    let bytes = frame(&mut Seed(seed).rng(), LEN);
    assert!(a.guest.send(&bytes));
    let sent = a.port.take(millis(0)).unwrap().unwrap();
    assert_eq!(sent.len as usize, LEN);
    (sent.token, bytes)
}

fn read(a: &mut Tenant, token: Token, reading: Reading) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    // Read in pieces, as for transmitted packets.
    for (at, piece) in bytes.chunks_mut(1_400).enumerate() {
        let offset = u32::try_from(at * 1_400).unwrap();
        a.port.read(token, offset, piece, reading).unwrap();
    }
    bytes
}

#[test]
fn a_buffer_is_returned_when_its_frame_is_acknowledged_and_not_before() {
    let mut a = tenant("held", 64, USUAL, 1_536);
    let (token, bytes) = sent(&mut a, 1);
    assert!(read(&mut a, token, Reading::First) == bytes);
    a.port.flush().unwrap();
    assert_eq!(a.guest.front.returned(SENDS), []);
    a.port.release(token);
    assert_eq!(a.guest.front.returned(SENDS), [], "shown before the flush");
    a.port.flush().unwrap();
    assert_eq!(a.guest.reap(), 1);
    assert_eq!(a.guest.front.interrupts(SENDS), 1);
    assert!(matches!(a.port.read(token, 0, &mut [0], Reading::First), Err(PortError::Unknown)));
}

#[test]
fn a_guest_that_keeps_its_buffers_is_trusted_after_the_first_retransmission() {
    let mut a = tenant("trusted", 64, USUAL, 1_536);
    let (token, bytes) = sent(&mut a, 1);
    assert_eq!(
        (read(&mut a, token, Reading::First), a.port.custody()),
        (bytes.clone(), Custody::Probation)
    );
    assert_eq!(
        (read(&mut a, token, Reading::Retransmission), a.port.custody()),
        (bytes, Custody::Guest)
    );
    // Nothing is copied any more: reads return the bytes in the guest's buffer.
    let (token, mut bytes) = sent(&mut a, 2);
    let slot = 1;
    assert!(a.guest.front.read(Guest::send_buffer(slot), LEN) == bytes);
    a.guest.front.write(Guest::send_buffer(slot) + 2_000, b"changed");
    bytes[2_000..2_007].copy_from_slice(b"changed");
    assert!(read(&mut a, token, Reading::Retransmission) == bytes);
    // The head that the switch checked does not change.
    a.guest.front.write(Guest::send_buffer(slot), &[0xff; HEAD_LEN as usize]);
    assert!(read(&mut a, token, Reading::Retransmission) == bytes);
}

#[test]
fn a_guest_that_uses_buffers_early_is_detected_and_its_frames_stay_whole() {
    let mut a = tenant("early", 64, USUAL, 1_536);
    let (first, bytes) = sent(&mut a, 1);
    let (second, others) = sent(&mut a, 2);
    assert!(read(&mut a, first, Reading::First) == bytes);
    // A driver that reuses its buffers before they return.
    a.guest.front.write(Guest::send_buffer(0) + 1_000, b"another frame");
    assert!(read(&mut a, first, Reading::Retransmission) == bytes);
    assert_eq!((a.port.custody(), a.port.counters().recycled_early), (Custody::Copies, 1));
    assert!(read(&mut a, second, Reading::Retransmission) == others);
    // Its buffers return at once, now and for each later frame.
    a.port.flush().unwrap();
    assert_eq!(a.guest.reap(), 2);
    let (third, bytes) = sent(&mut a, 3);
    a.port.flush().unwrap();
    assert_eq!(a.guest.reap(), 1);
    a.guest.front.write(Guest::send_buffer(1), &[0xff; LEN]);
    assert!(read(&mut a, third, Reading::Retransmission) == bytes);
}

#[test]
fn after_three_timeouts_the_guest_has_its_buffer_and_the_frame_is_a_copy() {
    let mut a = tenant("overdue", 64, USUAL, 1_536);
    let (token, _) = sent(&mut a, 1);
    read(&mut a, token, Reading::Retransmission);
    a.port.release(token);
    let (late, bytes) = sent(&mut a, 2);
    let after = Duration::from_millis(28);
    assert_eq!(a.port.release_overdue(millis(27), after), 0);
    assert_eq!(a.port.release_overdue(millis(28), after), 1);
    assert_eq!(a.port.release_overdue(millis(29), after), 0);
    assert_eq!((a.guest.reap(), a.port.counters().overdue), (2, 1));
    a.guest.front.write(Guest::send_buffer(0), &[0xff; LEN]);
    a.guest.front.write(Guest::send_buffer(1), &[0xff; LEN]);
    assert!(read(&mut a, late, Reading::Retransmission) == bytes);
    a.port.release(late);
    a.port.flush().unwrap();
    assert_eq!((a.guest.front.returned(SENDS), a.port.holdings().taken), (vec![], 0));
}

#[test]
fn no_more_than_the_window_is_taken_and_room_wakes_the_thread() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let readable = |a: &Tenant| {
        let mut fds = [PollFd::from_borrowed_fd(a.port.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    let mut a = tenant("window", 4_096, USUAL, 1_536);
    // The test's guest has 256 buffers, so the window is shorter here than the usual 512.
    let config =
        weft_ports::VhostConfig { window: 100, ..weft_ports::VhostConfig::at(&a.socket.0) };
    drop(a.port);
    a.port = weft_ports::VhostPort::open(&config).unwrap();
    a.guest = Guest::start(&mut a.port, &a.socket.0, 4_096, USUAL, 1_536);
    while a.guest.send(&frame(&mut Seed(1).rng(), 100)) {}
    let mut taken = vec![];
    while let Some(sent) = a.port.take(millis(0)).unwrap() {
        taken.push(sent.token);
    }
    assert_eq!(taken.len(), 100);
    a.port.service(millis(0)).unwrap();
    assert!(!readable(&a));
    a.port.release(taken[50]);
    assert!(readable(&a));
    a.port.service(millis(0)).unwrap();
    assert!(a.port.take(millis(0)).unwrap().is_some());
    assert!(a.port.take(millis(0)).unwrap().is_none());
}
