//! Guests that violate the rules of packed rings.

use weft_ports::{Port, Position};
use weft_units::Seed;
use weft_vpc::{Reading, Staging, Turn};

use crate::common::front_end::{
    BUFFERS, FrontEnd, INDIRECT, MEMORY, NEXT, RECEIVES, SENDS, USUAL, WRITE,
};
use crate::common::guest::Guest;
use crate::{FORMAT, Tenant, frame, millis, tenant};

const SIZE: u16 = 64;

/// A descriptor: address, length, identifier, flags, and `true` if its flags are of the right lap.
type Descriptor = (u64, u32, u16, u16, bool);

/// Writes descriptors to the ring from its start on, the first one last.
fn write(front: &FrontEnd, queue: usize, descriptors: &[Descriptor]) {
    let ring = front.queues[queue].offered;
    let places = (0_u16..).map(|index| Position { index, wrap: true });
    for (at, &(address, len, id, flags, sound)) in
        places.zip(descriptors).collect::<Vec<_>>().into_iter().rev()
    {
        front.describe_packed(ring + 16 * u64::from(at.index), (address, len, id));
        let lap = Position { wrap: at.wrap == sound, ..at };
        front.set_flags(queue, at, FrontEnd::available(lap, flags));
    }
}

/// Checks that the port still serves frames on queues that are set up again.
fn works(mut a: Tenant) {
    drop(a.guest);
    let _ = a.port.service(millis(1));
    let mut guest = Guest::start(&mut a.port, &a.socket.0, SIZE, USUAL | FORMAT, 1_536);
    assert!(guest.send(&frame(&mut Seed(9).rng(), 900)));
    let sent = a.port.take(millis(2)).unwrap().unwrap();
    a.port.release(sent.token);
    a.port.flush().unwrap();
    assert_eq!(guest.reap(), 1);
}

#[test]
fn chains_that_virtio_forbids_stop_the_queue_with_a_reason_and_nothing_else() {
    let long: Vec<Descriptor> = (0..SIZE).map(|id| (BUFFERS, 100, id, NEXT, true)).collect();
    let table = BUFFERS + (1 << 20);
    let cases: [(&str, &[Descriptor]); 12] = [
        ("loops", &long),
        ("wrap counter", &[(BUFFERS, 100, 0, NEXT, true), (BUFFERS, 100, 0, 0, false)]),
        ("wrap counter", &[(BUFFERS, 100, 0, NEXT, true)]),
        ("descriptor 64 of a table of 64", &[(BUFFERS, 100, SIZE, 0, true)]),
        ("no bytes", &[(BUFFERS, 0, 0, 0, true)]),
        ("not memory", &[(MEMORY - 10, 100, 0, 0, true)]),
        ("not memory", &[(u64::MAX - 10, u32::MAX, 0, 0, true)]),
        ("for writing", &[(BUFFERS, 100, 0, WRITE, true)]),
        ("indirect", &[(table, 16, 0, INDIRECT | NEXT, true)]),
        ("indirect", &[(BUFFERS, 100, 0, NEXT, true), (table, 16, 0, INDIRECT, true)]),
        ("indirect", &[(table, 17, 0, INDIRECT, true)]),
        ("not memory", &[(MEMORY, 16, 0, INDIRECT, true)]),
    ];
    for (at, (reason, descriptors)) in cases.into_iter().enumerate() {
        let mut a = tenant(&format!("packed-forbidden-{at}"), SIZE, USUAL, 1_536);
        write(&a.guest.front, SENDS, descriptors);
        let report = a.port.take(millis(0)).unwrap_err().to_string();
        assert!(report.contains(reason) && report.contains("sending"), "{reason}: {report}");
        assert_eq!((a.port.counters().bad_chain, a.port.take(millis(0)).unwrap()), (1, None));
        assert!(a.guest.front.is_broken(SENDS));
        works(a);
    }
}

#[test]
fn a_table_that_names_another_table_is_refused() {
    let mut a = tenant("packed-nested", SIZE, USUAL, 1_536);
    let table = BUFFERS + (1 << 20);
    a.guest.front.describe_packed(table, (table, 16, 0));
    a.guest.front.write(table + 14, &INDIRECT.to_le_bytes());
    write(&a.guest.front, SENDS, &[(table, 16, 0, INDIRECT, true)]);
    let report = a.port.take(millis(0)).unwrap_err().to_string();
    assert!(report.contains("indirect"), "{report}");
    works(a);
}

