use super::*;

/// The seeds of this test are fixed, so that a failure is a change's doing; `weft sim swarm` runs
/// as many others as asked.
#[test]
fn four_hundred_cases_hold_every_invariant() {
    let workers = std::thread::available_parallelism().map_or(1, Into::into);
    let summary = run_swarm(0, 400, workers, |_| {});
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    // A swarm that loses nothing or moves nothing tests nothing.
    assert!(summary.lost > 1_000 && summary.messages > 5_000, "{summary:?}");
}

#[test]
fn a_case_is_the_same_every_time() {
    for seed in [3, 17] {
        assert_eq!(run_case(seed), run_case(seed));
    }
}

#[test]
fn seeds_that_once_failed_hold() {
    // 363: all repeats of a packet took the two paths that were heard of last, both dead.
    // 393: a flow's path was dead, and PLB offered repeats no other.
    // 1203, 13991: ACKs and answers to probes came in turn, so that ACKs kept to every other path.
    // 6627: the policy's only path was dead, and repeats were not offered another.
    // 18758: asking every timeout, where that is shorter than the round trip, kept a queue full.
    for seed in [363, 393, 1203, 6627, 13_991, 18_758] {
        assert_eq!(run_case(seed).violations, [""; 0], "seed {seed}");
    }
}
