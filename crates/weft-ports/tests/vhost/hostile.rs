//! Tests of guests and front ends that violate the protocols.

use std::io::Write;
use std::os::fd::AsFd;

use rustix::fs::ftruncate;
use weft_ports::{Port, PortError, VhostConfig, VhostPort};
use weft_units::{Rng, Seed};
use weft_vpc::{Reading, Staging, Turn};

use crate::common::front_end::{
    BUFFERS, FrontEnd, INDIRECT, MEMORY, NEXT, RECEIVES, SENDS, USUAL, WRITE, request,
};
use crate::common::guest::Socket;
use crate::{Tenant, frame, millis, sent_part, tenant};

/// Checks that the port still serves frames on queues that are set up again.
fn works(mut a: Tenant) {
    drop(a.guest);
    let _ = a.port.service(millis(1));
    let mut guest = crate::common::guest::Guest::start(&mut a.port, &a.socket.0, 64, USUAL, 1_536);
    let bytes = frame(&mut Seed(9).rng(), 900);
    assert!(guest.send(&bytes));
    let sent = a.port.take(millis(2)).unwrap().unwrap();
    let mut read = vec![0; 900];
    a.port.read(sent.token, 0, &mut read, Reading::First).unwrap();
    assert_eq!(read, bytes);
    let slot = a.port.claim(900, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
    a.port.place(slot, 0, &bytes).unwrap();
    a.port.complete(slot);
    a.port.flush().unwrap();
    guest.receive();
    assert_eq!(sent_part(&guest.received[0]), &bytes[12..]);
}

#[test]
fn chains_that_virtio_forbids_stop_the_queue_with_a_reason_and_nothing_else() {
    type Descriptors = &'static [(u64, u32, u16, u16)];
    let cases: [(&str, Descriptors); 9] = [
        ("loops", &[(BUFFERS, 100, NEXT, 0)]),
        ("loops", &[(BUFFERS, 100, NEXT, 1), (BUFFERS, 100, NEXT, 0)]),
        ("of a table of 64", &[(BUFFERS, 100, NEXT, 64)]),
        ("no bytes", &[(BUFFERS, 0, 0, 0)]),
        ("not memory", &[(MEMORY - 10, 100, 0, 0)]),
        ("not memory", &[(u64::MAX - 10, 100, 0, 0)]),
        ("for writing", &[(BUFFERS, 100, WRITE, 0)]),
        ("indirect", &[(512 << 10, 16, INDIRECT, 0)]),
        ("not memory", &[(MEMORY, 16, INDIRECT, 0)]),
    ];
    for (at, (reason, descriptors)) in cases.into_iter().enumerate() {
        let mut a = tenant(&format!("forbidden-{at}"), 64, USUAL, 1_536);
        let table = a.guest.front.queues[SENDS].table;
        for (index, &fields) in (0..).zip(descriptors) {
            a.guest.front.describe(table, index, fields);
        }
        a.guest.front.offer(SENDS, 0);
        let report = a.port.take(millis(0)).unwrap_err().to_string();
        assert!(report.contains(reason) && report.contains("sending"), "{report}");
        assert_eq!((a.port.counters().bad_chain, a.port.take(millis(0)).unwrap()), (1, None));
        assert!(a.guest.front.is_broken(SENDS));
        works(a);
    }
}

#[test]
fn rings_that_overrun_or_offer_twice_or_from_nowhere_stop() {
    let fault = |name: &str, corrupt_ring: fn(&mut FrontEnd)| {
        let mut a = tenant(name, 64, USUAL, 1_536);
        let table = a.guest.front.queues[SENDS].table;
        (0..64).for_each(|head| a.guest.front.describe(table, head, (BUFFERS, 100, 0, 0)));
        corrupt_ring(&mut a.guest.front);
        let report = (0..200).find_map(|_| a.port.take(millis(0)).err()).unwrap().to_string();
        works(a);
        report
    };
    let overrun = fault("overrun", |front| (0..65).for_each(|at| front.offer(SENDS, at % 64)));
    assert!(overrun.contains("more buffers than it has"), "{overrun}");
    let twice = fault("twice", |front| [3, 3].into_iter().for_each(|at| front.offer(SENDS, at)));
    assert!(twice.contains("descriptor 3 is offered twice"), "{twice}");
    let nowhere = fault("nowhere", |front| front.offer(SENDS, 64));
    assert!(nowhere.contains("descriptor 64 of a table of 64"), "{nowhere}");
}

#[test]
fn buffers_to_receive_into_are_held_to_the_same_rules() {
    let mut b = tenant("receive", 4, USUAL, 1_536);
    let held: Vec<_> = (0..4)
        .map(|_| b.port.claim(500, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap())
        .collect();
    held.iter().for_each(|&slot| b.port.cancel(slot));
    let mut b = tenant("receive-2", 4, USUAL, 1_536);
    let table = b.guest.front.queues[RECEIVES].table;
    b.guest.front.describe(table, 0, (BUFFERS, 1_536, 0, 0));
    assert_eq!(b.port.claim(500, Turn::OutOfOrder, Staging::InPlace, &[]), None);
    let report = b.port.flush().unwrap_err();
    assert!(matches!(report, PortError::Ring { queue: "receiving", .. }), "{report}");
    works(b);
}

/// Each descriptor names a table of 1,024 pieces of one byte: their lists would be a hundred times the frames.
#[test]
fn buffers_of_too_many_pieces_stop_the_queue() {
    const TABLE: u64 = BUFFERS + (30 << 20);
    let mut b = tenant("receive-pieces", 256, USUAL, 1_536);
    let front = &b.guest.front;
    for piece in 0..1_024_u16 {
        let flags = if piece == 1_023 { WRITE } else { WRITE | NEXT };
        front.describe(TABLE, piece, (BUFFERS + u64::from(piece), 1, flags, piece + 1));
    }
    let table = front.queues[RECEIVES].table;
    (0..256).for_each(|head| front.describe(table, head, (TABLE, 16 << 10, INDIRECT, 0)));
    let claim = |b: &mut Tenant| b.port.claim(60_000, Turn::OutOfOrder, Staging::InPlace, &[]);
    // Buffers that come back make room.
    for _ in 0..4 {
        let slots = [claim(&mut b).unwrap(), claim(&mut b).unwrap()];
        slots.into_iter().for_each(|slot| b.port.cancel(slot));
    }
    let slots = [claim(&mut b).unwrap(), claim(&mut b).unwrap()];
    assert_eq!(claim(&mut b), None);
    let report = b.port.flush().unwrap_err().to_string();
    assert!(report.contains("more than 131072 pieces"), "{report}");
    slots.into_iter().for_each(|slot| b.port.cancel(slot));
    works(b);
}

#[test]
fn nothing_of_a_private_frame_is_in_the_guests_memory_before_it_is_complete() {
    let mut b = tenant("private", 8, USUAL, 1_536);
    let len = u32::try_from(MEMORY).unwrap();
    let sees = |b: &Tenant, bytes: &[u8]| {
        let memory = b.guest.front.read(0, len as usize);
        memory.windows(bytes.len()).any(|window| window == bytes)
    };
    let mut rng = Seed(1).rng();
    let [denied, allowed] = [4_000, 3_000].map(|len| frame(&mut rng, len));
    let mut claim = |bytes: &[u8]| {
        let len = u32::try_from(bytes.len()).unwrap();
        let slot = b.port.claim(len, Turn::OutOfOrder, Staging::Private, &[]).unwrap();
        b.port.place(slot, 0, bytes).unwrap();
        slot
    };
    let (first, second) = (claim(&denied), claim(&allowed));
    let mut head = [0; 100];
    assert_eq!(b.port.peek(second, &mut head), 100);
    assert_eq!(head[..], allowed[..100]);
    b.port.cancel(first);
    assert!(!sees(&b, &denied[100..200]) && !sees(&b, &allowed[100..200]));
    b.port.complete(second);
    b.port.flush().unwrap();
    b.guest.receive();
    assert_eq!(sent_part(&b.guest.received[0]), &allowed[12..]);
    assert!(sees(&b, &allowed[100..200]) && !sees(&b, &denied[100..200]));
    assert_eq!(b.port.holdings().claimed_memory, 0);
}

#[test]
fn chains_that_hold_no_frame_are_given_back_and_counted() {
    let mut a = tenant("no-frame", 64, USUAL, 1_536);
    let table = a.guest.front.queues[SENDS].table;
    a.guest.front.describe(table, 0, (BUFFERS, 25, 0, 0));
    a.guest.front.describe(table, 1, (BUFFERS, 1 << 20, 0, 0));
    a.guest.front.offer(SENDS, 0);
    a.guest.front.offer(SENDS, 1);
    assert_eq!(a.port.take(millis(0)).unwrap(), None);
    a.port.flush().unwrap();
    assert_eq!(a.guest.front.returned(SENDS), [(0, 0), (1, 0)]);
    assert_eq!((a.port.counters().bad_frame, a.port.counters().bad_chain), (2, 0));
}

#[test]
fn many_chains_without_a_frame_neither_hold_up_others_nor_the_frame_behind_them() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut a = tenant("bad-frames", 256, USUAL, 1_536);
    let table = a.guest.front.queues[SENDS].table;
    a.port.service(millis(0)).unwrap();
    assert_eq!(a.port.take(millis(0)).unwrap(), None);
    for head in 0..250 {
        a.guest.front.describe(table, head, (BUFFERS, if head < 249 { 20 } else { 100 }, 0, 0));
        a.guest.front.offer(SENDS, head);
    }
    a.guest.front.kick(SENDS);
    let mut turns = 0;
    loop {
        let mut fds = [PollFd::from_borrowed_fd(a.port.fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&now)), Ok(1), "asleep with a frame to take");
        a.port.service(millis(0)).unwrap();
        turns += 1;
        if a.port.take(millis(0)).unwrap().is_some() {
            break;
        }
    }
    assert_eq!((turns, a.port.counters().bad_frame), (4, 249));
}

