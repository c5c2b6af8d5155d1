use loom::thread;

use super::{Model, check};
use crate::messages::{Consumer, Lane, Producer};

/// Room for one message of four bytes with its length, and half of the next.
const LANE: Lane = Lane { head: 0, tail: 64, start: 128, len: 16 };

/// A message is whole when its index is seen, and its room is reused only after it was removed.
#[test]
fn messages_arrive_whole_and_in_order() {
    check(|| {
        let memory = Model::new([LANE.head, LANE.tail], [], 128..144);
        let there = memory.clone();
        let pushes = thread::spawn(move || {
            let mut producer = Producer::new(LANE);
            for (number, len) in [(1, 8), (2, 8), (3, 4)] {
                let message = &[number; 8][..len];
                while !producer.push(&there, message).expect("the consumer keeps the rules") {
                    thread::yield_now();
                }
            }
        });
        let (mut consumer, mut message) = (Consumer::new(LANE), Vec::new());
        for (number, len) in [(1, 8), (2, 8), (3, 4)] {
            while !consumer.pop(&memory, &mut message).expect("the producer keeps the rules") {
                thread::yield_now();
            }
            assert_eq!(message, &[number; 8][..len]);
        }
        assert!(!consumer.has_any(&memory));
        pushes.join().unwrap();
    });
}
