//! Byte inputs for code that parses untrusted bytes: a corpus of the repository, its mutations, and a reader for inputs
//! that are scripts of operations. Tests and fuzz targets of several crates include this file.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use weft_units::{Rng, Seed};

/// An input that is read once from front to back.
#[derive(Debug)]
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the next byte; `None` at the end.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Returns a number below `bound` from one byte; zero at the end.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte().unwrap_or(0)) % bound
    }

    /// Returns a big-endian number from two bytes; missing bytes are zero.
    pub fn half(&mut self) -> u16 {
        u16::from_be_bytes([0; 2].map(|_: u8| self.byte().unwrap_or(0)))
    }

    /// Returns a big-endian number from four bytes; missing bytes are zero.
    pub fn word(&mut self) -> u32 {
        u32::from_be_bytes([0; 4].map(|_: u8| self.byte().unwrap_or(0)))
    }

    /// Returns `len` bytes, or fewer at the end.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Reads a length from one byte and returns that many bytes, or fewer at the end.
    pub fn piece(&mut self) -> &'a [u8] {
        let len = self.below(256);
        self.take(len)
    }

    /// Returns the rest of the input.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(self.0.len())
    }
}

/// Returns the inputs of a corpus file. Each line is an input in hexadecimal digits; `#` starts a comment.
///
/// # Panics
/// Panics if the file cannot be read or a line is not hexadecimal.
pub fn corpus(path: &Path) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(path).expect("the corpus is part of the repository");
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let digits = |pair: &[u8]| {
        let pair = str::from_utf8(pair).expect("hexadecimal digits");
        u8::from_str_radix(pair, 16).unwrap_or_else(|_| panic!("{pair:?} is not a byte"))
    };
    let inputs = lines.filter(|line| !line.is_empty());
    inputs.map(|line| line.as_bytes().chunks(2).map(digits).collect()).collect()
}

/// Passes every input of a corpus and then `mutants` mutated ones to `property`, and returns the number for which it
/// returned `true`. A failure prints the input.
///
/// # Panics
/// Panics if the property does not hold.
pub fn survive(corpus: &[Vec<u8>], mutants: u64, property: impl Fn(&[u8]) -> bool) -> u64 {
    let mut accepted = 0;
    let damaged =
        (0..mutants).map(|index| mutant(corpus, &mut Seed(1).child("mutant", index).rng()));
    for input in corpus.iter().cloned().chain(damaged) {
        let outcome = catch_unwind(AssertUnwindSafe(|| property(&input)));
        let digits = || input.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        accepted += u64::from(outcome.unwrap_or_else(|_| panic!("the input is {}", digits())));
    }
    accepted
}

fn byte(rng: &mut Rng) -> u8 {
    rng.next_u32().to_be_bytes()[0]
}

/// Returns an input of a corpus after one to four random changes.
fn mutant(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = corpus[rng.index(corpus.len())].clone();
    for _ in 0..=rng.below(4) {
        let at = rng.index(bytes.len() + 1);
        match rng.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, byte(rng)),
            2 => {
                // The head of this input is followed by the tail of another.
                let other = &corpus[rng.index(corpus.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[rng.index(other.len() + 1)..]);
            }
            3 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            4 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.index(5)],
            _ if at < bytes.len() => bytes[at] = byte(rng),
            _ => {}
        }
    }
    bytes
}