#[test]
fn a_frame_in_a_hundred_pieces_is_copied_once_and_the_guest_goes_on() {
    let mut a = tenant("pieces", 64, USUAL, 1_536);
    a.guest.piece = 600;
    let bytes = frame(&mut Seed(1).rng(), 60_000);
    assert!(a.guest.send(&bytes));
    let sent = a.port.take(millis(0)).unwrap().unwrap();
    a.port.flush().unwrap();
    assert_eq!(a.guest.reap(), 1);
    let mut read = vec![0; 60_000];
    a.port.read(sent.token, 0, &mut read, Reading::First).unwrap();
    assert!(read == bytes);
}

#[test]
fn descriptors_that_change_after_the_frame_was_taken_harm_only_the_frame() {
    let mut a = tenant("rewrite", 64, USUAL, 1_536);
    a.guest.piece = 1_000;
    let bytes = frame(&mut Seed(1).rng(), 3_000);
    // The first retransmission makes the guest trusted.
    assert!(a.guest.send(&bytes));
    let first = a.port.take(millis(0)).unwrap().unwrap();
    a.port.read(first.token, 0, &mut [0; 100], Reading::Retransmission).unwrap();
    let [sent, _] = [(); 2].map(|()| {
        assert!(a.guest.send(&bytes));
        a.port.take(millis(0)).unwrap().unwrap()
    });
    // Each frame has four descriptors; the second frame's chain now leaves the guest's memory.
    let table = a.guest.front.queues[SENDS].table;
    a.guest.front.describe(table, 4, (MEMORY - 4, 1_000, NEXT, 5));
    let mut read = vec![1; 2_000];
    let report = a.port.read(sent.token, 1_000, &mut read, Reading::Retransmission).unwrap_err();
    assert!(matches!(report, PortError::Unreadable));
    assert_eq!((read, a.port.counters().unreadable), (vec![0; 2_000], 1));
    a.port.release(sent.token);
    a.port.flush().unwrap();
}

