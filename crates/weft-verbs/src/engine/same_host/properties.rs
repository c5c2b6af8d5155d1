//! The properties of a neighbour's rings, records, leases and greetings under any writes. Tests and fuzz targets call
//! this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::cell::RefCell;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use weft_ring::Mapped;
use weft_ring::leases::{Backing, Borrower, LEASES_BYTES, Lender, Terms};
use weft_ring::records::{
    ALIGN, CAPACITY, MAX_RECORD, ProtocolViolation, RECORDS, RING_BYTES, Reader, Writer,
};
use weft_rnic::{Source, Transmit};
use weft_transport::path::PathId;
use weft_wire::{DataHeader, MessageHeader, Packet, RdmaHeader, U4, U24};

use super::greeting::{self, GreetingState};
use super::proof;
use super::record::{self, Addresses, Head, Record};
use crate::inputs::Script;

/// The content of the writer's records.
static BODY: [u8; MAX_RECORD] = [1; MAX_RECORD];

/// Memory of two processes, which is all zeroes between scripts.
struct Shared {
    words: Vec<u64>,
    written: Vec<(usize, usize)>,
}

impl Shared {
    fn new(bytes: usize) -> Self {
        Self { words: vec![0; bytes / 8], written: Vec::new() }
    }

    fn start(&mut self) -> NonNull<u8> {
        NonNull::new(self.words.as_mut_ptr().cast()).expect("it is somewhere")
    }

    /// Writes as the other process; bytes past the end are dropped.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let room = (self.words.len() * 8).saturating_sub(at);
        let len = bytes.len().min(room);
        // SAFETY: `len` bytes from there lie in the memory, and no reference of Rust refers to it now.
        unsafe {
            let to = self.start().add(at.min(self.words.len() * 8));
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), len);
        }
        self.written.push((at, len));
    }

    /// Records that this process is about to write there.
    fn note(&mut self, at: usize, len: usize) {
        self.written.push((at, len));
    }

    /// Records that this process wrote a record of this length, between these byte counts. Returns its offset.
    fn note_record(&mut self, (before, after): (u64, u64), len: usize) -> usize {
        let len = len.next_multiple_of(ALIGN);
        let offset = |at: u64| RECORDS + usize::try_from(at % CAPACITY).expect("below it");
        let start = offset(after - len as u64);
        // The word before it may be the one that skips the ring's end.
        [(offset(before), 4), (start, len), (offset(after), 4)]
            .into_iter()
            .for_each(|(at, len)| self.note(at, len));
        start
    }

    fn clean(&mut self) {
        let bytes = self.words.len() * 8;
        // The words before records and entries, which either end writes.
        self.written.push((0, RECORDS));
        for (at, len) in core::mem::take(&mut self.written) {
            let (at, end) = (at.min(bytes), (at + len).min(bytes));
            // SAFETY: they lie in the memory, and no reference of Rust refers to it now.
            unsafe { core::ptr::write_bytes(self.start().add(at).as_ptr(), 0, end - at) };
        }
    }
}

thread_local! {
    static RING: RefCell<Shared> = RefCell::new(Shared::new(RING_BYTES));
    static BACK: RefCell<Shared> = RefCell::new(Shared::new(RING_BYTES));
    static LEASES: RefCell<Shared> = RefCell::new(Shared::new(LEASES_BYTES));
}

/// Plays a script: a reader, and a neighbour that writes into the ring between its reads. Returns `true` if a record
/// was parsed.
///
/// # Panics
/// If the reader panics, goes past a record, or a record changes when it is written again.
pub fn records(bytes: &[u8]) -> bool {
    RING.with_borrow_mut(|shared| {
        let mut script = Script::new(bytes);
        // SAFETY: the memory lives as long as the thread.
        let memory = unsafe { Mapped::new(shared.start(), RING_BYTES) };
        let mut reading = Reading {
            reader: Reader::new(memory),
            writer: Writer::new(memory),
            shared,
            at: 0,
            last: 0,
            last_received: None,
            last_sent: None,
            parsed: false,
        };
        while let Some(step) = script.byte() {
            if !reading.play(step, &mut script) {
                break;
            }
        }
        let parsed = reading.parsed;
        reading.shared.clean();
        parsed
    })
}

struct Reading<'a> {
    shared: &'a mut Shared,
    reader: Reader,
    /// The neighbour's writer, for correct use.
    writer: Writer,
    /// The bytes that the reader has passed, and the offset of the neighbour's last valid record.
    at: u64,
    last: usize,
    last_received: Option<Addresses>,
    last_sent: Option<Addresses>,
    parsed: bool,
}

