use loom::thread;

use super::{Model, check};
use crate::records::{ALIGN, ASLEEP, FULL, READ, RECORDS, Reader, RecordMemory, Writer};

/// Room for two records of two lines and the line after them: the third wraps to the beginning.
const LINES: usize = 5;

impl RecordMemory for Model {
    const CAPACITY: u64 = (LINES * ALIGN) as u64;
    const MAX_RECORD_BYTES: usize = 2 * ALIGN;
}

fn ring() -> (Writer<Model>, Reader<Model>) {
    let sizes = (0..LINES).map(|line| RECORDS + line * ALIGN);
    let words = [ASLEEP, FULL].into_iter().chain(sizes);
    let memory = Model::new(words, [READ], RECORDS..RECORDS + LINES * ALIGN);
    (Writer::new(memory.clone()), Reader::new(memory))
}

/// Takes the next record and checks its number, its first bytes and its last.
fn expect(reader: &mut Reader<Model>, number: u8, lines: usize) {
    let record = loop {
        match reader.peek().expect("the writer keeps the rules") {
            Some(record) => break record,
            None => thread::yield_now(),
        }
    };
    assert_eq!(record.len(), lines * ALIGN);
    let mut bytes = [0; 2 * ALIGN];
    record.copy_to(&mut bytes[..lines * ALIGN]);
    assert!(bytes[4..lines * ALIGN].iter().all(|&byte| byte == number), "record {number}");
    reader.release(record.len());
}

fn write(writer: &mut Writer<Model>, number: u8, lines: usize) {
    while !writer.has_room().expect("the reader keeps the rules") {
        thread::yield_now();
    }
    writer.write(lines * ALIGN, |room| room.put(&[number; 2 * ALIGN][..lines * ALIGN - 4]));
}

/// A record is whole when its size is seen, and its room is reused only after it was read.
#[test]
fn records_arrive_whole_and_in_order() {
    check(|| {
        let (mut writer, mut reader) = ring();
        let written = thread::spawn(move || {
            for (number, lines) in [(1, 2), (2, 2), (3, 1), (4, 1)] {
                write(&mut writer, number, lines);
            }
        });
        for (number, lines) in [(1, 2), (2, 2), (3, 1), (4, 1)] {
            expect(&mut reader, number, lines);
        }
        assert!(reader.is_empty());
        written.join().unwrap();
    });
}

/// The third record does not fit before the ring's end.
#[test]
fn the_end_of_the_ring_is_skipped() {
    check(|| {
        let (mut writer, mut reader) = ring();
        let written =
            thread::spawn(move || (1..=3).for_each(|number| write(&mut writer, number, 2)));
        (1..=3).for_each(|number| expect(&mut reader, number, 2));
        assert!(reader.is_empty());
        written.join().unwrap();
    });
}

/// A reader that found nothing after it set its sleep flag is woken.
#[test]
fn a_sleeping_reader_is_woken_for_a_record_it_missed() {
    check(|| {
        let (mut writer, reader) = ring();
        let woken = thread::spawn(move || {
            write(&mut writer, 1, 1);
            writer.reader_sleeps()
        });
        reader.set_asleep(true);
        let sleeps = reader.is_empty();
        assert!(woken.join().unwrap() || !sleeps, "asleep beside a record");
    });
}