#[test]
fn memory_whose_file_is_cut_short_ends_the_connection_and_not_the_process() {
    let mut a = tenant("withdrawn", 64, USUAL, 1_536);
    assert!(a.guest.send(&frame(&mut Seed(1).rng(), 3_000)));
    let sent = a.port.take(millis(0)).unwrap().unwrap();
    let slot = a.port.claim(500, Turn::OutOfOrder, Staging::InPlace, &[]).unwrap();
    ftruncate(&a.guest.front.file, 0).unwrap();
    let _ = a.port.read(sent.token, 0, &mut vec![0; 3_000], Reading::First);
    let _ = a.port.place(slot, 0, &[1; 500]);
    let report = a.port.flush().unwrap_err().to_string();
    assert!(report.contains("took memory away"), "{report}");
    assert!(!a.port.is_up());
    // The driver's own mapping is gone too, so it must not access the rings any more.
    works(a);
}

#[test]
fn requests_that_cannot_be_are_refused_by_name() {
    let socket = Socket::new("requests");
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap();
    let mut front = FrontEnd::connect(&socket.0, 64, USUAL);
    front.negotiate(&mut port);
    let number = |value: u64| value.to_ne_bytes().to_vec();
    let pair = |a: u32, b: u32| [a, b].map(u32::to_ne_bytes).concat();
    let table = |count: u64, len: u64| [count, 0, len, 0, 0].map(u64::to_ne_bytes).concat();
    let file = front.file.try_clone().unwrap();
    let kick = front.queues[0].kick.try_clone().unwrap();
    type Files<'a> = Vec<std::os::fd::BorrowedFd<'a>>;
    let cases: Vec<(u32, Vec<u8>, Files<'_>, &str)> = vec![
        (99, vec![], vec![], "unknown request 99"),
        (22, vec![0; 16], vec![], "not offered"),
        (request::SET_FEATURES, number(1 << 35), vec![], "not offered"),
        (request::SET_FEATURES, vec![0; 7], vec![], "too short"),
        (request::SET_VRING_NUM, pair(0, 100), vec![], "100 descriptors"),
        (request::SET_VRING_NUM, pair(0, 65_536), vec![], "65536 descriptors"),
        (request::SET_VRING_NUM, pair(32, 64), vec![], "queue 32"),
        (request::SET_VRING_BASE, pair(0, 65_536), vec![], "base"),
        (request::SET_MEM_TABLE, table(1, MEMORY), vec![], "1 memory regions with 0"),
        (request::SET_MEM_TABLE, table(1, MEMORY + 1), vec![file.as_fd()], "memory file"),
        (request::SET_MEM_TABLE, table(1, 0), vec![file.as_fd()], "memory file"),
        (request::SET_VRING_KICK, number(0), vec![file.as_fd()], "no eventfd"),
        (request::SET_VRING_KICK, number(0), vec![], "no descriptor"),
        (request::SET_VRING_KICK, number(1 << 8), vec![], "polling"),
        (request::SET_VRING_CALL, number(33), vec![kick.as_fd()], "queue 33"),
    ];
    for (request, body, files, reason) in cases {
        let report =
            front.try_send_request(&mut port, request, &body, &files).unwrap_err().to_string();
        assert!(report.contains(reason) && report.contains("front end"), "{report}");
        assert!(!port.is_up());
    }
    // The connection still works.
    front.share_memory(&mut port);
    (0..2).for_each(|queue| front.start_queue(&mut port, queue));
    assert!(port.is_up());
}

