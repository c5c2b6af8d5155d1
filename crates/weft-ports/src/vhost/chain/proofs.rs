//! Bounded proof of the walk: a guest answers each read of a descriptor in every way that makes a
//! difference, differently each time, like one that rewrites its memory meanwhile. All answers to
//! the first three reads are tried (`docs/design/proofs.md`).

use std::cell::RefCell;

use super::*;

/// Number of descriptor reads that are varied.
const READS: usize = 3;
/// The table's address and size.
const TABLE: u64 = 0x1000;
const SIZE: u16 = 2;

/// An iterator over sequences of choices, depth first.
#[derive(Default)]
struct Choices {
    /// Each choice and its number of alternatives.
    made: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        if self.at == self.made.len() {
            self.made.push((0, of.len()));
        }
        let (chosen, count) = self.made[self.at];
        assert_eq!(count, of.len(), "a walk depends on the answers alone");
        self.at += 1;
        of[chosen]
    }

    /// Advances to the next sequence; returns `false` after the last.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, count)) = self.made.pop() {
            if chosen + 1 < count {
                self.made.push((chosen + 1, count));
                return true;
            }
        }
        false
    }
}

#[derive(Default)]
struct Answers {
    choices: Choices,
    reads: usize,
    /// `true` for a packed ring.
    packed: bool,
    /// Tables of descriptors: address and size.
    tables: Vec<(u64, u64)>,
    /// Ranges that were reported as the guest's memory.
    held: Vec<(u64, u32)>,
}

struct Guest(RefCell<Answers>);

impl Descriptors for Guest {
    fn descriptor(&self, address: u64) -> Option<[u8; 16]> {
        let answers = &mut *self.0.borrow_mut();
        let from = |&(table, count): &(u64, u64)| {
            let offset = address.wrapping_sub(table);
            offset.is_multiple_of(16) && offset / 16 < count
        };
        assert!(answers.tables.iter().any(from), "read at {address:#x}, outside the tables");
        answers.reads += 1;
        if answers.reads > READS || !answers.choices.pick(&[true, false]) {
            return None;
        }
        let is_in_ring = address.wrapping_sub(TABLE) < 16 * u64::from(SIZE);
        let choices = &mut answers.choices;
        let address = choices.pick(&[0x2000, u64::MAX - 15]);
        let len = choices.pick(&[0, 1, 16, 17, 32, u32::MAX]);
        let flags = choices.pick(&[0_u16, 1, 2, 3, 4, 5, 6, 7]);
        let fields = if !answers.packed {
            [flags, choices.pick(&[0, SIZE - 1, SIZE, u16::MAX])]
        } else if is_in_ring {
            // The identifier; available in one lap or in the other.
            [choices.pick(&[0, u16::MAX]), flags | choices.pick(&[1 << 7, 1 << 15])]
        } else {
            [0, flags]
        };
        if u32::from(flags) & VRING_DESC_F_INDIRECT != 0 {
            answers.tables.push((address, (len / 16).into()));
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..].copy_from_slice(&fields.map(u16::to_le_bytes).concat());
        Some(bytes)
    }

    fn holds(&self, address: u64, len: u32) -> bool {
        let answers = &mut *self.0.borrow_mut();
        let held = answers.choices.pick(&[true, false]);
        answers.held.extend(held.then_some((address, len)));
        held
    }
}

#[test]
fn a_walk_stays_in_its_tables_and_gives_memory_of_the_guests_only() {
    let (mut walks, mut good) = (0_u64, 0_u64);
    for purpose in [Purpose::Sent, Purpose::Received] {
        let mut choices = Choices::default();
        loop {
            let tables = vec![(TABLE, SIZE.into())];
            let guest = Guest(RefCell::new(Answers { choices, tables, ..Answers::default() }));
            let mut segments = vec![];
            let walked = walk(&guest, TABLE, SIZE, 0, purpose, &mut segments);
            let Answers { choices: made, held, .. } = guest.0.into_inner();
            choices = made;
            let mut start = 0_u64;
            for segment in &segments {
                assert!(held.contains(&(segment.address, segment.len)), "{segment:?}");
                assert!(segment.len > 0 && u64::from(segment.start) == start);
                start += u64::from(segment.len);
            }
            if let Ok(total) = walked {
                assert_eq!(u64::from(total), start);
                good += 1;
            }
            walks += 1;
            if !choices.advance() {
                break;
            }
        }
    }
    println!("{walks} walks, of which {good} to a chain's end");
    assert!(good > 1000);
}