impl Reading<'_> {
    /// Does one step. Returns `false` if the neighbour is broken.
    fn play(&mut self, step: u8, script: &mut Script<'_>) -> bool {
        let here = RECORDS + usize::try_from(self.at % CAPACITY).expect("below the capacity");
        match step % 6 {
            0 => self.write_record(script),
            // A byte of the last record, or of the reader's next one.
            1 => self.shared.write(self.last + script.below(256), &[script.byte().unwrap_or(0)]),
            2 => self.shared.write(here + script.below(256), script.piece()),
            3 => self.shared.write(here, &script.word().to_ne_bytes()),
            // The length of the current record.
            4 => self.shared.write(here, &(1_u32 << script.below(18)).to_ne_bytes()),
            _ => return self.read().is_ok(),
        }
        true
    }

    fn write_record(&mut self, script: &mut Script<'_>) {
        let transmit = transmit(script);
        let payload = vec![7; transmit.payload_len.into()];
        let head = Head::new(&transmit, ip(script), &mut self.last_sent);
        if self.writer.has_room() == Ok(true) {
            let before = self.writer.written();
            self.writer.write(head.record_len(), |room| head.write(Source::Inline(&payload), room));
            let after = self.writer.written();
            self.last = self.shared.note_record((before, after), head.record_len());
        }
    }

    fn read(&mut self) -> Result<(), ProtocolViolation> {
        let Some(unread) = self.reader.peek()? else { return Ok(()) };
        let len = unread.len();
        assert!((ALIGN..=MAX_RECORD).contains(&len) && len.is_multiple_of(ALIGN));
        // The reader is at the ring's start now if it skipped the end.
        let skipped = self.reader.released() - self.at;
        assert!(skipped == 0 || self.reader.released().is_multiple_of(CAPACITY));
        self.at = self.reader.released();
        assert!(self.at % CAPACITY + len as u64 <= CAPACITY, "a record is in one piece");
        let parsed = record::parse(&unread, self.last_received);
        if let Some(record) = &parsed {
            let payload = record.payload.to_boxed();
            assert_eq!(payload.len(), usize::from(record.payload_len));
            self.last_received = Some((record.from, record.to));
            self.parsed = true;
            assert_round_trip(record, &payload);
        }
        self.reader.release(len);
        self.at += len as u64;
        if parsed.is_some() { Ok(()) } else { Err(ProtocolViolation) }
    }
}

/// Writes a record into another ring and parses it again.
fn assert_round_trip(record: &Record<'_>, payload: &[u8]) {
    let transmit = Transmit {
        to: (record.to, 1).into(),
        link: None,
        connection: None,
        context: None,
        path: PathId(0),
        marking: weft_rnic::Marking::default(),
        packet: record.packet,
        rdma: record.rdma,
        payload_len: record.payload_len,
        acknowledged: record.acknowledged,
    };
    BACK.with_borrow_mut(|shared| {
        // SAFETY: the memory lives as long as the thread.
        let memory = unsafe { Mapped::new(shared.start(), RING_BYTES) };
        let head = Head::new(&transmit, record.from, &mut None);
        if head.record_len() > MAX_RECORD {
            // The record was shorter, with known addresses: a record of this length is not written.
            return;
        }
        Writer::new(memory).write(head.record_len(), |room| {
            head.write(Source::Inline(payload), room);
        });
        shared.note(RECORDS, head.record_len().next_multiple_of(ALIGN) + 4);
        let unread = Reader::new(memory).peek().expect("it is one").expect("it is there");
        let again = record::parse(&unread, None).expect("it was written as it should");
        assert_eq!((again.from, again.to), (record.from, record.to));
        assert_eq!((again.packet, again.rdma), (record.packet, record.rdma));
        assert_eq!(again.acknowledged, record.acknowledged);
        assert_eq!(*again.payload.to_boxed(), *payload);
        shared.clean();
    });
}

fn ip(script: &mut Script<'_>) -> IpAddr {
    match script.below(3) {
        0 => [10, 0, 0, 1].into(),
        1 => [0, 0, 0, 0, 0, 0xffff, 0x0a00, 1].into(),
        _ => [0xfd00, 0, 0, 0, 0, 0, 0, script.half()].into(),
    }
}