/// A file system provides a file's pages at its own time: one in user space could block all tenants.
#[test]
fn memory_in_a_file_that_is_not_memory_is_refused() {
    let socket = Socket::new("files");
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap();
    let mut front = FrontEnd::connect(&socket.0, 64, USUAL);
    front.negotiate(&mut port);
    // A file of the requested length, readable and writable like a guest's memory, but not on a memory file system.
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = path.join(format!("vhost-memory-{}", std::process::id()));
    let mut options = std::fs::File::options();
    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(4_096).unwrap();
    if rustix::fs::fcntl_get_seals(&file).is_ok() {
        let test = "memory_in_a_file_that_is_not_memory_is_refused";
        return weft_testkit::skip_on_this_machine(test, "the build directory is on tmpfs");
    }
    let region = [0, 4_096, 0, 0].map(u64::to_ne_bytes).concat();
    let table = [&1_u64.to_ne_bytes()[..], &region].concat();
    let added = [&0_u64.to_ne_bytes()[..], &region].concat();
    for (request, body) in [(request::SET_MEM_TABLE, table), (request::ADD_MEM_REG, added)] {
        let report =
            front.try_send_request(&mut port, request, &body, &[file.as_fd()]).unwrap_err();
        assert!(report.to_string().contains("memfd"), "{report}");
    }
    front.share_memory(&mut port);
    (0..2).for_each(|queue| front.start_queue(&mut port, queue));
    assert!(port.is_up());
}

