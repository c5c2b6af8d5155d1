use super::*;

const SCENARIO: &str = r#"
    name = "small"
    topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }

    [[workload]]
    kind = "poisson"
    sizes = "solar"
    load = 0.4
    duration = "500us"
    [[variant]]
    name = "ecmp"
    transport = { profile = "ecmp" }
    [[variant]]
    name = "spray"
    transport = { policy = "oblivious" }
"#;

pub(super) fn plan() -> Plan {
    let scenario: Table = toml::from_str(SCENARIO).unwrap();
    let variants = Scenario::parse(SCENARIO, Path::new("")).unwrap().variants;
    let (loads, topologies) = (vec![0.2, 0.5], vec![]);
    Plan {
        scenario,
        folder: PathBuf::new(),
        variants,
        loads,
        topologies,
        seeds: vec![1, 2, 3],
        flows: true,
    }
}

#[test]
fn balancers_at_one_load_and_seed_carry_the_same_flows() {
    let rows = plan().run(2, &|_| {}).unwrap();
    let places: Vec<_> = rows.iter().map(|row| row.cell.to_string()).collect();
    let want = ["ecmp at load 0.2", "spray at load 0.2", "ecmp at load 0.5", "spray at load 0.5"];
    assert_eq!(places, want);
    let arrivals = |row: &Row, seed: usize| {
        let flows = row.runs[seed].flows.iter();
        let mut arrivals: Vec<_> = flows
            .map(|flow| {
                (flow.tag, flow.source, flow.destination, flow.bytes, flow.start_us.to_bits())
            })
            .collect();
        arrivals.sort_unstable();
        arrivals
    };
    for seed in 0..3 {
        assert_eq!(arrivals(&rows[0], seed), arrivals(&rows[1], seed));
        assert_ne!(arrivals(&rows[0], seed), arrivals(&rows[2], seed), "another load");
    }
    assert_ne!(arrivals(&rows[0], 0), arrivals(&rows[0], 1), "another seed");
    assert_ne!(rows[0].metrics["slowdown_mean"], rows[1].metrics["slowdown_mean"]);
}

#[test]
fn a_row_has_the_estimates_over_its_runs() {
    let rows = plan().run(2, &|_| {}).unwrap();
    let (ecmp, spray) = (&rows[2], &rows[3]);
    let means: Vec<f64> = spray.runs.iter().map(|run| run.metrics["slowdown_mean"]).collect();
    assert_eq!(Some(spray.metrics["slowdown_mean"]), Estimate::of(&means));
    let ratios = spray.runs.iter().zip(&ecmp.runs);
    let ratios = ratios.map(|(a, b)| a.metrics["slowdown_mean"] / b.metrics["slowdown_mean"]);
    assert_eq!(spray.over_first, Estimate::of(&ratios.collect::<Vec<_>>()));
    assert_eq!(ecmp.over_first, None, "the first is not held against itself");
    let flows: usize = spray.by_size.iter().map(|bin| bin.flows).sum();
    assert_eq!(flows, spray.runs.iter().map(|run| run.flows.len()).sum::<usize>());
    assert!(spray.quantiles.is_sorted() && spray.quantiles[0] >= 1.0);
    assert!(!spray.metrics.contains_key("round_mean_us"), "no rounds were run");
}

#[test]
fn networks_are_varied_and_an_invalid_cell_is_named() {
    let small = "kind = \"leaf-spine\"\nleaves = 2\nspines = 1\nhosts_per_leaf = 2";
    let small = vec![("small".to_owned(), toml::from_str(small).unwrap())];
    let rows = Plan { topologies: small, ..plan() }.run(2, &|_| {}).unwrap();
    assert_eq!(rows[3].cell.to_string(), "spray at load 0.5 on small");
    assert!(rows[3].runs[0].flows.iter().all(|flow| flow.source < 4));

    let error = Plan { loads: vec![1.5], ..plan() }.run(1, &|_| {}).unwrap_err().to_string();
    let want =
        "ecmp at load 1.5: workload 1 (poisson): load is 1.5, expected above 0 and at most 1";
    assert_eq!(error, want);
    let mut silent = plan();
    silent.scenario.remove("workload");
    assert!(matches!(silent.run(1, &|_| {}), Err(CompareError::NoLoad)));
}

#[test]
fn an_invalid_variant_is_named_with_its_line() {
    for (old, new, want) in [
        (
            "policy = \"oblivious\"",
            "polcy = 1",
            "line 14: variant \"spray\": [transport]: unknown key",
        ),
        ("name = \"spray\"", "name = \"ecmp\"", "line 14: variant \"ecmp\": there is another"),
        (
            "transport = { profile",
            "workload = { kind",
            "line 11: variant \"ecmp\": \"workload\" is not",
        ),
    ] {
        let text = SCENARIO.replace(old, new);
        let error = Scenario::parse(&text, Path::new("")).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
}
