//! The properties of a client's messages and rings under any bytes. Tests and fuzz targets call this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use weft_ring::Memory;
use weft_ring::messages::{self, Lane};

use super::{
    Answer, Consumer, MAX_MESSAGE, Notice, Page, Producer, Refusal, Request, Work, decode, encode,
};
use crate::inputs::Script;

/// Reads bytes as a value; if that succeeds, writes it and reads it again. Evaluates to `true` if they were a value.
/// Numbers have more than one form in postcard: bytes may differ, values may not.
macro_rules! round_trips {
    ($value:ty, $bytes:expr) => {{
        let value = decode::<$value>($bytes);
        if let Some(value) = &value {
            let mut again = Vec::new();
            encode(value, &mut again);
            assert!(again.len() <= $bytes.len(), "the shortest form is written");
            assert!(decode::<$value>(&again).as_ref() == Some(value), "a value stays what it is");
        }
        value.is_some()
    }};
}

/// Reads bytes as a client's message, a daemon's answer and records of both rings. A value that is read is written and
/// read again as the same. Returns `true` if the bytes were any of these.
///
/// # Panics
/// If a value changes on its way.
pub fn message(bytes: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(MAX_MESSAGE)];
    let is_any = [
        round_trips!(Request, bytes),
        round_trips!(Result<Answer, Refusal>, bytes),
        round_trips!(Work<'_>, bytes),
        round_trips!(Notice, bytes),
    ];
    is_any.contains(&true)
}

/// The offsets of the first page's words, all of which a client may write.
const WORDS: [usize; 7] = [
    Page::WORK.head,
    Page::WORK.tail,
    Page::NOTICES.head,
    Page::NOTICES.tail,
    Page::DAEMON_SLEEPS,
    Page::PROCESS_WAITS,
    Page::DAEMON_STALLS,
];

/// The initial indices of the rings in these scripts: zero, near the ring's end, near the overflow, and unaligned.
const BEGINNINGS: [u32; 4] = [0, Page::RING - 16, 0_u32.wrapping_sub(16), 7];

thread_local! {
    /// The pages are made once: system calls would take most of the time.
    static PAGE: RefCell<Page> = RefCell::new(Page::create().expect("there is memory"));
}

/// Plays a script: the daemon's ends of the rings, and a client that writes into them. Returns `true` if the daemon
/// took a record.
///
/// # Panics
/// If the daemon's ends panic, or read or write a record that is not there.
pub fn ring(bytes: &[u8]) -> bool {
    PAGE.with_borrow(|page| {
        let mut script = Script::new(bytes);
        let begin = BEGINNINGS[script.below(BEGINNINGS.len())];
        let mut rings = Rings::new(page, begin);
        while let Some(step) = script.byte() {
            if !rings.play(step, &mut script) {
                break;
            }
        }
        rings.clean();
        rings.taken
    })
}

/// Both ends of both rings.
struct Rings<'a> {
    page: &'a Page,
    /// The daemon's ends, and the expected values of its indices.
    work: Consumer,
    notices: Producer,
    head: u32,
    tail: u32,
    /// The client's ends, for correct use.
    posting: Producer,
    notices_read: Consumer,
    record: Vec<u8>,
    /// The writes since the page was all zeroes.
    written: Vec<(Lane, u32, usize)>,
    taken: bool,
}

impl<'a> Rings<'a> {
    fn new(page: &'a Page, begin: u32) -> Self {
        WORDS.iter().for_each(|&word| page.word(word).store(0, Ordering::Relaxed));
        for lane in [Page::WORK, Page::NOTICES] {
            page.word(lane.head).store(begin, Ordering::Relaxed);
            page.word(lane.tail).store(begin, Ordering::Relaxed);
        }
        Self {
            page,
            work: Consumer::at(Page::WORK, begin),
            notices: Producer::at(Page::NOTICES, begin),
            head: begin,
            tail: begin,
            posting: Producer::at(Page::WORK, begin),
            notices_read: Consumer::at(Page::NOTICES, begin),
            record: Vec::new(),
            written: Vec::new(),
            taken: false,
        }
    }

