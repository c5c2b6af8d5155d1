//! Properties of scenarios, flow lists, experiments and names that hold for any text. The mutation tests and the fuzz
//! targets both call these functions; each returns `true` if the text was accepted.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::fmt::Write;
use std::path::Path;

use toml::Value;
use weft_sim::experiment::{Experiment, MAX_POINTS};
use weft_sim::fault::LinkSelector;
use weft_sim::graph::{Graph, Op};
use weft_sim::import::{Format, Import, ImportError, Options, Source, chakra, parse};
use weft_sim::scenario::{Scenario, TopologySource};
use weft_sim::workload::sizes::{Published, Sizes};
use weft_sim::workload::{Flow, HostSet, parse_flow_list};
use weft_sim::{SimSpan, SimTime, build};
use weft_topo::build::LeafSpine;
use weft_units::{BitRate, Duration, Seed};

/// Reads a scenario. An accepted one is the same when it is written and read again; a small one is built, and runs for
/// a moment or reports an error.
pub fn scenario(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let scenario = match Scenario::parse(&text, Path::new("")) {
        Ok(scenario) => scenario,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let written = toml::to_string(&scenario).expect("a scenario is TOML");
    let again = Scenario::parse(&written, Path::new("")).expect("what was written is a scenario");
    assert_eq!(toml::to_string(&again).as_ref(), Ok(&written));
    let whole: Value = toml::from_str(&written).expect("what was written is TOML");
    if is_small(&whole) && reads_no_file(&scenario, &whole) {
        run_for_a_moment(&scenario);
    }
    true
}

/// Runs a scenario for 20 us, if its world can be built.
fn run_for_a_moment(scenario: &Scenario) {
    let Ok(mut world) = build(scenario, Seed(1)) else { return };
    if let Ok(text) = scenario.expanded() {
        Scenario::parse(&text, Path::new("")).expect("what was expanded is a scenario");
    }
    world.start();
    world.run(SimTime::EPOCH + SimSpan::from_picos(20_000_000));
}

/// Returns `true` if no number that sets an amount is large: the text of a scenario is its author's, who may request
/// more than a machine can hold.
fn is_small(value: &Value) -> bool {
    match value {
        Value::Integer(number) => (0..9).contains(number),
        Value::Array(items) => items.len() < 9 && items.iter().all(is_small),
        Value::Table(table) => {
            let free = ["mtu", "send_window", "reorder_window", "top_k", "ack_every"];
            table.iter().all(|(key, value)| match (key.as_str(), value) {
                ("duration", Value::String(text)) => {
                    text.parse::<Duration>().is_ok_and(|time| time < Duration::from_millis(1))
                }
                ("sizes", Value::String(text)) => text.parse::<Published>().is_ok(),
                (key, value) => free.contains(&key) || is_small(value),
            })
        }
        Value::String(text) => {
            text.parse::<BitRate>().map_or(true, |rate| rate.as_bps() <= 1_000_000_000_000)
        }
        _ => true,
    }
}

/// Returns `true` if the scenario names no file.
fn reads_no_file(scenario: &Scenario, whole: &Value) -> bool {
    let is_list = |workload: &Value| workload.get("file").is_some();
    let workloads = whole.get("workload").and_then(Value::as_array);
    matches!(scenario.topology, TopologySource::Shape(_))
        && !workloads.is_some_and(|workloads| workloads.iter().any(is_list))
}

/// Reads a list of flows in either format. An accepted one is the same as a connection matrix.
pub fn flows(bytes: &[u8]) -> bool {
    const HOSTS: u32 = 64;
    let read = |bytes: &[u8]| parse_flow_list(bytes, Path::new("list"), HOSTS);
    let flows = match read(bytes) {
        Ok(flows) => flows,
        Err(error) => {
            assert!(error.to_string().starts_with("list:"), "{error}");
            return false;
        }
    };
    let sound = |flow: &Flow| {
        let ends = [flow.source, flow.destination];
        ends[0] != ends[1] && ends.iter().all(|end| end.0 < HOSTS) && flow.length > 0
    };
    assert!(flows.iter().all(sound), "{flows:?}");
    let mut matrix = format!("Nodes {HOSTS}\nConnections {}\n", flows.len());
    for Flow { source, destination, length, start } in &flows {
        let start = start.as_picos();
        let (from, to) = (source.0, destination.0);
        writeln!(matrix, "{from}->{to} start {start} size {length}").expect("a string takes all");
    }
    assert_eq!(read(matrix.as_bytes()).as_ref(), Ok(&flows));
    true
}

/// Reads a distribution of flow sizes. Every draw lies within an accepted one.
pub fn sizes(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let sizes = match Sizes::parse(&text, Path::new("sizes")) {
        Ok(sizes) => sizes,
        Err(error) => {
            assert!(error.to_string().starts_with("sizes:"), "{error}");
            return false;
        }
    };
    let largest = sizes.at(1.0);
    assert!((0.0..=f64::from(largest)).contains(&sizes.mean()), "{text:?}");
    let mut rng = Seed(1).rng();
    let draws: Vec<u32> = (0..16).map(|_| sizes.draw(&mut rng)).collect();
    assert!(draws.iter().all(|draw| (1..=largest).contains(draw)), "{draws:?} of {text:?}");
    true
}

/// Maximum number of points of an experiment that is evaluated: all points are created alike, and a few more bytes in
/// an axis create a hundred thousand.
const MAX_EVALUATED_POINTS: usize = 128;

/// Reads an experiment, creates its points, and evaluates its claims on a report's measures.
pub fn experiment(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Ok(experiment) = Experiment::parse(&text) else { return false };
    let counts = experiment.axes.iter().map(|axis| axis.values.len());
    let made = counts.clone().map(|count| count.max(1)).fold(1, usize::saturating_mul);
    if made > MAX_EVALUATED_POINTS && made as u64 <= MAX_POINTS {
        return true;
    }
    let Ok(points) = experiment.points() else { return true };
    assert_eq!(points.len(), counts.product::<usize>());
    let report = serde_json::json!({ "mean": 3, "list": [{ "p99": 0.5 }] });
    let reports = [report.clone(), report];
    let rows = points.iter().map(|point| experiment.measure(point, &reports));
    if let Ok(rows) = rows.collect() {
        let _ = experiment.evaluate(rows);
    }
    for point in points.into_iter().take(4) {
        let _ = Scenario::from_table(point.scenario, Path::new(""));
    }
    true
}

/// Reads the selectors of hosts and links in scenarios. An accepted one is written and read back the same.
pub fn selectors(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let hosts = text.parse::<HostSet>();
    if let Ok(set) = &hosts {
        assert_eq!(set.to_string().parse().as_ref(), Ok(set), "{text:?}");
        if let Ok(named) = set.resolve(64, 2) {
            assert!(named.len() >= 2 && named.iter().all(|host| host.0 < 64));
        }
    }
    let links = text.parse::<LinkSelector>();
    if let Ok(selector) = links {
        assert_eq!(selector.to_string().parse(), Ok(selector), "{text:?}");
        let small = LeafSpine { leaves: 2, spines: 2, hosts_per_leaf: 2, ..LeafSpine::default() };
        let topology = small.build().expect("it is a shape");
        let _ = selector.select(&topology, &mut Seed(1).rng());
    }
    hosts.is_ok() || links.is_ok()
}

/// The memory that a graph of a fuzzed file may use, bytes.
const GRAPH_MEMORY: u64 = 16 << 20;

/// The settings of readers: a small memory, and some ranks where a file names none.
fn reading() -> Options {
    Options { ranks: Some(4), memory: GRAPH_MEMORY, ..Options::default() }
}

/// Checks what a reader returned: an error that names the file, or a graph whose parts exist.
fn import(result: Result<Import, ImportError>) -> bool {
    let Import { graph, summary } = match result {
        Ok(import) => import,
        Err(error) => {
            assert!(error.to_string().starts_with("in:"), "{error}");
            return false;
        }
    };
    assert!(summary.taken.len() + summary.left.len() <= 130, "kinds are limited");
    sound(&graph);
    true
}

/// Checks that the parts of a graph exist, and that it keeps to its memory.
fn sound(graph: &Graph) {
    assert!(graph.memory() <= GRAPH_MEMORY, "{} bytes", graph.memory());
    for (index, node) in (0u32..).zip(graph.nodes()) {
        assert!(node.rank < graph.ranks());
        match node.op {
            Op::Send { to, .. } => assert!(to < graph.ranks()),
            Op::Collective(number) => {
                let operation = graph.operations()[number as usize];
                let ranks = &graph.groups()[operation.group as usize];
                assert!(ranks.contains(&node.rank) && (operation.root as usize) < ranks.len());
            }
            _ => {}
        }
        for (after, _) in graph.dependents(index) {
            assert!((after as usize) < graph.nodes().len());
        }
    }
}

fn format(bytes: &[u8], format: Format) -> bool {
    let source = Source::of(bytes, Path::new("in"));
    import(source.and_then(|source| parse(source, format, &reading())))
}

/// Reads a connection matrix of htsim with triggers.
pub fn htsim(bytes: &[u8]) -> bool {
    format(bytes, Format::Htsim)
}

/// Reads a schedule in GOAL, as text.
pub fn goal(bytes: &[u8]) -> bool {
    format(bytes, Format::Goal)
}

/// Reads a schedule in GOAL, in binary form.
pub fn goal_binary(bytes: &[u8]) -> bool {
    format(bytes, Format::GoalBinary)
}

/// Reads a workload of SimAI.
pub fn simai(bytes: &[u8]) -> bool {
    format(bytes, Format::Simai)
}

/// Reads a trace of Chakra whose two ranks have the same nodes, so that their collectives match.
pub fn chakra_trace(bytes: &[u8]) -> bool {
    let source = || Source::of(bytes, Path::new("in"));
    let groups = [("7".to_owned(), vec![0, 1])].into();
    import(source().and_then(|one| chakra::read(vec![one, source()?], Some(groups), &reading())))
}