#[test]
fn a_front_end_shares_as_many_regions_as_its_port_allows() {
    let socket = Socket::new("regions");
    let config = VhostConfig { max_regions: 3, ..VhostConfig::at(&socket.0) };
    let mut port = VhostPort::open(&config).unwrap();
    let mut front = FrontEnd::connect(&socket.0, 64, USUAL);
    front.negotiate(&mut port);
    assert_eq!(front.ask(&mut port, request::GET_MAX_MEM_SLOTS, &[]), 3);
    let file = front.file.try_clone().unwrap();
    let add = |front: &FrontEnd, port: &mut VhostPort, at: u64| {
        let region = [0, at << 20, 4_096, at << 20, 0].map(u64::to_ne_bytes).concat();
        front.try_send_request(port, request::ADD_MEM_REG, &region, &[file.as_fd()])
    };
    (1..=3).for_each(|at| add(&front, &mut port, at).unwrap());
    assert_eq!(port.holdings().regions, (3, 3));
    let report = add(&front, &mut port, 4).unwrap_err().to_string();
    assert!(report.contains("more than 3 memory regions"), "{report}");
    front.share_memory(&mut port);
    add(&front, &mut port, 100).unwrap();
}

#[test]
fn half_a_message_blocks_nothing_and_no_message_ends_the_connection() {
    let mut a = tenant("half", 64, USUAL, 1_536);
    a.guest.front.stream.write_all(&[1, 0, 0, 0, 1, 0]).unwrap();
    a.port.service(millis(0)).unwrap();
    assert!(a.guest.send(&frame(&mut Seed(1).rng(), 100)));
    assert!(a.port.take(millis(0)).unwrap().is_some());
    a.guest.front.stream.write_all(&[0xff; 20]).unwrap();
    let report = a.port.service(millis(0)).unwrap_err().to_string();
    assert!(report.contains("no message") && !a.port.is_up(), "{report}");
    works(a);
}