    /// Does one step. Returns `false` if the daemon ends the client.
    fn play(&mut self, step: u8, script: &mut Script<'_>) -> bool {
        match step % 7 {
            0 => {
                let record = script.piece();
                self.written.push((Page::WORK, self.posting.tail(), record.len() + 4));
                let _ = self.posting.push(self.page, record);
            }
            1 => {
                let word = WORDS[script.below(WORDS.len())];
                self.page.word(word).store(script.word(), Ordering::Release);
            }
            2 => {
                // An index close to the daemon's.
                let word = WORDS[script.below(WORDS.len())];
                let near = self.head.wrapping_add_signed(i32::from(script.half().cast_signed()));
                self.page.word(word).store(near, Ordering::Release);
            }
            3 => {
                let near = script.byte().unwrap_or(0).cast_signed();
                let at = self.head.wrapping_add_signed(near.into());
                self.write(at, script.piece());
            }
            4 => self.write(self.head, &script.word().to_ne_bytes()),
            5 => return self.daemon_reads(),
            _ => return self.daemon_writes(script),
        }
        true
    }

    fn write(&mut self, at: u32, bytes: &[u8]) {
        Page::WORK.write(self.page, at, bytes);
        self.written.push((Page::WORK, at, bytes.len()));
    }

    fn daemon_reads(&mut self) -> bool {
        let tail = self.page.word(Page::WORK.tail).load(Ordering::Relaxed);
        assert_eq!(self.work.has_any(self.page), tail != self.head);
        let Ok(any) = self.work.pop(self.page, &mut self.record) else { return false };
        assert_eq!(any, tail != self.head, "a record is reported if and only if there is one");
        if any {
            assert!(self.record.len() <= messages::MAX_MESSAGE);
            let len = u32::try_from(self.record.len()).expect("a short record") + 4;
            assert!(len <= tail.wrapping_sub(self.head), "it was written");
            self.head = self.head.wrapping_add(len);
            let reported = self.page.word(Page::WORK.head).load(Ordering::Relaxed);
            assert_eq!(reported, self.head, "the client sees the daemon's index");
            message(&self.record);
        }
        self.taken |= any;
        true
    }

    fn daemon_writes(&mut self, script: &mut Script<'_>) -> bool {
        let record = vec![0xa5; script.below(8) * 37];
        let read = self.page.word(Page::NOTICES.head).load(Ordering::Relaxed);
        let waiting = self.tail.wrapping_sub(read);
        let Ok(written_now) = self.notices.push(self.page, &record) else {
            assert!(waiting > Page::RING, "a client that reads correctly is not ended");
            return false;
        };
        let len = u32::try_from(record.len()).expect("a short record") + 4;
        assert_eq!(
            written_now,
            waiting + len <= Page::RING,
            "a record is written if and only if there is room"
        );
        if written_now {
            self.written.push((Page::NOTICES, self.tail, record.len() + 4));
            let mut there = vec![0; record.len()];
            Page::NOTICES.read(self.page, self.tail.wrapping_add(4), &mut there);
            assert_eq!(there, record);
            self.tail = self.tail.wrapping_add(len);
            assert_eq!(self.page.word(Page::NOTICES.tail).load(Ordering::Relaxed), self.tail);
            let _ = self.notices_read.pop(self.page, &mut self.record);
        }
        true
    }

    fn clean(&mut self) {
        for (lane, at, len) in self.written.drain(..) {
            lane.write(self.page, at, &vec![0; len]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::inputs::{corpus, survive};

    fn inputs(target: &str) -> Vec<Vec<u8>> {
        corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(target))
    }

    #[test]
    fn no_damaged_message_breaks_a_promise() {
        let taken = survive(&inputs("daemon_message.corpus"), 50_000, message);
        assert!(taken > 2_500, "only {taken} were messages: the mutants are too wild");
    }

    #[test]
    fn no_client_that_writes_into_its_rings_breaks_a_promise() {
        let taken = survive(&inputs("daemon_ring.corpus"), 50_000, ring);
        assert!(taken > 2_500, "only {taken} handed a record over: the scripts are too wild");
    }
}
