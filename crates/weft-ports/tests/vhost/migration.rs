//! Live migration: every page that the port writes is logged while the front end asks for it, and a machine is announced
//! where it starts.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use weft_ports::{Port, VhostConfig, VhostPort};
use weft_units::{Instant, Seed};
use weft_vpc::{Reading, Staging, Turn};

use crate::common::front_end::{BUFFERS, MEMORY, USUAL, bit, request};
use crate::common::guest::{Guest, Socket};
use crate::{FORMAT, Tenant, frame, millis, tenant};

const PAGE: usize = 4_096;
/// The pages with the rings and the receive buffers, which the port writes.
const WRITTEN: u64 = BUFFERS + (24 << 20);

/// A log of all pages of the guest's memory.
struct Log(File);

impl Log {
    fn new() -> Self {
        let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, MEMORY / PAGE as u64 / 8).unwrap();
        Self(file)
    }

    /// Shares the log, and sets or clears the feature by which the port writes it.
    fn share(&self, a: &mut Tenant) {
        let len = MEMORY / PAGE as u64 / 8;
        let body = [len, 0].map(u64::to_ne_bytes).concat();
        let front = &mut a.guest.front;
        front.send(request::SET_LOG_BASE, &body, &[self.0.as_fd()]);
        a.port.service(Instant::EPOCH).unwrap();
        let mut reply = [0; 20];
        std::io::Read::read_exact(&mut front.stream, &mut reply).unwrap();
        assert_eq!(reply[..4], request::SET_LOG_BASE.to_ne_bytes());
    }

    /// Returns the marked pages.
    fn pages(&self) -> Vec<usize> {
        let mut bits = vec![0; usize::try_from(MEMORY).unwrap() / PAGE / 8];
        self.0.read_exact_at(&mut bits, 0).unwrap();
        (0..8 * bits.len()).filter(|page| bits[page / 8] & 1 << (page % 8) != 0).collect()
    }

    fn clear(&self) {
        self.0.write_all_at(&vec![0; usize::try_from(MEMORY).unwrap() / PAGE / 8], 0).unwrap();
    }
}

fn set_logging(a: &mut Tenant, logging: bool) {
    let features = a.guest.front.features | if logging { bit::LOG_ALL } else { 0 };
    let body = features.to_ne_bytes();
    a.guest.front.send_request(&mut a.port, request::SET_FEATURES, &body, &[]);
}

fn memory(a: &Tenant) -> Vec<u8> {
    a.guest.front.read(0, usize::try_from(WRITTEN).unwrap())
}

/// Runs `act` on the port, and checks that each page which it changed is marked.
fn logged(a: &mut Tenant, log: &Log, act: impl FnOnce(&mut VhostPort)) {
    log.clear();
    let before = memory(a);
    act(&mut a.port);
    let (after, marked) = (memory(a), log.pages());
    let pages = before.chunks(PAGE).zip(after.chunks(PAGE)).enumerate();
    let changed: Vec<usize> =
        pages.filter(|(_, (before, after))| before != after).map(|(page, _)| page).collect();
    assert!(changed.iter().all(|page| marked.contains(page)), "{changed:?}, {marked:?}");
}

#[test]
fn every_page_that_the_port_writes_is_logged() {
    let mut rng = Seed(5).child("log", 0).rng();
    let mut pages = 0;
    for (name, features) in [("log", USUAL), ("log-kicks", USUAL & !bit::EVENT_IDX)] {
        let mut a = tenant(name, 64, features, 1_536);
        let log = Log::new();
        log.share(&mut a);
        set_logging(&mut a, true);
        let mut slots = vec![];
        for _ in 0..60 {
            let len = 100 + rng.index(4_000);
            let bytes = frame(&mut rng, len);
            a.guest.send(&bytes);
            logged(&mut a, &log, |port| {
                while let Some(sent) = port.take(millis(0)).unwrap() {
                    port.read(sent.token, 0, &mut [0; 64], Reading::First).unwrap();
                    port.release(sent.token);
                }
                let len = u32::try_from(bytes.len()).unwrap();
                let slot = port.claim(len, Turn::OutOfOrder, Staging::InPlace, &[]);
                if let Some(slot) = slot {
                    port.place(slot, 0, &bytes).unwrap();
                    slots.push(slot);
                }
                if slots.len() > 3 {
                    slots.drain(..).for_each(|slot| port.complete(slot));
                }
                port.flush().unwrap();
            });
            pages += log.pages().len();
            a.guest.reap();
            a.guest.receive();
        }
        // Held buffers are returned when the front end stops the ring.
        logged(&mut a, &log, |port| port.return_buffers());
    }
    assert!(pages > 200, "{pages} pages were logged");
}

