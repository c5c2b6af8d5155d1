use loom::sync::atomic::Ordering;
use loom::thread;

use super::{Model, check};
use crate::memory::Memory;
use crate::sequence::{publish, read};

/// A reader whose copy is reported whole has the words of one write.
#[test]
fn a_copy_is_of_one_write() {
    check(|| {
        let memory = Model::new([], [0, 8, 16], 0..0);
        let there = memory.clone();
        let writes = thread::spawn(move || {
            let first = publish(&there, 0, 0, 8, &[1, 1]);
            assert_eq!(publish(&there, 0, first, 8, &[2, 2]), 4);
        });
        // Copied in no order, as the kernel does for a reader of the file.
        let word = |at| memory.long(at).load(Ordering::Relaxed);
        let copied = read::<Model, _, ()>(|| Ok(word(0)), || Ok([word(8), word(16)]));
        if let Ok(Some([one, other])) = copied {
            assert_eq!(one, other, "of two writes");
        }
        writes.join().unwrap();
    });
}
