use super::*;

const PERMUTATION: &str = r#"
name = "small"

[topology]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 4

[transport]
profile = "stellar"
paths = 16
retransmission = { rto_min = "300us" }

[[workload]]
kind = "permutation"
size = "64KiB"

[[fault]]
kind = "loss"
links = "random-uplink"
probability = 0.01
"#;

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, Path::new("")).map_err(|error| error.to_string())
}

#[test]
fn a_scenario_says_what_differs_and_the_rest_has_defaults() {
    let scenario = parse(PERMUTATION).unwrap();
    let topology = scenario.build_topology().unwrap();
    let transport = scenario.transport.resolve(&topology).unwrap();
    assert_eq!((transport.paths, transport.mtu), (16, 4096));
    assert_eq!(transport.retransmission.rto_min, Duration::from_micros(300));
    assert_eq!(transport.retransmission.rto_max, Duration::from_millis(4));
    // The rate is the host port's, the round trip that of four hops of 1 us each way.
    assert_eq!(transport.line_rate.as_bps(), 100_000_000_000);
    assert!((8_000..11_000).contains(&transport.base_rtt.as_nanos()), "{}", transport.base_rtt);
}

#[test]
fn the_expanded_scenario_is_complete_and_says_the_same() {
    let scenario = parse(PERMUTATION).unwrap();
    let text = scenario.expanded().unwrap();
    for key in ["spines = 8", "ack_every", "base_rtt", "ecn_min", "alpha", "jitter", "sample_every"]
    {
        assert!(text.contains(key), "{key} is missing from\n{text}");
    }
    let again = parse(&text).unwrap();
    assert_eq!(again.expanded().unwrap(), text);
    let topology = again.build_topology().unwrap();
    assert_eq!(again.transport.resolve(&topology), scenario.transport.resolve(&topology));
}

#[test]
fn an_unknown_key_is_answered_with_its_line_and_the_nearest() {
    for (old, new, want) in [
        ("leaves = 2", "leavs = 2", "line 6: unknown key \"leavs\", did you mean \"leaves\"?"),
        ("paths = 16", "path = 16", "line 11: [transport]: unknown key \"path\", did you mean"),
        ("size =", "sise =", "line 16: unknown key \"sise\", did you mean \"size\"?"),
        ("probability", "probabilty", "line 21: unknown key \"probabilty\", did you mean"),
        ("rto_min", "rto_mim", "line 12: [transport]: unknown key \"rto_mim\", did you mean"),
        ("[topology]", "[toplogy]", "line 4: unknown key \"toplogy\", did you mean \"topology\"?"),
    ] {
        let error = parse(&PERMUTATION.replacen(old, new, 1)).unwrap_err();
        assert!(error.starts_with(want), "{new}: {error}");
        assert!(error.contains("(known: "), "{error}");
    }
}

#[test]
fn a_bad_value_is_answered_with_what_was_expected() {
    for (old, new, want) in [
        (
            "\"leaf-spine\"",
            "\"leafspine\"",
            "no topology \"leafspine\", did you mean \"leaf-spine\"?",
        ),
        ("\"permutation\"", "\"permutations\"", "unknown variant `permutations`"),
        ("\"64KiB\"", "\"64 potatoes\"", "\"64 potatoes\" is not a size such as"),
        ("paths = 16", "paths = 0", "paths is 0, expected 1 to 4096"),
        (
            "\"stellar\"",
            "\"steller\"",
            "no transport profile \"steller\", did you mean \"stellar\"?",
        ),
        ("\"random-uplink\"", "\"uplink\"", "no links \"uplink\", expected all"),
        ("leaves = 2", "leaves = ", "line 6"),
    ] {
        let error = parse(&PERMUTATION.replacen(old, new, 1)).unwrap_err();
        assert!(error.contains(want), "{new}: {error}");
    }
    let zero = PERMUTATION.replacen("leaves = 2", "leaves = 0", 1);
    let error = parse(&zero).unwrap().build_topology().unwrap_err().to_string();
    assert_eq!(error, "[topology]: leaves must be at least 1");
}

#[test]
fn a_file_is_named_in_its_errors() {
    let file = std::env::temp_dir().join(format!("weft-scenario-{}.toml", std::process::id()));
    fs::write(&file, PERMUTATION.replacen("name", "nam", 1)).unwrap();
    let error = Scenario::read(&file).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}:2: unknown key \"nam\"", file.display())), "{error}");
    fs::remove_file(&file).unwrap();
    assert!(
        Scenario::read(Path::new("/no/such.toml")).unwrap_err().to_string().contains("/no/such")
    );
}

#[test]
fn a_topology_file_is_read_from_beside_the_scenario() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let text = "[topology]\nkind = \"file\"\nfile = \"leaf-spine-128.topo\"\n";
    let scenario = Scenario::parse(text, &folder).unwrap();
    assert_eq!(scenario.build_topology().unwrap().hosts(), 128);
    let text = text.replace("128.topo", "129.topo");
    let error = Scenario::parse(&text, &folder).unwrap().build_topology().unwrap_err();
    assert!(error.to_string().contains("leaf-spine-129.topo: "), "{error}");
}
