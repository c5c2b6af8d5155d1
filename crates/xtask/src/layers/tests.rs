use super::*;

fn graph_of(arrows: &[(&str, &[&str])]) -> Graph {
    arrows
        .iter()
        .map(|(from, to)| ((*from).into(), to.iter().map(|&name| name.into()).collect()))
        .collect()
}

#[test]
fn arrows_down_and_the_drawn_ones_are_allowed() {
    let graph = graph_of(&[
        ("weft-units", &[]),
        ("weft-wire", &["weft-units"]),
        ("weft-transport", &["weft-wire", "weft-units"]),
        ("weft-rnic", &["weft-transport"]),
        ("weft-msg", &["weft-rnic"]),
        ("weft-vpc", &["weft-transport"]),
        ("weft-cli", &["weft-sim", "weft-units"]),
        ("weft-sim", &["weft-transport", "weft-topo"]),
        ("xtask", &["weft-cli", "weft-wire"]),
    ]);
    assert_eq!(arrows(&graph), []);
}

#[test]
fn an_arrow_up_is_reported() {
    let graph = graph_of(&[("weft-transport", &["weft-sim", "weft-wire"])]);
    let found = arrows(&graph);
    assert_eq!(
        found,
        [Violation::PointsUp { from: "weft-transport".into(), to: "weft-sim".into() }]
    );
    assert_eq!(
        found[0].to_string(),
        "weft-transport (layer 2, engines) depends on weft-sim (layer 4, worlds): arrows point down"
    );
}

#[test]
fn an_arrow_within_a_layer_is_reported_unless_it_is_drawn() {
    let graph = graph_of(&[
        ("weft-transport", &["weft-rnic"]),
        ("weft-topo", &["weft-wire"]),
        ("weft-msg", &["weft-rnic"]),
    ]);
    let sideways = |from: &str, to: &str| Violation::Sideways { from: from.into(), to: to.into() };
    assert_eq!(
        arrows(&graph),
        [sideways("weft-topo", "weft-wire"), sideways("weft-transport", "weft-rnic")]
    );
}

#[test]
fn a_crate_without_a_layer_is_reported_once() {
    let graph = graph_of(&[("weft-new", &["weft-cli"]), ("weft-wire", &["weft-new"])]);
    assert_eq!(arrows(&graph), [Violation::NotInTable { name: "weft-new".into() }]);
}

#[test]
fn shipped_crates_do_not_depend_on_the_test_kit() {
    let graph = graph_of(&[("weft-sim", &["weft-testkit"]), ("weft-testkit", &["weft-sim"])]);
    let ships = Violation::ShipsDevelopment { from: "weft-sim".into(), to: "weft-testkit".into() };
    assert_eq!(arrows(&graph), [ships]);
}

#[test]
fn crates_on_hosts_ship_no_lab_and_no_load_generator() {
    let graph = graph_of(&[
        ("weft-vswitch", &["weft-udp", "weft-ports"]),
        ("weft-udp", &["weft-transport"]),
        ("weft-trial", &["weft-lab", "weft-vswitch"]),
        ("weft-cli", &["weft-perf", "weft-sim", "weft-trial", "weft-verbs"]),
    ]);
    assert_eq!(measurement_on_hosts(&graph), []);
    // Through another crate too.
    let graph = graph_of(&[
        ("weft-steer", &["weft-lab", "weft-route"]),
        ("weft-verbs", &["weft-stage"]),
        ("weft-stage", &["weft-perf"]),
    ]);
    let ships =
        |from: &str, to: &str| Violation::MeasurementOnHost { from: from.into(), to: to.into() };
    let found = measurement_on_hosts(&graph);
    assert_eq!(found, [ships("weft-steer", "weft-lab"), ships("weft-verbs", "weft-perf")]);
    let text = "weft-steer runs on hosts and ships weft-lab: leave labs, load and simulation to the caller";
    assert_eq!(found[0].to_string(), text);
}

#[test]
fn an_engine_that_permits_std_or_unsafe_is_reported() {
    let file = Path::new("crates/weft-msg/src/lib.rs");
    let missing = |source: &str| {
        missing_attributes(file, source)
            .into_iter()
            .map(|violation| match violation {
                Violation::AttributeMissing { attribute, .. } => attribute,
                other => panic!("{other}"),
            })
            .collect::<Vec<_>>()
    };
    let (no_std, no_unsafe) = (NO_STD[0], NO_UNSAFE[0]);
    assert_eq!(missing(&format!("//! Doc.\n{no_std}\n{no_unsafe}\n")), [""; 0]);
    assert_eq!(missing(&format!("{no_unsafe}\n")), [no_std]);
    assert_eq!(missing(&format!("// {no_std}\n// {no_unsafe}\n")), [no_std, no_unsafe]);
}

#[test]
fn every_crate_is_in_one_layer_and_every_drawn_arrow_stays_in_one() {
    let mut names: Vec<_> = LAYERS.iter().flat_map(|layer| layer.crates).collect();
    names.extend(DEVELOPMENT);
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a crate is listed twice");
    for name in ON_HOSTS.iter().chain(MEASUREMENT).filter(|name| !DEVELOPMENT.contains(name)) {
        assert!(layer_of(name).is_some(), "{name} is in no layer");
    }
    for (from, to) in WITHIN_A_LAYER {
        let number = |name| layer_of(name).expect("a crate of the table").number;
        assert_eq!(number(from), number(to), "{from} -> {to}");
    }
}
