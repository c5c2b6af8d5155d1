//! The model of an owner's memory.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// The change of memory by a request.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    /// Offset of the change.
    pub(super) at: usize,
    before: Vec<u8>,
    pub(super) after: Vec<u8>,
}

impl Effect {
    pub(super) fn range(&self) -> Range<usize> {
        self.at..self.at + self.after.len()
    }
}

/// The expected contents of one owner's memory once all posted requests are done.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) bytes: Vec<u8>,
    /// Other allowed values of a byte, since the execution of a request is unknown.
    alternatives: BTreeMap<usize, Vec<u8>>,
    /// Ranges with arbitrary contents.
    forgotten: Vec<Range<usize>>,
}

impl Image {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), alternatives: BTreeMap::new(), forgotten: Vec::new() }
    }

    /// Replaces bytes from offset `at`; returns the change.
    pub(super) fn change(&mut self, at: usize, after: &[u8]) -> Effect {
        let range = &mut self.bytes[at..at + after.len()];
        let before = range.to_vec();
        range.copy_from_slice(after);
        Effect { at, before, after: after.to_vec() }
    }

    /// Allows both the old and the new bytes of an effect, whose execution is unknown.
    pub(super) fn allow_either(&mut self, effect: &Effect) {
        for (at, both) in effect.range().zip(effect.before.iter().zip(&effect.after)) {
            self.alternatives.entry(at).or_default().extend([both.0, both.1]);
        }
    }

    /// Allows arbitrary contents in a range.
    pub(super) fn forget(&mut self, range: Range<usize>) {
        self.forgotten.push(range);
    }

    /// Returns `true` if memory shows the effect of a request, or a later request changes the same range.
    pub(super) fn shows(&self, effect: &Effect, memory: &[u8]) -> bool {
        let range = effect.range();
        self.bytes[range.clone()] != *effect.after || memory[range] == *effect.after
    }

    /// Returns the first byte with a value that is neither allowed nor `excused`.
    pub(super) fn differs(&self, memory: &[u8], excused: impl Fn(usize) -> bool) -> Option<usize> {
        let is_wrong = |&at: &usize| {
            memory[at] != self.bytes[at]
                && !self
                    .alternatives
                    .get(&at)
                    .is_some_and(|alternatives| alternatives.contains(&memory[at]))
                && !self.forgotten.iter().any(|range| range.contains(&at))
                && !excused(at)
        };
        (0..self.bytes.len()).find(is_wrong)
    }
}
