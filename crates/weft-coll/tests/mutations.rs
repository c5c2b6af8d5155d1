//! Message headers with flipped bits.

mod properties;

use weft_units::Seed;

#[test]
fn every_header_is_parsed_or_refused() {
    let mut rng = Seed(1).child("heads", 0).rng();
    let mut good = [0; 64];
    good[..3].copy_from_slice(b"wc\x02");
    let mut read = 0;
    for _ in 0..200_000 {
        let mut bytes = good;
        for _ in 0..1 + rng.index(6) {
            bytes[rng.index(64)] = rng.next_u64().to_le_bytes()[0] >> rng.index(8);
        }
        read += u32::from(properties::header(&bytes[..rng.index(65)]).is_ok());
    }
    assert!((1_000..100_000).contains(&read), "{read} were heads");
}
