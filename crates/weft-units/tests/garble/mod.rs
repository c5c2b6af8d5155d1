//! Mutation of valid texts by bytes, numbers, words and lines. It tests the parsers of texts that people write.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::path::Path;

use weft_units::{Rng, Seed};

/// Numbers at which parsers tend to fail.
const EXTREMES: &[&str] = &[
    "0",
    "-1",
    "1",
    "255",
    "256",
    "65535",
    "65536",
    "1048576",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "0.1",
    "1e-300",
    "1e300",
    "nan",
    "inf",
    "18446744073s",
    "18446744073Gbps",
    "16777216GiB",
    "0ns",
];

const BYTES: &[u8] = b"0123456789 \n\t\r-+.,:;=#>/\"'[]{}GKMkbpsnueaxz_\\\0\xc3\xa9";

/// Returns the contents of every file of a folder, ordered by file name.
///
/// # Panics
/// Panics if the folder has no file.
pub fn files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("the folder is part of the repository");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| std::fs::read(path).expect("it can be read")).collect()
}

/// Passes `inputs` mutated texts to `property` and returns the number for which it returned `true`. A failure prints
/// the text.
///
/// # Panics
/// Panics if the property does not hold.
pub fn survive(golden: &[Vec<u8>], inputs: u64, property: impl Fn(&[u8]) -> bool) -> u64 {
    let mut accepted = 0;
    for index in 0..inputs {
        let text = garbled(golden, &mut Seed(1).child("garble", index).rng());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| property(&text)));
        let is_accepted = outcome
            .unwrap_or_else(|_| panic!("input {index}: {:?}", String::from_utf8_lossy(&text)));
        accepted += u64::from(is_accepted);
    }
    accepted
}

/// Returns a valid text after one to four random changes.
pub fn garbled(golden: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut text = golden[rng.index(golden.len())].clone();
    for _ in 0..=rng.below(4) {
        change(&mut text, golden, rng);
    }
    text
}

fn change(text: &mut Vec<u8>, golden: &[Vec<u8>], rng: &mut Rng) {
    if text.is_empty() {
        return text.push(BYTES[rng.index(BYTES.len())]);
    }
    let at = rng.index(text.len());
    match rng.below(8) {
        0 => text[at] = BYTES[rng.index(BYTES.len())],
        1 => text.insert(at, BYTES[rng.index(BYTES.len())]),
        2 => drop(text.remove(at)),
        3 => text.truncate(at),
        4 => {
            // The head of this text is followed by the tail of another.
            let other = &golden[rng.index(golden.len())];
            text.truncate(at);
            text.extend_from_slice(&other[rng.index(other.len() + 1)..]);
        }
        5 => lines(text, rng),
        _ => number(text, at, rng),
    }
}

/// Replaces the first number after `at` by an extreme one.
fn number(text: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = text[at..].iter().position(is_digit).map(|step| at + step) else { return };
    let end =
        text[start..].iter().position(|byte| !is_digit(byte)).map_or(text.len(), |n| start + n);
    let extreme = EXTREMES[rng.index(EXTREMES.len())];
    text.splice(start..end, extreme.bytes());
}

/// Removes, duplicates or moves a line.
fn lines(text: &mut Vec<u8>, rng: &mut Rng) {
    let mut lines: Vec<_> =
        text.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let (from, to) = (rng.index(lines.len()), rng.index(lines.len()));
    match rng.below(3) {
        0 => drop(lines.remove(from)),
        1 => lines.insert(to, lines[from].clone()),
        _ => lines.swap(from, to),
    }
    *text = lines.concat();
}
