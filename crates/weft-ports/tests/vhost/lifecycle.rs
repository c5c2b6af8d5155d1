//! Tests of front ends that connect, disconnect, restart, grow, and set up queues in an unusual order.

use std::os::fd::AsFd;

use weft_ports::{Port, Role, VhostConfig, VhostPort};
use weft_units::{Instant, Seed};
use weft_vpc::{Reading, Staging, Turn};

use crate::common::front_end::{FrontEnd, MEMORY, RECEIVES, SENDS, USUAL, bit, request};
use crate::common::guest::{Guest, Socket};
use crate::{frame, millis, sent_part, tenant};

#[test]
fn queues_may_be_enabled_before_anything_was_agreed_as_qemu_7_2_does() {
    let socket = Socket::new("qemu72");
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap();
    let mut front = FrontEnd::connect(&socket.0, 256, USUAL);
    for queue in [0_u32, 1] {
        let state = [queue, 1].map(u32::to_ne_bytes).concat();
        front.send_request(&mut port, request::SET_VRING_ENABLE, &state, &[]);
    }
    front.negotiate(&mut port);
    front.share_memory(&mut port);
    (0..2).for_each(|queue| front.start_queue(&mut port, queue));
    assert!(port.is_up());
}

#[test]
fn a_guest_that_restarts_in_the_middle_loses_nothing_that_was_on_its_way() {
    let mut a = tenant("restart", 64, USUAL, 1_536);
    let mut rng = Seed(1).rng();
    let [out, inward, unfinished] = [(); 3].map(|()| frame(&mut rng, 1_000));
    assert!(a.guest.send(&out));
    let sent = a.port.take(millis(0)).unwrap().unwrap();
    let [whole, half] =
        [(); 2].map(|()| a.port.claim(1_000, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap());
    a.port.place(whole, 0, &inward).unwrap();
    a.port.place(half, 0, &unfinished[..500]).unwrap();
    a.port.complete(whole);

    // The driver resets the device: all buffers return, written or not.
    let front = &mut a.guest.front;
    for queue in [0_u32, 1] {
        let body = [queue, 0].map(u32::to_ne_bytes).concat();
        let base = front.ask(&mut a.port, request::GET_VRING_BASE, &body) >> 32;
        let offered = u64::from(front.queues[queue as usize].next_offer);
        // Two of 64 receive buffers were taken, and the only send buffer.
        assert_eq!((base, offered), if queue == 0 { (2, 64) } else { (1, 1) });
    }
    assert_eq!(front.returned(SENDS).len(), 1);
    let mut unwritten = front.returned(RECEIVES);
    unwritten.sort_unstable();
    assert_eq!(unwritten, [(0, 0), (1, 0)]);
    assert!(!a.port.is_up());
    assert_eq!(a.port.claim(100, Turn::OutOfOrder, Staging::InPlace, &[]), None);
    // The sent frame is read from a copy now, whatever happens to the guest's memory.
    a.guest.front.write(Guest::send_buffer(0), &[0; 1_000]);
    let mut bytes = vec![0; 1_000];
    a.port.read(sent.token, 0, &mut bytes, Reading::Retransmission).unwrap();
    assert_eq!(bytes, out);
    a.port.release(sent.token);

    // A new driver, perhaps with other features; then the rest of the frame arrives.
    drop(a.guest);
    let _ = a.port.service(millis(1)).unwrap_err();
    a.guest = Guest::start(&mut a.port, &a.socket.0, 64, USUAL & !bit::MRG_RXBUF, 2_048);
    a.port.place(half, 500, &unfinished[500..]).unwrap();
    a.port.complete(half);
    a.port.flush().unwrap();
    a.guest.receive();
    let received: Vec<_> = a.guest.received.iter().map(|frame| sent_part(frame)).collect();
    assert_eq!(received, [&inward[12..], &unfinished[12..]]);
    assert_eq!(a.port.holdings().claimed_memory, 0);
}

#[test]
fn an_upgrade_finds_every_buffer_with_its_guest() {
    let mut a = tenant("upgrade", 64, USUAL, 1_536);
    let mut rng = Seed(1).rng();
    let mut tokens = vec![];
    for _ in 0..10 {
        assert!(a.guest.send(&frame(&mut rng, 500)));
        tokens.push(a.port.take(millis(0)).unwrap().unwrap().token);
    }
    // They are acknowledged out of order, so that the used ring alone does not show which are missing.
    [7, 3, 5].into_iter().for_each(|at: usize| a.port.release(tokens[at]));
    let _claimed = a.port.claim(1_000, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
    drop(a.port);
    assert_eq!(a.guest.reap(), 10);
    let used = u16::try_from(a.guest.front.returned(RECEIVES).len()).unwrap();
    // A new process; the front end's queues continue at their used indices.
    a.port = VhostPort::open(&VhostConfig::at(&a.socket.0)).unwrap();
    let mut front = FrontEnd::connect(&a.socket.0, 64, USUAL);
    std::mem::swap(&mut front.memory, &mut a.guest.front.memory);
    std::mem::swap(&mut front.file, &mut a.guest.front.file);
    front.negotiate(&mut a.port);
    front.share_memory(&mut a.port);
    (front.queues[RECEIVES].next_offer, front.queues[SENDS].next_offer) = (used, 10);
    (0..2).for_each(|queue| front.start_queue(&mut a.port, queue));
    (front.queues[RECEIVES].next_offer, front.queues[RECEIVES].next_used) = (64, used);
    front.queues[SENDS].next_used = 10;
    a.guest.front = front;
    let bytes = frame(&mut rng, 700);
    assert!(a.guest.send(&bytes));
    let sent = a.port.take(millis(1)).unwrap().unwrap();
    let mut read = vec![0; 700];
    a.port.read(sent.token, 0, &mut read, Reading::First).unwrap();
    assert_eq!(read, bytes);
    let slot = a.port.claim(700, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
    a.port.place(slot, 0, &bytes).unwrap();
    a.port.complete(slot);
    a.port.flush().unwrap();
    a.guest.receive();
    assert_eq!(sent_part(&a.guest.received[0]), &bytes[12..]);
}

#[test]
fn the_port_may_be_the_side_that_connects_and_reconnects() {
    let socket = Socket::new("client");
    let config = VhostConfig { role: Role::Connect, ..VhostConfig::at(&socket.0) };
    let mut port = VhostPort::open(&config).unwrap();
    // There is no front end, which is no error.
    port.service(Instant::EPOCH).unwrap();
    for _ in 0..2 {
        let listener = std::os::unix::net::UnixListener::bind(&socket.0).unwrap();
        port.service(Instant::EPOCH).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let placeholder =
            std::os::unix::net::UnixListener::bind(socket.0.with_extension("x")).unwrap();
        let mut front = FrontEnd::connect(&socket.0.with_extension("x"), 64, USUAL);
        front.stream = stream;
        drop(placeholder);
        std::fs::remove_file(socket.0.with_extension("x")).unwrap();
        front.negotiate(&mut port);
        front.share_memory(&mut port);
        (0..2).for_each(|queue| front.start_queue(&mut port, queue));
        assert!(port.is_up());
        drop(front);
        let report = port.service(Instant::EPOCH).unwrap_err().to_string();
        assert!(report.contains("is gone") && !port.is_up(), "{report}");
        std::fs::remove_file(&socket.0).unwrap();
    }
}

#[test]
fn a_socket_that_was_left_behind_is_replaced_and_one_in_use_is_not() {
    let socket = Socket::new("stale");
    drop(std::os::unix::net::UnixListener::bind(&socket.0).unwrap());
    let port = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap();
    let message = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap_err().to_string();
    assert!(message.contains("in use"), "{message}");
    drop(port);
    assert!(!socket.0.exists());
}

#[test]
fn memory_that_is_added_and_taken_away_while_the_guest_runs() {
    const ADDED: u64 = 4 << 30;
    let mut a = tenant("hotplug", 64, USUAL, 1_536);
    let region = [0, ADDED, MEMORY, 0x6f00_0000_0000, 0].map(u64::to_ne_bytes).concat();
    let more = std::fs::File::from(
        rustix::fs::memfd_create("more", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
    );
    rustix::fs::ftruncate(&more, MEMORY).unwrap();
    let table = a.guest.front.queues[SENDS].table;
    let offer_from = |a: &mut crate::Tenant, head| {
        a.guest.front.describe(table, head, (ADDED + 5_000, 500, 0, 0));
        a.guest.front.offer(SENDS, head);
        a.port.take(millis(0))
    };
    a.guest.front.send_request(&mut a.port, request::ADD_MEM_REG, &region, &[more.as_fd()]);
    let sent = offer_from(&mut a, 0).unwrap().unwrap();
    a.guest.front.send_request(&mut a.port, request::REM_MEM_REG, &region, &[]);
    // Frames in probation have a copy; without it the bytes would be zero and the read an error.
    let mut bytes = vec![1; 500];
    a.port.read(sent.token, 0, &mut bytes, Reading::First).unwrap();
    let refused = offer_from(&mut a, 1).unwrap_err().to_string();
    assert!(refused.contains("not memory of the guest's"), "{refused}");
    assert!(a.guest.front.is_broken(SENDS) && !a.guest.front.is_broken(RECEIVES));
}
