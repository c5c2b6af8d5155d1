//! Tests with random attackers. A failure prints its seed, and the seed becomes a named test.

use weft_units::Seed;

mod properties;

#[test]
fn no_enemy_stops_an_endpoint_or_its_honest_peer() {
    let mut honest = 0;
    for seed in 0..1_500 {
        let mut rng = Seed(seed).child("enemy", 0).rng();
        let length = rng.index(3_000);
        let script: Vec<u8> = (0..length).map(|_| rng.next_u64().to_le_bytes()[3]).collect();
        let outcome = std::panic::catch_unwind(|| properties::endpoint(&script));
        honest += u64::from(outcome.unwrap_or_else(|_| panic!("seed {seed}")));
    }
    assert!(honest > 200, "only {honest} attackers used only their own address");
}
