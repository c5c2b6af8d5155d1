//! The memory of two ranks in one process.

mod doorbell;

use super::area::SLOTS;
use super::*;
use crate::error::SharedError;
use crate::rendezvous::now;

const SIZE: AreaSize = AreaSize::of(1000);

/// Returns both ends of the memory of two ranks.
fn pair(rate: Option<u64>) -> [Shared; 2] {
    let files = [(); 2].map(|()| OwnFile::create().unwrap());
    files.iter().for_each(|file| file.allocate(1, SIZE).unwrap());
    let mut others = [1, 0].map(|other: usize| Some(open(files[other].id).unwrap()));
    let mut rank = 0;
    files.map(|own| {
        let file = others[rank].take().unwrap();
        let mut peers = vec![None, None];
        peers[1 - rank] = Some(PeerFile { file, outgoing: 0, incoming: 0 });
        rank += 1;
        Shared::map(own, peers, SIZE, rate).unwrap()
    })
}

#[test]
fn messages_arrive_in_order_while_slots_are_given_back_in_any() {
    let [mut one, mut other] = pair(None);
    assert!(one.has(1) && !one.has(0));
    let mut rng = weft_units::Seed(3).child("slots", 0).rng();
    let (mut sent, mut got) = (0u32, 0u32);
    let mut held = Vec::new();
    while got < 5_000 {
        if rng.chance(1, 2) {
            let body = vec![u8::try_from(sent % 251).unwrap(); rng.index(997)];
            sent += u32::from(one.send(1, Instant::default(), &sent.to_le_bytes()[..3], &body));
        }
        let received = if rng.chance(1, 2) { other.receive(0, now()) } else { None };
        match received {
            Some(Received::Slot(slot)) => {
                check(other.bytes(&slot), got);
                got += 1;
                held.push(slot);
            }
            Some(Received::Copied(bytes)) => {
                check(&bytes, got);
                got += 1;
            }
            None => {}
        }
        if !held.is_empty() && rng.chance(1, 2) {
            other.release(&held.swap_remove(rng.index(held.len())));
        }
    }
    assert!(other.receive(1, now()).is_none(), "nobody sends to itself");
}

fn check(bytes: &[u8], number: u32) {
    assert_eq!(bytes[..3], number.to_le_bytes()[..3]);
    assert!(bytes[3..].iter().all(|&byte| u32::from(byte) == number % 251));
}

#[test]
fn a_link_keeps_its_rate_between_rare_polls_and_gains_none_in_a_pause() {
    let [mut one, mut other] = pair(Some(1_000_000));
    let body = [7; 997];
    // A message takes a millisecond; the ends poll every five, and there are slots for sixteen.
    let mut carry = |from: u64, polls: u64| {
        let mut got = 0;
        for poll in 0..polls {
            let now = Instant::from_nanos((from + 5 * poll) * 1_000_000);
            while one.send(1, now, &[0; 3], &body) {}
            while let Some(received) = other.receive(0, now) {
                got += 1;
                if let Received::Slot(slot) = received {
                    other.release(&slot);
                }
            }
        }
        got
    };
    assert_eq!(carry(1_000, 201), 1_000, "of a second");
    assert_eq!(carry(60_000, 1), SLOTS - 5, "what was in slots before a pause");
    assert_eq!(carry(60_005, 1), 5, "the pause is no credit");
}

#[test]
fn a_name_is_gone_with_its_file_and_a_missing_file_is_explained() {
    let file = OwnFile::create().unwrap();
    let id = file.id;
    let names = [id.path(), id.path().with_extension("bell")];
    assert!(names.iter().all(|name| name.exists()));
    assert_eq!(FileId::read(FileId::emit(Some(id))), Some(id));
    assert_eq!(FileId::read(FileId::emit(None)), None);
    drop(file);
    assert!(!names.iter().any(|name| name.exists()));
    let error = open(id).unwrap_err();
    assert!(matches!(error, SharedError::NotFound(_)), "{error}");
    assert!(error.to_string().contains("the same /dev/shm"), "{error}");
}

/// A file without the areas that its rank has announced: access to it would end the process.
#[test]
fn a_file_that_is_too_short_is_not_mapped() {
    let [own, other] = [(); 2].map(|()| OwnFile::create().unwrap());
    own.allocate(1, SIZE).unwrap();
    let file = open(other.id).unwrap();
    let peers = vec![Some(PeerFile { file, outgoing: 0, incoming: 0 })];
    let error = Shared::map(own, peers, SIZE, None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

/// A write to memory that `/dev/shm` does not have would end the process.
#[test]
fn memory_that_does_not_exist_is_refused_before_its_use() {
    let file = OwnFile::create().unwrap();
    let folder = rustix::fs::statvfs("/dev/shm").unwrap();
    let limit = usize::try_from(folder.f_blocks * folder.f_frsize).unwrap();
    assert!(limit > 0, "/dev/shm has no size here: this test would use all memory");
    let error = file.allocate(limit / SIZE.bytes() + 1, SIZE).unwrap_err().to_string();
    assert!(error.contains("No space left") && error.contains("--shm-size"), "{error}");
}

/// The attacker: another user of the machine, who saw the file's name in another container's `/dev/shm`; or a file that
/// an earlier job left.
#[test]
fn memory_that_is_not_this_jobs_is_refused() {
    let [file, other] = [(); 2].map(|()| OwnFile::create().unwrap());
    let path = file.id.path();
    let foreign = |id: FileId| {
        let error = open(id).unwrap_err();
        assert!(matches!(error, SharedError::Foreign { .. }), "{error}");
        error.to_string()
    };
    // A file of this user that has another job's number.
    std::fs::rename(other.id.path(), &path).unwrap();
    let error = open(file.id).unwrap_err();
    assert!(matches!(error, SharedError::OtherContent), "{error}");
    std::fs::rename(&path, other.id.path()).unwrap();
    std::os::unix::fs::symlink(other.id.path(), &path).unwrap();
    foreign(file.id);
    std::fs::remove_file(&path).unwrap();
    // An empty file.
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(open(file.id), Err(SharedError::NotFound(_))));
    // A file in place of a doorbell, of which no reader would sleep.
    let silent = OwnFile::create().unwrap();
    let bell = silent.id.path().with_extension("bell");
    std::fs::remove_file(&bell).unwrap();
    assert!(matches!(open(silent.id), Err(SharedError::NotFound(_))));
    std::fs::write(&bell, b"").unwrap();
    foreign(silent.id);
    if !rustix::process::geteuid().is_root() {
        return weft_testkit::skip("memory of another user", "only root becomes another user");
    }
    std::fs::rename(other.id.path(), &path).unwrap();
    std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
    let text = foreign(file.id);
    assert!(text.contains("user 65534"), "{text}");
}
