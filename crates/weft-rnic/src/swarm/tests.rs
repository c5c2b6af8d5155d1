use super::*;

/// Number of cases of a test run: about 300,000 work requests.
const CASES: u64 = 300;

#[test]
fn cases_hold_and_cover_all_kinds_of_events() {
    let mut all = Tally::default();
    for seed in 0..CASES {
        match run_case(seed) {
            Ok(tally) => all += &tally,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    // The cases must cover all kinds of events.
    let kinds = all.groups().map(|(name, counts)| (name, counts.len()));
    let expected =
        [("requests", 15), ("flags", 3), ("outcomes", 10), ("refusals", 30), ("faults", 6)];
    assert_eq!(kinds, expected, "{all:#?}");
    assert!(all.total_requests() > 250_000 && all.total_refusals() > 5_000, "{all:#?}");
}

#[test]
fn a_case_is_the_same_every_time() {
    assert_eq!(run_case(3), run_case(3));
}
