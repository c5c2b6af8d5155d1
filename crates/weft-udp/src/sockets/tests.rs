use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Clock;

use super::outbox::{self, Group};
use super::{Inbox, Instruction, Senders, SocketConfig, Sockets, syscall};

const LOCAL: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn open(local: &str) -> Sockets {
    Sockets::open(&SocketConfig::new(local.parse().unwrap(), 2)).unwrap()
}

/// Waits for packets, at most five seconds, and receives them; returns the number of messages.
fn arrivals(inbox: &mut Inbox) -> usize {
    let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
    {
        let mut watched = [PollFd::from_borrowed_fd(inbox.socket(), PollFlags::IN)];
        assert_eq!(poll(&mut watched, Some(&timeout)), Ok(1), "nothing arrived");
    }
    inbox.receive().unwrap()
}

/// Receives until `count` datagrams have arrived; returns the source port and contents of each.
fn collect(inbox: &mut Inbox, count: usize) -> Vec<(u16, Vec<u8>)> {
    let mut collected = Vec::new();
    while collected.len() < count {
        for index in 0..arrivals(inbox) {
            let received = inbox.message(index);
            let port = received.from.port();
            collected.extend(received.datagrams().map(|bytes| (port, bytes.to_vec())));
        }
    }
    collected
}

/// Adds datagrams of 1400 bytes, each filled with its number, the last one shorter; returns their contents.
fn push_numbered(sockets: &mut Sockets, to: SocketAddr, path: u16, count: u8) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let size = if number + 1 == count { 100 } else { 1400 };
            sockets.outbox.push(&to, path, size, |out| out.fill(number));
            vec![number; size.into()]
        })
        .collect()
}

#[test]
fn datagrams_of_a_path_are_sent_in_one_call_in_order_from_its_own_port() {
    for local in LOCAL {
        let (mut sender, mut receiver) = (open(local), open(local));
        let to = receiver.local();
        let sent: Vec<_> = [0, 1].map(|path| push_numbered(&mut sender, to, path, 30)).into();
        sender.outbox.flush();
        assert_eq!(sender.outbox.waiting(), 0);
        let calls = sender.outbox.counters();
        assert_eq!((calls.calls, calls.messages), (2, 2), "{local}: one per path");
        let arrived = collect(&mut receiver.inbox, 60);
        for (path, port) in sender.outbox.source_ports().unwrap().into_iter().enumerate() {
            let of_path = arrived.iter().filter(|(from, _)| *from == port);
            let of_path: Vec<_> = of_path.map(|(_, bytes)| bytes.clone()).collect();
            assert_eq!(of_path, sent[path], "{local}: path {path}");
        }
    }
}

#[test]
fn more_datagrams_than_one_message_holds_arrive_in_order() {
    let (mut sender, mut receiver) = (open(LOCAL[0]), open(LOCAL[0]));
    let to = receiver.local();
    let sent = push_numbered(&mut sender, to, 0, 150);
    sender.outbox.flush();
    let arrived: Vec<_> =
        collect(&mut receiver.inbox, 150).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(arrived, sent);
}

#[test]
fn a_congestion_mark_and_its_absence_are_reported() {
    let mut sender =
        Sockets::open_marking(&SocketConfig::new(LOCAL[0].parse().unwrap(), 2)).unwrap();
    let mut receiver = open(LOCAL[0]);
    let to = receiver.local();
    for (path, marked) in [(0, false), (1, true), (0, false)] {
        sender.outbox.push(&to, path, 64, |out| out.fill(7));
        sender.outbox.flush();
        assert_eq!(arrivals(&mut receiver.inbox), 1);
        let received = receiver.inbox.message(0);
        assert_eq!(received.congestion_experienced, marked);
        assert_eq!(received.hops, 0, "loopback takes no hop");
    }
}

