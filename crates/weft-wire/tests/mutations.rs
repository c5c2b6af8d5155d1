//! Deterministic mutation fuzzing: every parser reads golden packets that are mutated as a faulty
//! network or an attacker would do. A failure prints the parser, the number of the input and its bytes.

use std::collections::{BTreeMap, BTreeSet};

use weft_units::{Rng, Seed};

mod files;
mod properties;

/// Number of inputs for each parser.
const INPUTS: u64 = 200_000;

fn byte(rng: &mut Rng) -> u8 {
    rng.next_u64().to_le_bytes()[7]
}

/// Returns a golden packet with one to four random changes.
fn mutant(golden: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = golden[rng.index(golden.len())].clone();
    for _ in 0..=rng.below(4) {
        mutate(&mut bytes, golden, rng);
    }
    bytes
}

/// Makes one random change.
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
        3 => bytes.extend((0..rng.below(80)).map(|_| byte(rng)).collect::<Vec<_>>()),
        4 => {
            // The start of this packet, then the end of another.
            let other = &golden[rng.index(golden.len())];
            bytes.truncate(rng.index(bytes.len() + 1));
            bytes.extend_from_slice(&other[rng.index(other.len() + 1)..]);
        }
        _ if !bytes.is_empty() => {
            // A field with all bits set or clear.
            let start = rng.index(bytes.len());
            let end = bytes.len().min(start + 1 + rng.index(4));
            bytes[start..end].fill(if rng.chance(1, 2) { 0xff } else { 0 });
        }
        _ => {}
    }
}

/// Returns the number of inputs for each parser and error reason; `accepted` counts valid inputs.
fn outcomes(inputs: impl Fn(&str, u64) -> Vec<u8>) -> BTreeMap<(&'static str, &'static str), u64> {
    let mut outcomes = BTreeMap::new();
    for &(parser, property) in properties::PARSERS {
        for index in 0..INPUTS {
            let bytes = inputs(parser, index);
            let outcome = std::panic::catch_unwind(|| property(&bytes))
                .unwrap_or_else(|_| panic!("{parser}, input {index}: {bytes:02x?}"));
            let reason = outcome.map_or_else(|error| error.reason(), |()| "accepted");
            *outcomes.entry((parser, reason)).or_insert(0) += 1;
        }
    }
    outcomes
}

#[test]
fn no_mutant_of_a_golden_packet_violates_a_property() {
    let golden = files::all();
    let outcomes =
        outcomes(|parser, index| mutant(&golden, &mut Seed(2).child(parser, index).rng()));

    for (parser, _) in properties::PARSERS {
        let accepted = outcomes.get(&(*parser, "accepted")).copied().unwrap_or(0);
        assert!(
            accepted > INPUTS / 100,
            "{parser} accepted only {accepted}: the mutations destroy too much"
        );
        assert!(accepted < INPUTS, "{parser} refused nothing: the mutations change too little");
    }
    let reasons: BTreeSet<_> = outcomes.keys().map(|(_, reason)| *reason).collect();
    let every_reason = [
        "accepted",
        "bitmap_too_long",
        "length_too_small",
        "malformed_option",
        "no_vni",
        "truncated",
        "unknown_cipher",
        "unknown_content",
        "unknown_frame_kind",
        "unknown_gso_type",
        "unknown_next",
        "unknown_packet_type",
        "unknown_version",
        "unknown_vxlan_next",
        "wrong_ip_version",
        "wrong_magic",
    ];
    assert_eq!(
        reasons,
        BTreeSet::from(every_reason),
        "no mutant reaches this refusal, so it is not tested"
    );
}

#[test]
fn random_bytes_violate_no_property() {
    let outcomes = outcomes(|parser, index| {
        let mut rng = Seed(3).child(parser, index).rng();
        let mut bytes: Vec<u8> = (0..rng.below(150)).map(|_| byte(&mut rng)).collect();
        // Half of the inputs begin with a byte that a parser accepts as the first.
        if let Some(first) = bytes.first_mut()
            && rng.chance(1, 2)
        {
            *first = [1, 2, 3, 8, 0x45, 0x60][rng.index(6)];
        }
        bytes
    });
    assert!(outcomes.keys().any(|(_, reason)| *reason == "accepted"));
}