fn transmit(script: &mut Script<'_>) -> Transmit {
    let payload_len = [0, 8, 25, 255, 256, 4096, 65_000][script.below(7)];
    let flags = script.byte().unwrap_or(0);
    let has = |bit: u8| flags >> bit & 1 != 0;
    let length = if has(0) { payload_len.into() } else { script.word() };
    let offset = if has(1) { 0 } else { script.word() };
    let message = MessageHeader { opcode: 4, tag: script.half(), id: 3, offset, length };
    let version = U4::truncate(1);
    let data = DataHeader { version, psn: 11, destination_cid: 12, ..DataHeader::default() };
    let rdma = RdmaHeader {
        solicited: has(2),
        destination_qp: U24::truncate(5),
        psn: U24::truncate(6),
        address: if has(3) { 1 << 40 } else { 0 },
        key: if has(3) { 7 } else { 0 },
        immediate: if has(4) { 9 } else { 0 },
        operands: None,
    };
    let acknowledged = has(5)
        .then_some(weft_transport::Acknowledgement { destination_cid: script.word(), psn_base: 1 });
    Transmit {
        to: (ip(script), 1).into(),
        link: None,
        connection: None,
        context: None,
        path: PathId(0),
        marking: weft_rnic::Marking::default(),
        packet: Packet::data(data, Some(message)).with_rdma(),
        rdma: Some(rdma),
        payload_len,
        acknowledged,
    }
}

/// Plays a script: a writer, and a neighbour that writes into the reader's words. Returns `true` if a record was
/// written.
///
/// # Panics
/// If the writer panics, or overwrites unread bytes.
pub fn writer(bytes: &[u8]) -> bool {
    RING.with_borrow_mut(|shared| {
        let mut script = Script::new(bytes);
        // SAFETY: the memory lives as long as the thread.
        let memory = unsafe { Mapped::new(shared.start(), RING_BYTES) };
        let mut writer = Writer::new(memory);
        let (mut written, mut read) = (0, 0);
        while let Some(step) = script.byte() {
            match step % 4 {
                0 => {
                    // Close to the written, or to the read position.
                    let from = [written, read, 0, u64::MAX][script.below(4)];
                    let claimed =
                        from.wrapping_add_signed(i64::from(script.half().cast_signed()) * 8);
                    shared.write(0, &claimed.to_ne_bytes());
                    read = claimed;
                }
                1 => shared.write(script.below(256), &[script.byte().unwrap_or(0)]),
                2 => {
                    writer.reader_sleeps();
                }
                _ => {
                    let Ok(room) = writer.has_room() else { break };
                    if room {
                        let len = 8 + usize::from(script.half()) % (MAX_RECORD - 7);
                        let before = writer.written();
                        writer.write(len, |room| room.put(&BODY[..len - 4]));
                        written = writer.written();
                        shared.note_record((before, written), len);
                    }
                }
            }
        }
        shared.clean();
        written > 0
    })
}

/// Plays a script: both ends of a table of leases, and a neighbour that writes into it. Returns `true` if this end got
/// a lease.
///
/// # Panics
/// If an end panics, names an impossible lease, or uses one that does not exist.
pub fn leases(bytes: &[u8]) -> bool {
    LEASES.with_borrow_mut(|shared| {
        let mut script = Script::new(bytes);
        // SAFETY: the memory lives as long as the thread.
        let table = unsafe { Mapped::new(shared.start(), LEASES_BYTES) };
        let (mut lender, mut borrower) = (Lender::new(table), Borrower::new(table));
        let mut known = Vec::new();
        while let Some(step) = script.byte() {
            match step % 6 {
                0 => {
                    let lease = lease(&mut script);
                    lender.lend(lease.connection, &lease);
                    shared.note(RECORDS, LEASES_BYTES);
                }
                1 => {
                    let key = script.below(4);
                    let looks = std::cell::Cell::new(0);
                    let is_gone = || looks.replace(looks.get() + 1) > 2;
                    lender.revoke(|lent| lent.key as usize == key, is_gone);
                }
                2 => shared.write(usize::from(script.half()), script.piece()),
                3 => {
                    shared.write(usize::from(script.half() & 1) * 64, &script.word().to_ne_bytes())
                }
                4 => borrower.take_leases(|number, _| {
                    let entry = usize::try_from(number & u64::from(u32::MAX)).expect("32 bits");
                    assert!(entry < LEASES_BYTES / 64 && number >> 32 != 0);
                    known.push(number);
                }),
                _ => {
                    let any = u64::from(script.half()) << 32 | u64::from(script.half());
                    let number = known.last().copied().unwrap_or(any);
                    let mut worked = false;
                    let done = borrower.with_lease(number, || {
                        worked = true;
                        true
                    });
                    assert_eq!(done, worked);
                }
            }
        }
        shared.clean();
        !known.is_empty()
    })
}

