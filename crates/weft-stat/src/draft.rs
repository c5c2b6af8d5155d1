//! The content of a status file in preparation: the directory and the records of its tables.

use crate::layout::{DIRECTORY, HEADER_WORDS};
use crate::records::Record;

/// The next content of a status file.
#[derive(Debug, Default)]
pub struct Draft {
    words: Vec<u64>,
}

impl Draft {
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.words.resize(HEADER_WORDS, 0);
    }

    pub(crate) const fn words(&self) -> &[u64] {
        self.words.as_slice()
    }

    pub(crate) const fn words_mut(&mut self) -> &mut Vec<u64> {
        &mut self.words
    }

    /// Appends a record. Records of one kind must be consecutive.
    ///
    /// # Panics
    /// Panics if another kind of record was pushed in between.
    pub fn push<R: Record>(&mut self, record: &R) {
        let entry = DIRECTORY + 3 * R::TABLE;
        let end = self.words.len() as u64;
        if self.words[entry + 1] == 0 {
            self.words[entry] = end;
            self.words[entry + 2] = R::WORDS as u64;
        }
        let expected = self.words[entry] + self.words[entry + 1] * R::WORDS as u64;
        assert_eq!(expected, end, "records of one kind must be consecutive");
        self.words[entry + 1] += 1;
        record.put(&mut self.words);
    }
}
