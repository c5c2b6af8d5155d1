//! Random guests and front ends. A failure names its seed, and the seed becomes a named test.

use weft_units::{Rng, Seed};

#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod properties;

/// Returns 4 KiB of memory with descriptors, most of them valid.
fn table(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![4, u8::try_from(rng.below(18)).unwrap(), u8::from(rng.chance(1, 2))];
    for _ in 0..64 {
        let odd = rng.chance(1, 30);
        let address = if odd { rng.next_u64() } else { 0x1000 + rng.below(0x900) };
        let len = if odd { rng.next_u32() } else { 16 << rng.below(6) };
        let write = u16::from(bytes[2]) * 2;
        let flags = match rng.below(12) {
            0 => u16::try_from(rng.below(8)).unwrap(),
            1 => 4,
            2..8 => write | 1,
            _ => write,
        };
        bytes.extend(address.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(u16::try_from(rng.below(17)).unwrap().to_le_bytes());
    }
    bytes.resize(3 + 4_096, 0);
    bytes
}

#[test]
fn no_chain_leads_out_of_the_guests_memory_or_loops_forever() {
    let mut accepted = 0;
    for seed in 0..200_000 {
        let bytes = table(&mut Seed(seed).child("chain", 0).rng());
        let outcome = std::panic::catch_unwind(|| properties::chain(&bytes));
        accepted += u64::from(outcome.unwrap_or_else(|_| panic!("seed {seed}")).is_ok());
    }
    assert!(accepted > 20_000, "only {accepted} chains were valid");
}

/// Returns 4 KiB of memory with a packed ring, most of whose descriptors are valid and available.
fn packed_ring(rng: &mut Rng) -> Vec<u8> {
    let [index, purpose] = [16, 2].map(|below| u8::try_from(rng.below(below)).unwrap());
    let mut bytes = vec![15, index, purpose];
    for at in 0..64_u8 {
        let odd = rng.chance(1, 30);
        let address = if odd { rng.next_u64() } else { 0x1000 + rng.below(0x900) };
        let len = if odd { rng.next_u32() } else { 16 << rng.below(6) };
        let flags = match rng.below(12) {
            0 => u16::try_from(rng.below(8)).unwrap(),
            1 => 4,
            2..5 => (u16::from(purpose) * 2) | 1,
            _ => u16::from(purpose) * 2,
        };
        // The ring's descriptors before the walk's first one are a lap further.
        let lap = if rng.chance(1, 30) {
            [0, 0x80, 0x8000, 0x8080][rng.index(4)]
        } else if at < index {
            0x8000
        } else {
            0x80
        };
        bytes.extend(address.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(u16::try_from(rng.below(17)).unwrap().to_le_bytes());
        bytes.extend((flags | lap).to_le_bytes());
    }
    bytes.resize(3 + 4_096, 0);
    bytes
}

#[test]
fn no_chain_of_a_packed_ring_leads_out_of_the_guests_memory_or_loops_forever() {
    let mut accepted = 0;
    for seed in 0..200_000 {
        let bytes = packed_ring(&mut Seed(seed).child("packed", 0).rng());
        let outcome = std::panic::catch_unwind(|| properties::packed_chain(&bytes));
        accepted += u64::from(outcome.unwrap_or_else(|_| panic!("seed {seed}")).is_ok());
    }
    assert!(accepted > 20_000, "only {accepted} chains were valid");
}

/// Returns the script of a front end that is correct up to a random point.
fn script(rng: &mut Rng) -> Vec<u8> {
    let sound: &[[u8; 8]] = &[
        [1, 6, 0, 0, 0, 0, 0, 1],
        [16, 5, 0, 0, 0, 0, 0, 1],
        [3, 6, 0, 0, 0, 0, 0, 1],
        [2, 5, 0, 0x40, 0, 0, 0, 1],
        [5, 0, 0, 16, 0, 0, 1, 1],
        [8, 2, 0, 4, 0, 0, 0, 1],
        [8, 2, 1, 4, 0, 0, 0, 1],
        [10, 1, 0, 0, 0, 0, 0, 1],
        [10, 1, 1, 0, 0, 0, 0, 1],
        [9, 3, 0, 0, 64, 128, 0, 1],
        [9, 3, 1, 32, 96, 160, 0, 1],
        [13, 4, 0, 0, 0, 0, 2, 1],
        [12, 4, 0, 0, 0, 0, 2, 1],
        [12, 4, 1, 0, 0, 0, 2, 1],
        [18, 1, 0, 1, 0, 0, 0, 1],
        [18, 1, 1, 1, 0, 0, 0, 1],
        [11, 1, 1, 0, 0, 0, 0, 1],
        [12, 4, 1, 0, 0, 0, 2, 1],
    ];
    let mut script = sound.to_vec();
    if rng.chance(1, 3) {
        // Packed rings: virtio 1.0 and its bit are bits 32 and 34.
        script[3][4] = 5;
    }
    for _ in 0..rng.below(8) {
        let at = rng.index(script.len());
        match rng.below(4) {
            0 => script[at][rng.index(8)] = rng.next_u32().to_le_bytes()[0],
            1 => script.insert(at, sound[rng.index(sound.len())]),
            2 => drop(script.remove(at)),
            _ => script.insert(at, rng.next_u64().to_le_bytes()),
        }
    }
    script.concat()
}

#[test]
fn no_front_end_stops_the_process() {
    let mut up = 0;
    for seed in 0..2_000 {
        let bytes = script(&mut Seed(seed).child("script", 0).rng());
        let outcome = std::panic::catch_unwind(|| properties::front_end(&bytes));
        up += u64::from(outcome.unwrap_or_else(|_| panic!("seed {seed}")));
    }
    assert!(up > 500, "only {up} front ends had a device");
}

#[test]
fn every_front_end_of_the_corpus_has_a_device() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = inputs::corpus(&folder.join("tests/golden/front_end.corpus"));
    assert!(corpus.len() > 2 && corpus.iter().all(|script| properties::front_end(script)));
}