/// Corrupts rings, tables and requests of a guest at random places while frames flow.
fn corrupt(a: &mut Tenant, rng: &mut Rng) {
    let front = &mut a.guest.front;
    let queue = rng.index(2);
    let table = front.queues[queue].table;
    let any = |rng: &mut Rng| u16::try_from(rng.below(260)).unwrap();
    match rng.below(11) {
        0..3 => {
            let address = [rng.below(MEMORY + 9), BUFFERS, rng.next_u64()][rng.index(3)];
            let len = [rng.next_u32(), 100, 0, 70_000][rng.index(4)];
            let flags = u16::try_from(rng.below(8)).unwrap();
            front.describe(table, any(rng), (address, len, flags, any(rng)));
        }
        3..6 => front.offer(queue, any(rng)),
        6 => front.write(rng.below(1 << 20), &rng.next_u64().to_le_bytes()),
        7 => {
            let which = u32::try_from(queue).unwrap();
            let body = [which, rng.next_u32() % 3, 0, 0].map(u32::to_ne_bytes).concat();
            let _ = front.try_send_request(&mut a.port, 1 + rng.next_u32() % 20, &body[..8], &[]);
        }
        8 => {
            // Less memory, or all of it again, under running rings; and rings of another size when they are stopped.
            let table = [1, 0, MEMORY >> rng.below(12), 0x7f00_0000_0000, 0].map(u64::to_ne_bytes);
            let file = front.file.as_fd();
            let _ = front.try_send_request(
                &mut a.port,
                request::SET_MEM_TABLE,
                &table.concat(),
                &[file],
            );
        }
        9 => {
            let size = [u32::try_from(queue).unwrap(), 1 << rng.below(9)].map(u32::to_ne_bytes);
            let _ =
                front.try_send_request(&mut a.port, request::SET_VRING_NUM, &size.concat(), &[]);
        }
        _ => {
            let _ = a.port.service(millis(0));
            front.start_queue_again(&mut a.port, queue);
        }
    }
}

#[test]
fn a_corrupting_guest_neither_stops_the_process_nor_harms_its_neighbour() {
    for seed in 0..100 {
        let mut rng = Seed(seed).child("rave", 0).rng();
        let mut hostile = tenant(&format!("mad-{seed}"), 256, USUAL, 1_536);
        let mut healthy = tenant(&format!("sane-{seed}"), 64, USUAL, 1_536);
        let (mut tokens, mut slots) = (vec![], vec![]);
        for round in 0..300 {
            corrupt(&mut hostile, &mut rng);
            if let Ok(Some(sent)) = hostile.port.take(millis(round)) {
                assert!((26..=weft_ports::MAX_FRAME).contains(&sent.len), "seed {seed}");
                tokens.push(sent);
            }
            for sent in &tokens {
                let offset = rng.next_u32() % sent.len;
                let reading =
                    if rng.chance(1, 2) { Reading::First } else { Reading::Retransmission };
                let _ = hostile.port.read(sent.token, offset, &mut [0; 1_400], reading);
            }
            slots.extend(hostile.port.claim(
                26 + rng.next_u32() % 60_000,
                Turn::OutOfOrder,
                Staging::InPlace,
                &[],
            ));
            for &slot in &slots {
                let _ = hostile.port.place(slot, rng.next_u32() % 60_000, &[7; 1_400]);
                let _ = hostile.port.peek(slot, &mut [0; 268]);
            }
            if rng.chance(1, 4) && !slots.is_empty() {
                let slot = slots.swap_remove(rng.index(slots.len()));
                if rng.chance(1, 2) {
                    hostile.port.complete(slot)
                } else {
                    hostile.port.cancel(slot)
                }
            }
            if rng.chance(1, 4) && !tokens.is_empty() {
                hostile.port.release(tokens.swap_remove(rng.index(tokens.len())).token);
            }
            let _ = hostile.port.flush();
            hostile.port.release_overdue(millis(round), weft_units::Duration::from_millis(28));
        }
        let holdings = hostile.port.holdings();
        assert_eq!((holdings.taken, holdings.claimed), (tokens.len(), slots.len()), "seed {seed}");
        let bytes = frame(&mut rng, 900);
        assert!(healthy.guest.send(&bytes));
        let sent = healthy.port.take(millis(0)).unwrap().unwrap();
        let mut read = vec![0; 900];
        healthy.port.read(sent.token, 0, &mut read, Reading::First).unwrap();
        assert_eq!(read, bytes, "seed {seed}");
    }
}