/// A buffer that is made available in the next lap while the device has it, and more buffers than the ring has.
#[test]
fn a_buffer_offered_twice_and_a_ring_that_overruns_stop() {
    for (name, reason, id) in [
        ("packed-twice", "descriptor 3 is offered twice", 3),
        ("packed-overrun", "more buffers", 0),
    ] {
        let mut a = tenant(name, SIZE, USUAL, 1_536);
        // The last buffer of a full ring has two descriptors in the second case.
        let count = if id == 3 { SIZE } else { SIZE - 1 };
        let all: Vec<Descriptor> = (0..count).map(|id| (BUFFERS, 100, id, 0, true)).collect();
        write(&a.guest.front, SENDS, &all);
        for _ in 0..count {
            a.port.take(millis(0)).unwrap().unwrap();
        }
        // All buffers are taken and none was returned; the driver goes on as if they were.
        let ring = a.guest.front.queues[SENDS].offered;
        let first = Position::START.after(count, SIZE);
        let second = first.after(1, SIZE);
        let id = if id == 3 { 3 } else { SIZE - 1 };
        for (at, flags) in [(second, 0), (first, if id == 3 { 0 } else { NEXT })] {
            a.guest.front.describe_packed(ring + 16 * u64::from(at.index), (BUFFERS, 100, id));
            a.guest.front.set_flags(SENDS, at, FrontEnd::available(at, flags));
        }
        let report = a.port.take(millis(0)).unwrap_err().to_string();
        assert!(report.contains(reason), "{report}");
        works(a);
    }
}

#[test]
fn buffers_to_receive_into_are_held_to_the_same_rules() {
    let mut b = tenant("packed-receive", 4, USUAL, 1_536);
    write(&b.guest.front, RECEIVES, &[(BUFFERS, 1_536, 0, 0, true)]);
    assert_eq!(b.port.claim(500, Turn::OutOfOrder, Staging::InPlace, &[]), None);
    let report = b.port.flush().unwrap_err().to_string();
    assert!(report.contains("receiving") && report.contains("for reading"), "{report}");
    works(b);
}

/// A guest that writes anything anywhere in its rings while frames pass.
#[test]
fn random_rings_never_stop_the_process_or_lead_out_of_memory() {
    let mut taken = 0;
    for seed in 0..300 {
        let mut rng = Seed(seed).child("packed", 0).rng();
        let mut a = tenant(&format!("packed-random-{seed}"), 16, USUAL, 1_536);
        for _ in 0..60 {
            let queue = rng.index(2);
            let at =
                Position { index: u16::try_from(rng.below(16)).unwrap(), wrap: rng.chance(1, 2) };
            let odd = rng.chance(1, 8);
            let address = if odd { rng.next_u64() } else { BUFFERS + rng.below(1 << 20) };
            let len =
                if odd { rng.next_u32() } else { 1 + u32::try_from(rng.below(2_000)).unwrap() };
            let id = u16::try_from(rng.below(18)).unwrap();
            let ring = a.guest.front.queues[queue].offered;
            a.guest.front.describe_packed(ring + 16 * u64::from(at.index), (address, len, id));
            let flags = [0, NEXT, WRITE, INDIRECT, NEXT | WRITE][rng.index(5)];
            let right = if queue == RECEIVES { WRITE } else { 0 };
            let flags = if odd { flags } else { right | (flags & NEXT) };
            a.guest.front.set_flags(queue, at, FrontEnd::available(at, flags));
            let events = a.guest.front.queues[queue].used + 64 * rng.below(2);
            a.guest.front.write(events, &rng.next_u32().to_le_bytes());
            while let Ok(Some(sent)) = a.port.take(millis(0)) {
                taken += 1;
                let reading = [Reading::First, Reading::Retransmission][rng.index(2)];
                let _ = a.port.read(sent.token, 0, &mut [0; 300], reading);
                if rng.chance(1, 2) {
                    a.port.release(sent.token);
                }
            }
            if let Some(slot) = a.port.claim(1_000, Turn::OutOfOrder, Staging::InPlace, &[]) {
                let _ = a.port.place(slot, 0, &[7; 1_000]);
                a.port.complete(slot);
            }
            let _ = a.port.flush();
            if rng.chance(1, 20) {
                (0..2).for_each(|queue| a.guest.front.start_queue_again(&mut a.port, queue));
            }
        }
    }
    assert!(taken > 100, "{taken} frames were valid");
}
