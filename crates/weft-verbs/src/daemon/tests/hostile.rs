//! Tests of clients that send and write invalid bytes; the same seed gives the same bytes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use weft_ring::Memory;
use weft_rnic::{Access, Attributes, Data, Operation, SendRequest, Sge, State};
use weft_units::{Rng, Seed};

use super::*;

/// Returns a message as a library would send it, with some bytes changed.
fn mangled(rng: &mut Rng, objects: &TestObjects) -> Vec<u8> {
    let requests = [
        Request::List { after: "a".into() },
        Request::Command(Command::CreateQp(objects.request)),
        Request::Command(Command::ModifyQp(objects.qp, Attributes::default())),
        Request::Command(Command::CreateCq(objects.context, u32::MAX)),
        Request::Command(Command::Route(objects.context, [127, 0, 0, 1].into(), 77)),
        Request::Command(Command::CreateSrq {
            domain: objects.domain,
            requests: u32::MAX,
            pieces: u32::MAX,
        }),
        Request::attach("a", Probe { address: 0, value: 0 }),
    ];
    let mut bytes = Vec::new();
    encode(&requests[index(rng, requests.len())], &mut bytes);
    for _ in 0..rng.below(4) {
        let at = index(rng, bytes.len());
        bytes[at] = byte(rng);
    }
    if rng.below(4) == 0 {
        bytes.truncate(1 + index(rng, bytes.len()));
    }
    bytes
}

pub(super) fn index(rng: &mut Rng, len: usize) -> usize {
    usize::try_from(rng.below(len as u64)).unwrap()
}

pub(super) fn byte(rng: &mut Rng) -> u8 {
    u8::try_from(rng.below(256)).unwrap()
}

/// Under any messages on the socket, the daemon continues and other clients see no effect.
#[test]
fn random_messages_harm_nobody() {
    let daemon = Running::start();
    daemon.make("a");
    let mut good = daemon.attach("a");
    let objects = good.make_objects();
    for seed in 0..60 {
        let mut rng = Seed(seed).child("messages", 0).rng();
        let mut guest = daemon.attach("a");
        let own = guest.make_objects();
        for _ in 0..40 {
            let bytes = if rng.below(3) == 0 {
                (0..=rng.below(64)).map(|_| byte(&mut rng)).collect()
            } else {
                mangled(&mut rng, &own)
            };
            let file = File::open("/dev/null").unwrap();
            let with = [file.as_fd()];
            let with = if rng.below(8) == 0 { &with[..] } else { &[] };
            match guest.caller.socket().send(&bytes, with, false) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "seed {seed}");
                    break;
                }
            }
            let mut answer = Vec::new();
            if !matches!(guest.caller.socket().receive(&mut answer, false, true), Ok(Some(_))) {
                break;
            }
        }
        let query = good.command(Command::QueryQp(objects.qp));
        assert!(matches!(query, Ok(Reply::QueuePair(State::Reset, _))), "seed {seed}: {query:?}");
    }
    until("their end", || daemon.used("a").processes == 1);
}

/// Under any writes to a client's shared memory, the daemon continues and other clients see no effect.
#[test]
fn random_rings_harm_nobody() {
    let daemon = Running::start();
    daemon.make("a");
    let mut good = daemon.attach("a");
    let objects = good.make_objects();
    for seed in 0..120 {
        let mut rng = Seed(seed).child("rings", 0).rng();
        let mut guest = daemon.attach("a");
        let own = guest.make_objects();
        to_error(&mut guest, &own);
        for _ in 0..rng.below(30) {
            scribble(&mut rng, &mut guest, &own, &objects);
        }
        // The command is answered, or the client is ended: nothing else.
        let _ = guest.caller.call(&Request::Command(Command::QueryQp(own.qp)), &[]);
        let query = good.command(Command::QueryQp(objects.qp));
        assert!(matches!(query, Ok(Reply::QueuePair(State::Reset, _))), "seed {seed}: {query:?}");
    }
    until("their end", || daemon.used("a").processes == 1);
}

/// Moves a queue pair to the error state, in which it accepts every request and flushes it.
fn to_error(guest: &mut Guest, objects: &TestObjects) {
    let to_init = Attributes {
        state: Some(State::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: Some(Access::NONE),
        ..Attributes::default()
    };
    let to_error = Attributes { state: Some(State::Error), ..Attributes::default() };
    for attributes in [to_init, to_error] {
        guest.command(Command::ModifyQp(objects.qp, attributes)).unwrap();
    }
}

/// Makes one write to the shared memory, valid or not.
fn scribble(rng: &mut Rng, guest: &mut Guest, own: &TestObjects, others: &TestObjects) {
    let word = |rng: &mut Rng| u32::try_from(rng.below(1 << 32)).unwrap();
    match rng.below(6) {
        0 => {
            // An index, or a flag, of either ring.
            let offset = [0, 64, 128, 192, 256, 320, 384][index(rng, 7)];
            guest.page.word(offset).store(word(rng), Ordering::Release);
        }
        1 => {
            let record: Vec<u8> = (0..rng.below(100)).map(|_| byte(rng)).collect();
            let _ = guest.work.push(&guest.page, &record);
        }
        choice => {
            let sge = Sge { address: word(rng).into(), length: word(rng), lkey: others.key };
            let pieces = vec![sge; index(rng, 40)];
            let request = SendRequest::new(1, Operation::Send, Data::Gather(&pieces));
            let qp = if choice == 2 { others.qp } else { own.qp };
            let mut record = Vec::new();
            encode(&Work::Send(qp, Posted::numbered(1, &request)), &mut record);
            if choice == 3 && !record.is_empty() {
                let at = index(rng, record.len());
                record[at] = byte(rng);
            }
            let _ = guest.work.push(&guest.page, &record);
        }
    }
}