fn lease(script: &mut Script<'_>) -> Terms {
    Terms {
        connection: script.below(4).try_into().expect("a small number"),
        key: script.below(64).try_into().expect("a small number"),
        start: script.word().into(),
        length: script.word().into(),
        address: script.word().into(),
        writable: true,
        readable: false,
        backing: match script.below(3) {
            0 => Backing::Private,
            1 => Backing::Segment { id: script.word(), offset: script.word().into() },
            _ => {
                let (inode, offset) = (script.word().into(), script.word().into());
                Backing::File { descriptor: script.word(), device: script.word(), inode, offset }
            }
        },
    }
}

/// Reads bytes from a socket, with the number of descriptors in the first byte, as a neighbour's greeting. Bytes 11 to
/// 34 may be left out: then the greeting has this process's proof. Returns `true` if it is accepted.
///
/// # Panics
/// If a greeting without a valid proof is accepted, or one with a proof is refused.
pub fn greeting(bytes: &[u8]) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (theirs, ours) = pair.expect("there are descriptors");
    let mut script = Script::new(bytes);
    let how = script.byte().unwrap_or(0);
    // The kernel drops descriptors without room; a greeting with too many may be refused for that.
    let (brought, wanted) = (usize::from(how % 4), usize::from(how / 4 % 3));
    let kept = brought.min(2);
    let greeting_bytes = greeting_bytes(&mut script, how >= 128);
    send(theirs.as_fd(), &greeting_bytes, &vec![theirs.as_fd(); brought]);
    drop(theirs);
    let (address, own) = proof::own().expect("the kernel has randomness");
    let proves = greeting_bytes.len() == 34
        && greeting_bytes.starts_with(b"weft-sh\x06")
        && greeting_bytes[10..18] == address.to_ne_bytes()
        && greeting_bytes[18..] == own;
    match greeting::receive(&ours, wanted) {
        GreetingState::Accepted(greeting) => {
            assert!(proves && kept == wanted);
            assert_eq!(greeting.descriptors.len(), wanted);
            assert_eq!(greeting.port.to_ne_bytes(), greeting_bytes[8..10]);
            true
        }
        GreetingState::Refused => {
            let is_neighbour = proves && brought == wanted;
            assert!(!is_neighbour, "a greeting with a valid proof is accepted");
            false
        }
        GreetingState::Nothing => panic!("it hung up"),
    }
}

/// Returns the greeting's bytes.
fn greeting_bytes(script: &mut Script<'_>, with_proof: bool) -> Vec<u8> {
    if !with_proof {
        return script.rest().to_vec();
    }
    let (address, own) = proof::own().expect("the kernel has randomness");
    let mut greeting_bytes = script.take(10).to_vec();
    greeting_bytes.extend(address.to_ne_bytes());
    greeting_bytes.extend(own);
    // Some of them are changed.
    for change in script.rest().chunks_exact(2) {
        let at = usize::from(change[0]) % greeting_bytes.len();
        greeting_bytes[at] ^= change[1];
    }
    greeting_bytes
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let slice = [std::io::IoSlice::new(bytes)];
    // The bytes that the socket does not take are lost.
    let _ = sendmsg(socket, &slice, &mut control, SendFlags::NOSIGNAL);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::inputs::{corpus, survive};

    fn taken(target: &str, inputs: u64, property: fn(&[u8]) -> bool) -> u64 {
        let file = format!("tests/golden/{target}");
        let corpus = corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
        survive(&corpus, inputs, property)
    }

    #[test]
    fn no_neighbour_that_writes_into_its_ring_breaks_a_promise() {
        let parsed = taken("same_host.corpus", 20_000, records);
        assert!(parsed > 1_000, "only {parsed} had a record: the scripts are too wild");
    }

    #[test]
    fn no_neighbour_with_a_false_read_position_breaks_a_promise() {
        assert!(taken("same_host_writer.corpus", 5_000, writer) > 250);
    }

    #[test]
    fn no_neighbour_that_writes_into_a_table_of_leases_breaks_a_promise() {
        assert!(taken("same_host_leases.corpus", 20_000, leases) > 1_000);
    }

    #[test]
    fn a_greeting_is_accepted_if_and_only_if_its_proof_is_valid() {
        let welcome = taken("greeting.corpus", 5_000, greeting);
        assert!(welcome > 20, "only {welcome} were welcome");
    }
}