#[test]
fn nothing_is_logged_before_and_after_a_migration() {
    let mut a = tenant("log-off", 64, USUAL, 1_536);
    let log = Log::new();
    let mut rng = Seed(5).rng();
    let mut exchange = |a: &mut Tenant| {
        assert!(a.guest.send(&frame(&mut rng, 500)));
        let sent = a.port.take(millis(0)).unwrap().unwrap();
        a.port.release(sent.token);
        a.port.flush().unwrap();
        a.guest.reap();
    };
    log.share(&mut a);
    exchange(&mut a);
    assert!(log.pages().is_empty());
    set_logging(&mut a, true);
    exchange(&mut a);
    assert!(!log.pages().is_empty());
    set_logging(&mut a, false);
    log.clear();
    exchange(&mut a);
    assert!(log.pages().is_empty());
}

#[test]
fn a_log_that_is_too_short_or_missing_is_refused_and_a_truncated_one_ends_the_front_end() {
    let log = Log::new();
    let body = [1_u64 << 20, 0].map(u64::to_ne_bytes).concat();
    for (name, files) in [("log-none", &[][..]), ("log-short", &[log.0.as_fd()])] {
        let mut a = tenant(name, 64, USUAL, 1_536);
        let front = &mut a.guest.front;
        let refused = front.try_send_request(&mut a.port, request::SET_LOG_BASE, &body, files);
        refused.unwrap_err();
        // QEMU waits for an answer without a time-out, and takes any one for success.
        assert_eq!(std::io::Read::read(&mut front.stream, &mut [0; 20]).unwrap(), 0, "{name}");
    }
    let mut a = tenant("log-bad", 64, USUAL, 1_536);
    log.share(&mut a);
    set_logging(&mut a, true);
    ftruncate(&log.0, 0).unwrap();
    assert!(a.guest.send(&frame(&mut Seed(1).rng(), 500)));
    let gone = (0..3).find_map(|_| {
        let taken = a.port.take(millis(0)).err();
        taken.or_else(|| a.port.flush().err())
    });
    let text = gone.expect("the log is gone").to_string();
    assert!(text.contains("took memory away"), "{text}");
}

#[test]
fn a_machine_is_announced_when_its_guest_starts_and_when_the_front_end_asks() {
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
    let socket = Socket::new("announce");
    let config = VhostConfig { mac: Some(MAC), ..VhostConfig::at(&socket.0) };
    let mut port = VhostPort::open(&config).unwrap();
    assert_eq!(port.take_announcement(millis(0)), None);
    let guest = Guest::start(&mut port, &socket.0, 64, USUAL | FORMAT, 1_536);
    for round in 0..3 {
        let now = millis(100 * round);
        let sent = port.take_announcement(now).expect("the guest has started");
        let mut bytes = vec![0; sent.len as usize];
        port.read(sent.token, 0, &mut bytes, Reading::Retransmission).unwrap();
        port.release(sent.token);
        let parsed = weft_vpc::Frame::parse(&bytes[12..], bytes.len() - 12).unwrap();
        assert_eq!((parsed.source.0, parsed.destination.0), (MAC, [0xff; 6]));
        assert_eq!((bytes.len(), &bytes[24..26]), (72, &[0x80, 0x35][..]));
        assert_eq!((port.take_announcement(now), port.holdings().taken), (None, 0));
        // The front end names another machine, which has no effect, and repeats the request.
        let other = [2, 0, 0, 0, 0, 1, 0, 0];
        for after in [0, 50, 99] {
            guest.front.send_request(&mut port, request::SEND_RARP, &other, &[]);
            assert_eq!(port.take_announcement(millis(100 * round + after)), None);
        }
    }
    // The guest moves on before the announcement is due.
    (0..2).for_each(|queue| guest.front.set_enabled(&mut port, queue, false));
    assert_eq!(port.take_announcement(millis(1_000)), None);
}
