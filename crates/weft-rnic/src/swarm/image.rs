//! What memory must be.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// What a request makes of memory.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) at: usize,
    before: Vec<u8>,
    pub(super) after: Vec<u8>,
}

impl Effect {
    pub(super) fn range(&self) -> Range<usize> {
        self.at..self.at + self.after.len()
    }
}

/// One owner's memory as it must be once everything that was posted is done.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) bytes: Vec<u8>,
    /// What else a byte may be, for nobody knows what became of a request.
    doubts: BTreeMap<usize, Vec<u8>>,
    /// Where anything may be.
    forgotten: Vec<Range<usize>>,
}

impl Image {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), doubts: BTreeMap::new(), forgotten: Vec::new() }
    }

    pub(super) fn change(&mut self, at: usize, after: &[u8]) -> Effect {
        let place = &mut self.bytes[at..at + after.len()];
        let before = place.to_vec();
        place.copy_from_slice(after);
        Effect { at, before, after: after.to_vec() }
    }

    /// Nobody knows whether it happened, or how much of it.
    pub(super) fn doubt(&mut self, effect: &Effect) {
        for (at, both) in effect.range().zip(effect.before.iter().zip(&effect.after)) {
            self.doubts.entry(at).or_default().extend([both.0, both.1]);
        }
    }

    pub(super) fn forget(&mut self, range: Range<usize>) {
        self.forgotten.push(range);
    }

    /// Whether memory is what this request made of it, as far as no later one changes it too.
    pub(super) fn shows(&self, effect: &Effect, memory: &[u8]) -> bool {
        let range = effect.range();
        self.bytes[range.clone()] != *effect.after || memory[range] == *effect.after
    }

    /// The first byte that may not be as it is, unless it is excused.
    pub(super) fn differs(&self, memory: &[u8], excused: impl Fn(usize) -> bool) -> Option<usize> {
        let is_wrong = |&at: &usize| {
            memory[at] != self.bytes[at]
                && !self.doubts.get(&at).is_some_and(|doubts| doubts.contains(&memory[at]))
                && !self.forgotten.iter().any(|range| range.contains(&at))
                && !excused(at)
        };
        (0..self.bytes.len()).find(is_wrong)
    }
}