#[test]
fn datagrams_have_the_dscp_of_their_class_and_are_ecn_capable() {
    for local in LOCAL {
        let (mut sender, mut receiver) = (open(local), open(local));
        let to = receiver.local();
        // Neighbours of one class are one message for the kernel, which another class ends.
        for (class, expected) in [(0, 0x02), (0x68, 0x6a), (0x6b, 0x6a), (0x20, 0x22), (0x03, 0x02)]
        {
            for _ in 0..2 {
                sender.outbox.push_classed(&to, 0, class, 64, |out| out.fill(class));
            }
            sender.outbox.flush();
            let mut datagrams = 0;
            while datagrams < 2 {
                for index in 0..arrivals(&mut receiver.inbox) {
                    let (meta, bytes) = receiver.inbox.receiver.message(index);
                    assert_eq!(meta.traffic_class, expected, "{local}, class {class:#x}");
                    assert!(bytes.iter().all(|&byte| byte == class), "{local}: {bytes:?}");
                    datagrams += bytes.len() / 64;
                }
            }
        }
        (0..2).for_each(|_| sender.outbox.push_classed(&to, 0, 0x68, 64, |_| {}));
        (0..2).for_each(|_| sender.outbox.push_classed(&to, 0, 0x20, 64, |_| {}));
        sender.outbox.flush();
        assert_eq!(collect(&mut receiver.inbox, 4).len(), 4);
        assert_eq!(sender.outbox.counters().messages, 7, "{local}: one for each class");
    }
}

#[test]
fn processes_of_a_user_send_from_one_chosen_port() {
    let config = SocketConfig::new(LOCAL[0].parse().unwrap(), 2);
    let [mut first, mut second] = [0, 1].map(|_| Senders::open(&config).unwrap());
    // A port that is free now.
    let port = open(LOCAL[0]).outbox.source_ports().unwrap()[0];
    let mut receiver = open(LOCAL[0]);
    let to = receiver.local();
    for senders in [&mut first, &mut second] {
        assert_eq!(senders.open_source(&config, port, None).unwrap(), 2);
        assert_eq!(senders.open_source(&config, port, None).unwrap(), 2, "it has it already");
        senders.outbox.push(&to, 2, 9, |out| out.fill(1));
        senders.outbox.flush();
        assert_eq!(collect(&mut receiver.inbox, 1)[0].0, port);
    }
    // A socket that does not share its port keeps it.
    let taken = receiver.local().port();
    assert!(first.open_source(&config, taken, None).is_err());
    let other = open(LOCAL[0]).outbox.source_ports().unwrap()[1];
    assert_eq!(first.open_source(&config, other, Some(2)).unwrap(), 2);
    assert_eq!(first.outbox.source_ports().unwrap()[2..], [other]);
}

#[test]
fn the_kernels_time_of_arrival_lies_between_sending_and_reading() {
    let mut sender = open(LOCAL[0]);
    let mut receiver = Sockets::open(&SocketConfig {
        kernel_timestamps: true,
        ..SocketConfig::new(LOCAL[0].parse().unwrap(), 1)
    })
    .unwrap();
    let to = receiver.local();
    // The kernel begins to stamp packets only some time after the first socket has requested it.
    for _ in 0..1_000 {
        let sent_at = Clock.now();
        sender.outbox.push(&to, 0, 64, |out| out.fill(7));
        sender.outbox.flush();
        assert_eq!(arrivals(&mut receiver.inbox), 1);
        let (read_at, lead) = (Clock.now(), Clock.wall_clock_lead());
        let received_at = receiver.inbox.message(0).received_at(read_at, lead);
        assert!(received_at <= read_at);
        if sent_at < received_at && received_at < read_at {
            return;
        }
    }
    panic!("no packet was stamped by the kernel");
}

/// Has the kernel refuse to segment: each segment needs a checksum, and with checksums off Linux refuses `UDP_SEGMENT`.
fn refuse_segmentation(sender: &Sockets) {
    for socket in &sender.outbox.sockets {
        syscall::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    }
}

#[test]
fn datagrams_are_sent_one_by_one_if_the_kernel_refuses_to_segment() {
    let (mut sender, mut receiver) = (open(LOCAL[0]), open(LOCAL[0]));
    refuse_segmentation(&sender);
    let to = receiver.local();
    for _ in 0..2 {
        let sent = push_numbered(&mut sender, to, 0, 20);
        sender.outbox.flush();
        let arrived: Vec<_> =
            collect(&mut receiver.inbox, 20).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(arrived, sent);
    }
    let counters = sender.outbox.counters();
    assert_eq!(counters.offload_refused, 1, "asked once: {counters:?}");
    assert_eq!((counters.refused, counters.too_big), (0, 0));
    assert_eq!(sender.outbox.paths()[0].datagrams, 40);
}

