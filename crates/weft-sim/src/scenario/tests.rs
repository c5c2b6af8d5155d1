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
fn absent_keys_have_defaults() {
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
fn the_expanded_scenario_is_complete_and_equivalent() {
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
fn the_error_for_an_unknown_key_has_its_line_and_the_nearest_key() {
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
fn the_error_for_an_invalid_value_has_the_expected_one() {
    for (old, new, want) in [
        (
            "\"leaf-spine\"",
            "\"leafspine\"",
            "line 5: kind: no topology \"leafspine\", did you mean \"leaf-spine\"?",
        ),
        (
            "\"permutation\"",
            "\"permutations\"",
            "line 15: kind: unknown value \"permutations\", did you mean \"permutation\"?",
        ),
        ("\"64KiB\"", "\"64 potatoes\"", "line 16: size: \"64 potatoes\" is not a size such as"),
        (
            "leaves = 2",
            "leaves = \"two\"",
            "line 6: leaves: invalid type: string \"two\", expected",
        ),
        ("leaves = 2", "leaves = -2", "line 6: leaves: invalid value: integer `-2`, expected u32"),
        ("0.01", "\"1 %\"", "line 21: probability: invalid type: string \"1 %\", expected f64"),
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
fn a_value_in_an_inline_table_or_a_list_is_found_with_its_key() {
    for (text, want) in [
        (
            "topology = { kind = \"leaf-spine\", leaves = \"two\" }\n",
            "line 1: leaves: invalid type: string \"two\"",
        ),
        (
            "[topology]\nkind = \"leaf-spine\"\nuplink_rates = [\"1Gbps\", \"fast\"]\n",
            "line 3: uplink_rates: \"fast\" is not a rate",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(want), "{error}");
    }
}

#[test]
fn an_impossible_load_is_named_with_its_line() {
    let text = "[topology]\nkind = \"leaf-spine\"\n\n[[workload]]\nkind = \"poisson\"\nload = 0.5\n\n\
                [[workload]]\nkind = \"poisson\"\nsizes = \"solar\"\nload = 1.5\n";
    let error = parse(text).unwrap_err();
    let want = "line 11: workload 2 (poisson): load is 1.5, expected above 0 and at most 1";
    assert_eq!(error, want);
}

#[test]
fn a_variant_s_name_can_stand_in_a_list_of_balancers() {
    for name in ["ecmp, PFC", "ecmp+pfc"] {
        let text = format!("[topology]\nkind = \"leaf-spine\"\n\n[[variant]]\nname = \"{name}\"\n");
        let error = parse(&text).unwrap_err();
        let want =
            format!("line 5: variant {name:?}: ',' and '+' join names, so they cannot be in one");
        assert_eq!(error, want);
    }
}

#[test]
fn a_balancer_s_parameter_is_named_with_its_group_and_line() {
    let head = "[topology]\nkind = \"leaf-spine\"\n\n[buffer]\nalpha = 1.0\n\n[forwarding]\nkind = \"conga\"\n";
    for (group, key, want) in [
        ("weighted", "weights = [4, 0]", "weights is 0, expected at least 1"),
        ("letflow", "flowlet_timeout = \"0s\"", "flowlet_timeout is 0, expected more"),
        ("conga", "dre_alpha = 1.5", "dre_alpha is 1.5, expected above 0 and at most 1"),
        ("conga", "bits = 9", "bits is 9, expected 1 to 8"),
        ("drill", "samples = 0", "samples is 0, expected at least 1"),
        ("adaptive", "grades = 0", "grades is 0, expected at least 1"),
        ("conweave", "aging = \"10us\"", "aging is 10us, expected at least the expiry, 300us"),
    ] {
        let error = parse(&format!("{head}\n[forwarding.{group}]\n{key}\n")).unwrap_err();
        assert_eq!(error, format!("line 11: [forwarding.{group}]: {want}"));
    }
    let error = parse(&format!("{head}\n[forwarding.conga]\ndre_alfa = 1\n")).unwrap_err();
    let want = "line 11: unknown key \"dre_alfa\", did you mean \"dre_alpha\"?";
    assert!(error.starts_with(want), "{error}");
}

#[test]
fn conweave_is_refused_where_hosts_have_several_leaves() {
    let world = |topology: &str| {
        let text =
            format!("[topology]\nkind = \"{topology}\"\n\n[forwarding]\nkind = \"conweave\"\n");
        let scenario = Scenario::parse(&text, Path::new("")).unwrap();
        scenario.world_config(&scenario.build_topology().unwrap())
    };
    // HPN's hosts have two ports, but a packet stays in the plane of one.
    for fine in ["leaf-spine", "fat-tree", "hpn"] {
        assert!(world(fine).is_ok(), "{fine}");
    }
    let error = world("rail").unwrap_err().to_string();
    let want = "[forwarding]: conweave needs all ways to a host to end at one leaf, host 0 is behind \
                several";
    assert_eq!(error, want);
}

#[test]
fn errors_in_a_generated_text_have_no_lines() {
    let table: Table = toml::from_str(PERMUTATION).unwrap();
    let read = |table: &Table| Scenario::from_table(table.clone(), Path::new(""));
    assert_eq!(read(&table).unwrap(), Scenario::parse(PERMUTATION, Path::new("")).unwrap());
    let mut wrong = table;
    wrong.insert("toplogy".into(), 1.into());
    let error = read(&wrong).unwrap_err().to_string();
    assert!(error.starts_with("unknown key \"toplogy\", did you mean \"topology\"?"), "{error}");
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
