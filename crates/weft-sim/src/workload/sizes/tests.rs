use std::collections::BTreeMap;

use weft_units::Seed;

use super::*;

#[test]
fn published_means_are_those_of_the_reference_generator() {
    for (kind, mean) in [
        (Published::AliStorage, 40_869.8),
        (Published::MetaHadoop, 121_848.9),
        (Published::GoogleRpc, 2_967.9),
        (Published::Solar, 39_423.5),
        (Published::AiCollectives, 18_929_330.0),
    ] {
        let got = Sizes::published(kind).mean();
        assert!((got / mean - 1.0).abs() < 1e-4, "{kind}: {got}");
    }
}

#[test]
fn draws_have_the_distributions_mean_and_stay_within_it() {
    for &kind in Published::ALL {
        let sizes = Sizes::published(kind);
        let mut rng = Seed(1).child("sizes", 0).rng();
        let draws: Vec<u32> = (0..400_000).map(|_| sizes.draw(&mut rng)).collect();
        let mean = draws.iter().map(|&bytes| f64::from(bytes)).sum::<f64>() / draws.len() as f64;
        assert!((mean / sizes.mean() - 1.0).abs() < 0.03, "{kind}: {mean} of {}", sizes.mean());
        assert!(draws.iter().all(|&bytes| bytes >= 1 && bytes <= sizes.at(1.0)), "{kind}");
    }
}

#[test]
fn sizes_between_two_points_are_interpolated_and_those_named_twice_are_exact() {
    let sizes = Sizes::parse("0 0\n1000 50\n2000 50\n2000 100\n", Path::new("")).unwrap();
    let at = [0.0, 0.25, 0.499_999, 0.5, 0.75, 1.0].map(|share| sizes.at(share));
    assert_eq!(at, [1, 500, 999, 2000, 2000, 2000]);
    assert_eq!(sizes.mean(), 0.5 * 500.0 + 0.5 * 2000.0);
    assert_eq!(Sizes::parse("0 0\n8 1\n", Path::new("")).unwrap().at(0.5), 4);
    assert_eq!(Sizes::find("64KB", Path::new("")).unwrap().at(0.3), 64_000);
}

#[test]
fn an_invalid_distribution_is_named_with_its_line() {
    for (text, want) in [
        ("0 0\n10 50\n9 100\n", "cdf:3: expected no less than 10 and 50, found \"9 100\""),
        ("0 0\n10 50\n20 40\n", "cdf:3: expected no less than 10 and 50, found \"20 40\""),
        ("0 0\n10 50\n# the end\n", "cdf:2: expected a last line that reaches 100"),
        ("10 50\n20 100\n", "cdf:1: expected a first line that ends in 0"),
        ("0 0\n10\n", "cdf:2: expected a size of at most 4294967295 bytes and a percentage"),
        ("0 0\n5000000000 100\n", "cdf:2: expected a size of at most"),
        ("0 0\nnan 100\n", "cdf:2: expected a size of at most"),
        ("0 0\n10 101\n", "cdf:2: expected a size of at most"),
        ("", "cdf:1: expected a last line that reaches 100"),
    ] {
        let error = Sizes::parse(text, Path::new("cdf")).unwrap_err().to_string();
        assert!(error.starts_with(want), "{text:?}: {error}");
    }
    let error = Sizes::find("ali-strage", Path::new("no-folder")).unwrap_err().to_string();
    assert!(error.contains("no-folder/ali-strage: "), "{error}");
    assert!(error.contains("did you mean \"ali-storage\"?"), "{error}");
}

/// Recomputes `ai-collectives.txt` from the counts it was derived from.
#[test]
fn the_ring_steps_follow_from_the_collectives_of_the_training_jobs() {
    let counts = include_str!("../../../data/ai-collectives.csv");
    let mut jobs: BTreeMap<&str, BTreeMap<u64, f64>> = BTreeMap::new();
    for line in counts.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [job, operation, group, ranks, bytes, count] = fields.as_slice() else { panic!() };
        let counts = ["all_reduce", "all_gather", "reduce_scatter"].contains(operation);
        if counts && *group != "tp_group" && *bytes != "0" {
            let step = bytes.parse::<u64>().unwrap().div_ceil(ranks.parse().unwrap());
            *jobs.entry(job).or_default().entry(step).or_default() += count.parse::<f64>().unwrap();
        }
    }
    assert_eq!(jobs.len(), 12);
    let mut shares: BTreeMap<u64, f64> = BTreeMap::new();
    for steps in jobs.values() {
        let all: f64 = steps.values().sum();
        for (&step, count) in steps {
            *shares.entry(step).or_default() += count / all / jobs.len() as f64;
        }
    }
    let sizes = Sizes::published(Published::AiCollectives);
    assert_eq!(sizes.points.len(), 2 * shares.len());
    let mut below = 0.0;
    for ((step, share), points) in shares.into_iter().zip(sizes.points.chunks(2)) {
        let want = [below, below + share];
        for (point, share) in points.iter().zip(want) {
            assert_eq!(point.bytes, step as f64);
            assert!((point.share - share).abs() < 1e-7, "{step}: {} for {share}", point.share);
        }
        below += share;
    }
}