#[test]
fn a_walk_of_a_packed_ring_stays_in_its_tables_and_gives_memory_of_the_guests_only() {
    let (mut walks, mut good) = (0_u64, 0_u64);
    let starts = [0, 1].map(|index| Position { index, wrap: true });
    for (purpose, at) in [Purpose::Sent, Purpose::Received].into_iter().zip(starts) {
        let mut choices = Choices::default();
        loop {
            let tables = vec![(TABLE, SIZE.into())];
            let answers = Answers { choices, packed: true, tables, ..Answers::default() };
            let guest = Guest(RefCell::new(answers));
            let mut segments = vec![];
            let walked = walk_packed(&guest, TABLE, SIZE, at, purpose, &mut segments);
            let Answers { choices: made, held, .. } = guest.0.into_inner();
            choices = made;
            let mut start = 0_u64;
            for segment in &segments {
                assert!(held.contains(&(segment.address, segment.len)), "{segment:?}");
                assert!(segment.len > 0 && u64::from(segment.start) == start);
                start += u64::from(segment.len);
            }
            if let Ok(chain) = walked {
                assert_eq!(u64::from(chain.len), start);
                assert!((1..=SIZE).contains(&chain.descriptors));
                good += 1;
            }
            walks += 1;
            if !choices.advance() {
                break;
            }
        }
    }
    println!("{walks} walks of packed rings, of which {good} to a chain's end");
    assert!(good > 1000);
}

/// A chain without end is abandoned after [`MAX_DESCRIPTORS`] descriptors, and the one that names an indirect table.
#[test]
fn a_walk_ends() {
    struct Endless {
        indirect: bool,
        reads: RefCell<usize>,
    }
    impl Descriptors for Endless {
        fn descriptor(&self, _: u64) -> Option<[u8; 16]> {
            let is_table = self.indirect && *self.reads.borrow() == 0;
            *self.reads.borrow_mut() += 1;
            let mut bytes = [0; 16];
            (bytes[8], bytes[12]) = if is_table { (16, 4) } else { (1, 1) };
            Some(bytes)
        }
        fn holds(&self, _: u64, _: u32) -> bool {
            true
        }
    }
    for indirect in [false, true] {
        let guest = Endless { indirect, reads: RefCell::new(0) };
        let mut segments = vec![];
        let walked = walk(&guest, TABLE, SIZE, 0, Purpose::Sent, &mut segments);
        assert_eq!(walked, Err(ChainError::Loop));
        let reads = MAX_DESCRIPTORS + usize::from(indirect);
        assert_eq!((guest.reads.into_inner(), segments.len()), (reads, MAX_DESCRIPTORS));
    }
}

/// Any part of any buffer of three pieces, also where the buffer ends at 4 GiB.
#[test]
fn a_part_of_a_buffer_is_found_in_its_pieces() {
    for before in [0, u32::MAX - 12] {
        for lens in (0..64).map(|lens: u32| [1 + lens % 4, 1 + lens / 4 % 4, 1 + lens / 16]) {
            let mut start = before;
            let mut segments = vec![];
            if before > 0 {
                segments.push(Segment { address: 1 << 40, len: before, start: 0 });
            }
            for (len, address) in lens.into_iter().zip([0x2000, u64::MAX - 15, 0x4000]) {
                segments.push(Segment { address, len, start });
                start += len;
            }
            for (offset, len) in
                (before..=start).flat_map(|from| (0..=start - from).map(move |len| (from, len)))
            {
                let mut seen = vec![];
                for_each_piece(&segments, offset, len as usize, |address, range| {
                    assert_eq!(range.start, seen.len());
                    seen.extend((0..range.len() as u64).map(|at| address + at));
                    Ok::<(), ()>(())
                })
                .unwrap();
                let place = |at: u32| {
                    let segment = segments.iter().rfind(|one| one.start <= at).unwrap();
                    segment.address + u64::from(at - segment.start)
                };
                assert!(seen.into_iter().eq((offset..offset + len).map(place)));
            }
        }
    }
}