#[test]
fn datagrams_of_a_refused_message_wait_for_room_and_count_as_queued() {
    let (mut sender, mut receiver) = (open(LOCAL[0]), open(LOCAL[0]));
    refuse_segmentation(&sender);
    let to = receiver.local();
    let sent = push_numbered(&mut sender, to, 0, 20);
    let room = Cell::new(7);
    let limited = |socket: BorrowedFd<'_>, groups: &[Group]| match room.get() {
        0 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        most => {
            let accepted = outbox::send_groups(socket, &groups[..most.min(groups.len())])?;
            room.set(most - accepted);
            Ok(accepted)
        }
    };
    sender.outbox.flush_by(limited);
    let counters = sender.outbox.counters();
    assert_eq!((counters.offload_refused, counters.refused, counters.blocked), (1, 0, 1));
    assert_eq!((sender.outbox.waiting(), sender.outbox.paths()[0].datagrams), (13, 7));
    room.set(20);
    sender.outbox.flush_by(limited);
    assert_eq!((sender.outbox.waiting(), sender.outbox.paths()[0].datagrams), (0, 20));
    let arrived: Vec<_> =
        collect(&mut receiver.inbox, 20).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(arrived, sent);
    // Less than half of the queue's first limit is used, so nothing is measured.
    let queued = 19 * 1400 + 100;
    assert_eq!(sender.outbox.room(Clock.now()), (64 << 10) - queued);
}

#[test]
fn datagrams_wait_in_order_while_the_kernel_has_no_room() {
    let (mut sender, mut receiver) = (open(LOCAL[0]), open(LOCAL[0]));
    let to = receiver.local();
    let mut sent = Vec::new();
    // Each datagram is larger than the one before, so that each is a message by itself.
    for number in 0..60_u8 {
        let size = 1000 + u16::from(number);
        sender.outbox.push(&to, 0, size, |out| out.fill(number));
        sent.push(vec![number; size.into()]);
    }
    let room = Cell::new(0);
    let full_at_times = |socket: BorrowedFd<'_>, groups: &[Group]| match room.get() {
        0 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        _ => outbox::send_groups(socket, &groups[..room.replace(0).min(groups.len())]),
    };
    let mut arrived = Vec::new();
    for round in 1.. {
        room.set(7);
        sender.outbox.flush_by(full_at_times);
        assert_eq!(sender.outbox.waiting(), 60_usize.saturating_sub(7 * round));
        if sender.outbox.waiting() == 0 {
            break;
        }
        assert_eq!(sender.outbox.blocked().count(), 1);
        assert_eq!(sender.outbox.counters().blocked, round as u64);
    }
    while arrived.len() < sent.len() {
        arrived.extend(collect(&mut receiver.inbox, 1).into_iter().map(|(_, bytes)| bytes));
    }
    assert_eq!(arrived, sent);
    assert_eq!(sender.outbox.blocked().count(), 0);
}

#[test]
fn a_datagram_above_the_mtu_is_dropped_and_counted() {
    let mut sender = open(LOCAL[1]);
    // Every UDP datagram fits loopback's MTU; a socket with a smaller one set refuses larger datagrams.
    let socket = sender.outbox.sockets[0].as_fd();
    syscall::set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU, 1280).unwrap();
    let to = sender.local();
    sender.outbox.push(&to, 0, 1400, |out| out.fill(1));
    sender.outbox.flush();
    assert_eq!(sender.outbox.waiting(), 0);
    assert_eq!(sender.outbox.counters().too_big, 1, "{:?}", sender.outbox.counters());
}

#[test]
fn the_error_of_a_taken_port_names_its_address() {
    let first = open(LOCAL[0]);
    let error = Sockets::open(&SocketConfig::new(first.local(), 1)).unwrap_err().to_string();
    assert!(error.contains(&first.local().to_string()), "{error}");
}

