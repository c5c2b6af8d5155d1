//! The properties of `properties/` over good inputs that are changed at random, with fixed seeds.

use std::fs;
use std::path::Path;

use weft_units::Seed;

mod properties;

/// Returns the names and the bytes of the golden files, which are hexadecimal; `#` begins a comment.
fn golden() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut golden: Vec<_> = files
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            let lines = text.lines().filter_map(|line| line.split('#').next());
            let digits = lines.flat_map(str::split_whitespace);
            let bytes = digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
            (file.file_stem().unwrap().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    golden.sort();
    golden
}

#[test]
fn golden_inputs_parse_as_their_names_state() {
    for (name, bytes) in golden() {
        assert_eq!(properties::sealed(&bytes).is_ok(), name.starts_with("sealed"), "{name}");
    }
}

#[test]
fn nothing_that_an_attacker_writes_opens_or_does_harm() {
    let mut rng = Seed(1).child("mutations", 0).rng();
    let golden = golden();
    assert!(golden.len() >= 4);
    for round in 0..2_000 {
        let (_, bytes) = &golden[round % golden.len()];
        let mut bytes = bytes.clone();
        for _ in 0..rng.below(4) {
            let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
            match rng.below(3) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes.truncate(at + 1),
                _ => bytes.extend_from_within(at..),
            }
        }
        let _ = properties::sealed(&bytes);
    }
}
