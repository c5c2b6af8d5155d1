use loom::sync::atomic::Ordering;
use loom::thread;

use super::{Model, check};
use crate::memory::Memory;
use crate::signal;

const FLAG: usize = 0;
const BOX: usize = 64;
const DOORBELL: usize = 128;

/// Two threads bring work independently; the sleeper checks both boxes a last time.
#[test]
fn a_sleeper_is_woken_for_work_it_missed() {
    check(|| {
        let memory = Model::new([FLAG, BOX, BOX + 4, DOORBELL], [], 0..0);
        let bring = |at| {
            let memory = memory.clone();
            thread::spawn(move || {
                memory.word(at).store(1, Ordering::Relaxed);
                if signal::is_armed::<Model>(memory.word(FLAG)) {
                    memory.word(DOORBELL).store(1, Ordering::Release);
                }
            })
        };
        let others = [bring(BOX), bring(BOX + 4)];
        signal::arm::<Model>(memory.word(FLAG));
        let nothing = [BOX, BOX + 4].map(|at| memory.word(at).load(Ordering::Relaxed) == 0);
        others.into_iter().for_each(|other| other.join().unwrap());
        let rung = memory.word(DOORBELL).load(Ordering::Acquire) == 1;
        assert!(rung || nothing == [false; 2], "asleep beside what was brought");
    });
}

/// A request withdrawn before it is answered has no signal on its way; one that was answered has.
#[test]
fn a_question_is_withdrawn_or_answered() {
    check(|| {
        let memory = Model::new([FLAG], [], 0..0);
        signal::arm::<Model>(memory.word(FLAG));
        let there = memory.clone();
        let answers = thread::spawn(move || signal::is_armed::<Model>(there.word(FLAG)));
        let withdrawn = signal::withdraw::<Model>(memory.word(FLAG));
        assert_ne!(withdrawn, answers.join().unwrap(), "both or neither");
    });
}
