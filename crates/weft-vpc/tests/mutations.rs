//! Deterministic mutation fuzzing: golden frames, damaged in the ways that a guest may damage them by
//! mistake or on purpose. A failure prints the input and its bytes.

use std::collections::{BTreeMap, BTreeSet};

use weft_units::{Rng, Seed};

mod files;
mod properties;

const INPUTS: u64 = 200_000;

fn byte(rng: &mut Rng) -> u8 {
    rng.next_u64().to_le_bytes()[7]
}

/// Returns a golden frame with one to four random changes.
fn mutant(golden: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = golden[rng.index(golden.len())].clone();
    for _ in 0..=rng.below(4) {
        mutate(&mut bytes, golden, rng);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, golden: &[Vec<u8>], rng: &mut Rng) {
    match rng.below(6) {
        0 if !bytes.is_empty() => {
            let bit = rng.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        1 if !bytes.is_empty() => {
            let index = rng.index(bytes.len());
            bytes[index] = byte(rng);
        }
        2 => bytes.truncate(rng.index(bytes.len() + 1)),
        3 => bytes.extend((0..rng.below(600)).map(|_| byte(rng)).collect::<Vec<_>>()),
        4 => {
            // The head of this frame, then the tail of another.
            let other = &golden[rng.index(golden.len())];
            bytes.truncate(rng.index(bytes.len() + 1));
            bytes.extend_from_slice(&other[rng.index(other.len() + 1)..]);
        }
        _ if !bytes.is_empty() => {
            // A field of all ones or all zeros.
            let start = rng.index(bytes.len());
            let end = bytes.len().min(start + 1 + rng.index(4));
            bytes[start..end].fill(if rng.chance(1, 2) { 0xff } else { 0 });
        }
        _ => {}
    }
}

/// Returns the number of mutants by property and outcome.
fn outcomes(golden: &[Vec<u8>]) -> BTreeMap<(&'static str, &'static str), u64> {
    let mut outcomes = BTreeMap::new();
    for &(name, property) in properties::PROPERTIES {
        for index in 0..INPUTS {
            let bytes = mutant(golden, &mut Seed(5).child(name, index).rng());
            let outcome = std::panic::catch_unwind(|| property(&bytes))
                .unwrap_or_else(|_| panic!("{name}, input {index}: {bytes:02x?}"));
            *outcomes.entry((name, outcome)).or_insert(0) += 1;
        }
    }
    outcomes
}

#[test]
fn no_mutant_of_a_golden_frame_violates_a_property() {
    let outcomes = outcomes(&files::all());
    let reasons = |name| -> BTreeSet<_> {
        outcomes.keys().filter(|key| key.0 == name).map(|(_, outcome)| *outcome).collect()
    };
    let of_frames = [
        "accepted",
        "group_source",
        "source_route",
        "tiny_fragment",
        "too_many_extensions",
        "truncated",
        "unknown_gso_type",
        "wrong_ip_version",
        "wrong_length",
    ];
    let of_offloads = [
        "as_it_is",
        "checksum_outside",
        "completed",
        "cut",
        "ecn_without_tcp",
        "header_length",
        "no_frame",
        "of_fragment",
        "segment_size",
        "segments_without_checksum",
        "too_many_datagrams",
        "trailing_bytes",
        "udp_fragments",
        "wrong_kind",
    ];
    let of_tables = ["announced", "answered", "no_frame", "nothing"];
    for (name, expected) in
        [("tenant_frame", &of_frames[..]), ("offload", &of_offloads[..]), ("table", &of_tables[..])]
    {
        let expected: BTreeSet<_> = expected.iter().copied().collect();
        assert_eq!(reasons(name), expected, "{name}: an outcome no mutant reaches is not tested");
    }
}

#[test]
fn every_golden_frame_is_accepted() {
    for (name, _) in files::FILES {
        assert_eq!(properties::tenant_frame(&files::golden(name)), "accepted", "{name}");
    }
}