#[test]
fn a_program_in_the_kernel_steers_datagrams_to_threads() {
    // The first byte is the socket's number: ldb [0]; ret a.
    let by_first_byte = [
        Instruction { code: 0x30, jt: 0, jf: 0, k: 0 },
        Instruction { code: 0x16, jt: 0, jf: 0, k: 0 },
    ];
    for local in LOCAL {
        let config = SocketConfig::new(local.parse().unwrap(), 2);
        let mut threads = Sockets::open_group(&config, 3, &by_first_byte).unwrap();
        let mut sender = open(local);
        let to = threads[0].local();
        for number in [2, 0, 1, 2, 2] {
            // Each is flushed alone: datagrams of one segmented message are steered together.
            sender.outbox.push(&to, 0, 9, |out| out.fill(number));
            sender.outbox.flush();
        }
        for (number, count) in [(0, 1), (1, 1), (2, 3)] {
            let inbox = &mut threads[usize::from(number)].inbox;
            let arrived = collect(inbox, count);
            assert!(arrived.iter().all(|(_, bytes)| *bytes == [number; 9]), "{arrived:?}");
            assert_eq!((arrived.len(), inbox.receive().unwrap()), (count, 0));
        }
        // A datagram whose number no socket has is received by any of them.
        sender.outbox.push(&to, 0, 9, |out| out.fill(9));
        sender.outbox.flush();
        let deadline = Clock.now() + weft_units::Duration::from_secs(5);
        while threads.iter_mut().all(|thread| thread.inbox.receive().unwrap() == 0) {
            assert!(Clock.now() < deadline, "{local}: nobody got it");
        }
        // A path has the same source port in all threads, and a second path has another.
        let ports: Vec<_> =
            threads.iter().map(|thread| thread.outbox.source_ports().unwrap()).collect();
        assert!(ports[0][0] != ports[0][1] && ports.iter().all(|of_thread| *of_thread == ports[0]));
        let mut receiver = open(local);
        let to_receiver = receiver.local();
        for thread in &mut threads {
            thread.outbox.push(&to_receiver, 1, 9, |out| out.fill(0));
            thread.outbox.flush();
        }
        let arrived = collect(&mut receiver.inbox, 3);
        assert_eq!(arrived.len(), 3);
        assert!(arrived.iter().all(|&(port, _)| port == ports[0][1]), "{arrived:?}");
        // No other group can bind the port.
        let taken = SocketConfig { local: to, ..config };
        assert!(Sockets::open_group(&taken, 2, &by_first_byte).is_err());
    }
}

#[test]
fn paths_are_flushed_in_the_order_of_their_first_datagram() {
    let (mut sender, mut receiver) = (open(LOCAL[0]), open(LOCAL[0]));
    let to = receiver.local();
    for (number, path) in (0..).zip([1, 0, 1]) {
        sender.outbox.push(&to, path, 10 + number, |out| out.fill(0));
    }
    sender.outbox.flush();
    let arrived = collect(&mut receiver.inbox, 3);
    assert_eq!(arrived.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [10, 12, 11]);
}

#[test]
fn source_ports_can_be_chosen() {
    let free = open(LOCAL[0]);
    let ports = free.outbox.source_ports().unwrap();
    drop(free);
    let first = ports[0].min(60_000);
    let config = SocketConfig {
        first_source_port: Some(first),
        ..SocketConfig::new(LOCAL[0].parse().unwrap(), 3)
    };
    match Sockets::open(&config) {
        Ok(sockets) => {
            assert_eq!(sockets.outbox.source_ports().unwrap(), [first, first + 1, first + 2]);
        }
        // Another process bound one of them meanwhile; the error must name it.
        Err(error) => assert!(error.to_string().contains("127.0.0.1"), "{error}"),
    }
    let config = SocketConfig { first_source_port: Some(65_534), ..config };
    assert!(Sockets::open(&config).is_err());
}

#[test]
fn source_ports_change_while_datagrams_wait_for_them() {
    // The kernel's choice of free ports, which are free again.
    let free: Vec<u16> = Sockets::open(&SocketConfig::new(LOCAL[0].parse().unwrap(), 4))
        .unwrap()
        .outbox
        .source_ports()
        .unwrap();
    let further_source_ports = free[..2].to_vec();
    let config =
        SocketConfig { further_source_ports, ..SocketConfig::new(LOCAL[0].parse().unwrap(), 1) };
    let mut senders = Senders::open(&config).unwrap();
    let mut receiver = open(LOCAL[0]);
    let to = receiver.local();
    for path in 1..=2 {
        senders.outbox.push(&to, path, 64, |out| out.fill(u8::try_from(path).unwrap()));
    }
    // A port that is taken changes nothing.
    let taken = [(1, free[2]), (2, to.port())];
    assert!(senders.replace(&config, &taken).is_err());
    assert_eq!(senders.outbox.source_ports().unwrap()[1..], free[..2]);
    senders.replace(&config, &[(1, free[2]), (3, free[3])]).unwrap();
    senders.outbox.push(&to, 3, 64, |out| out.fill(3));
    senders.outbox.flush();
    let mut arrived: Vec<(u16, u8)> =
        collect(&mut receiver.inbox, 3).into_iter().map(|(port, bytes)| (port, bytes[0])).collect();
    arrived.sort_unstable_by_key(|&(_, number)| number);
    assert_eq!(arrived, [(free[2], 1), (free[1], 2), (free[3], 3)]);
    assert_eq!(senders.outbox.paths().len(), 4);
}
