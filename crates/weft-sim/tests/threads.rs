//! One run on several threads: the same report, byte by byte, for any number. The progress of such runs, and of runs
//! side by side.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex};

use weft_sim::batch::{Job, run_each};
use weft_sim::hooks::STEPS;
use weft_sim::world::{Progress, Watcher};
use weft_sim::{Advance, Hooks, Report, Scenario, run_on};
use weft_units::Seed;

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, Path::new("")).unwrap()
}

/// Returns the report of a run that may use this number of threads, and the reason if it did not.
fn report(scenario: &Scenario, seed: u64, threads: usize) -> (Report, Option<&'static str>) {
    run_on(scenario, Seed(seed), NonZeroUsize::new(threads).unwrap(), &mut ()).unwrap()
}

/// Asserts that a scenario runs on several threads, and that its report is the same for any number. Returns it.
fn assert_same(text: &str, seed: u64) -> Report {
    let scenario = scenario(text);
    let (first, _) = report(&scenario, seed, 1);
    let one = first.to_json();
    for threads in [2, 3, 5, 8] {
        let (several, alone_because) = report(&scenario, seed, threads);
        assert_eq!(alone_because, None);
        let several = several.to_json();
        if several != one {
            let lines = one.lines().zip(several.lines()).filter(|(one, other)| one != other);
            let differing: Vec<_> = lines.take(5).collect();
            panic!("{threads} threads, seed {seed}: {differing:#?}\n{text}");
        }
    }
    first
}

const FAT_TREE: &str = r#"topology = { kind = "fat-tree", hosts = 128, tiers = 3 }"#;
const LEAVES: &str =
    r#"topology = { kind = "leaf-spine", leaves = 9, spines = 4, hosts_per_leaf = 4 }"#;

#[test]
fn permutation_traffic() {
    for jitter in ["0ns", "100ns"] {
        let report = assert_same(
            &format!(
                r#"
                {FAT_TREE}
                host = {{ jitter = "{jitter}" }}
                measure = {{ flows = true }}
                [[workload]]
                kind = "permutation"
                size = "100KB"
                "#
            ),
            1,
        );
        assert!(report.finished, "{report:?}");
    }
}

#[test]
fn a_network_whose_tiers_alternate() {
    assert_same(
        r#"
        topology = { kind = "fat-tree", hosts = 1024, tiers = 3 }
        measure = { flows = true }
        [[workload]]
        kind = "permutation"
        size = "40KB"
        "#,
        1,
    );
}

#[test]
fn messages_that_workloads_send_at_the_start() {
    // Channels open before and after the first messages, and engines refuse some of those.
    let report = assert_same(
        &format!(
            r#"
            {LEAVES}
            transport = {{ message_queue = 4 }}
            measure = {{ flows = true }}
            [[workload]]
            kind = "writes"
            pairs = [[0, 9], [0, 9], [9, 30], [30, 0], [1, 9]]
            connections = 2
            size = "6KB"
            total = "120KB"
            depth = 11
            [[workload]]
            kind = "permutation"
            size = "20KB"
            [[workload]]
            kind = "pairs"
            pairs = [[0, 35], [35, 0], [0, 20]]
            connections = 3
            "#
        ),
        5,
    );
    assert!(report.finished, "{report:?}");
}

#[test]
fn workloads_that_react_to_messages() {
    for workload in [
        r#"kind = "all-to-all"
           size = "9KB"
           iterations = 2"#,
        r#"kind = "ring-all-reduce"
           size = "72KB"
           iterations = 2"#,
        r#"kind = "training"
           rounds = 3
           compute = "10us"
           collective = [{ operation = "all-gather", size = "64KB", ranks = 4 }]"#,
    ] {
        for handshake in [false, true] {
            let report = assert_same(
                &format!(
                    "{LEAVES}\nhost = {{ handshake = {handshake}, jitter = \"0ns\" }}\n\
                     measure = {{ flows = true }}\n[[workload]]\n{workload}"
                ),
                3,
            );
            assert!(report.finished, "{report:?}");
        }
    }
}

#[test]
fn faults_and_samples_between_windows() {
    let report = assert_same(
        &format!(
            r#"
            {LEAVES}
            
            run = {{ limit = "5ms", reroute_after = "30us" }}
            measure = {{ flows = true, sample_every = "7us" }}
            [[workload]]
            kind = "permutation"
            size = "500KB"
            [[workload]]
            kind = "ring-all-reduce"
            size = "1MB"
            [[fault]]
            kind = "link-down"
            links = "random-uplink"
            at = "20us"
            duration = "50us"
            [[fault]]
            kind = "loss"
            links = "random-uplink"
            probability = 0.02
            [[fault]]
            kind = "duplication"
            links = "random-uplink"
            probability = 0.02
            [[fault]]
            kind = "corruption"
            links = "random-uplink"
            probability = 0.02
            [[fault]]
            kind = "restart"
            host = 5
            at = "40us"
            "#
        ),
        2,
    );
    assert!(report.network.lost["lossy_link"] > 0, "{report:?}");
}

#[test]
fn incast_with_marks_and_losses() {
    let report = assert_same(
        &format!(
            r#"
            {LEAVES}
            queue = {{ limit = "40KB", ecn_min = "10KB", ecn_max = "30KB" }}
            run = {{ limit = "20ms" }}
            measure = {{ flows = true }}
            [[workload]]
            kind = "incast"
            receiver = 0
            size = "100KB"
            "#
        ),
        4,
    );
    assert!(report.network.lost["queue_full"] > 0 && report.network.marked > 0, "{report:?}");
}

/// Returns a random small world that can run on several threads.
fn random_world(seed: u64) -> String {
    let mut rng = Seed(seed).rng();
    let mut one_of = |texts: &[&str]| texts[rng.index(texts.len())].to_owned();
    let topology = one_of(&[
        r#"{ kind = "leaf-spine", leaves = 3, spines = 2, hosts_per_leaf = 3 }"#,
        r#"{ kind = "leaf-spine", leaves = 8, spines = 1, hosts_per_leaf = 1 }"#,
        r#"{ kind = "fat-tree", hosts = 16, tiers = 3 }"#,
        r#"{ kind = "fat-tree", hosts = 54, tiers = 3 }"#,
    ]);
    let transport = one_of(&[
        "",
        r#"transport = { policy = "single" }"#,
        r#"transport = { policy = "oblivious", congestion = "dcqcn" }"#,
        r#"transport = { policy = "strack", mtu = 1000, ack_every = 1 }"#,
    ]);
    let host = one_of(&[
        "",
        "host = { jitter = \"0ns\" }",
        "host = { jitter = \"0ns\", handshake = true }",
        "host = { place_delay = \"500ns\" }",
    ]);
    let queue = one_of(&["", r#"queue = { limit = "30KB", ecn_min = "5KB", ecn_max = "20KB" }"#]);
    let mut text = format!(
        "topology = {topology}\n{transport}\n{host}\n{queue}\n\
         run = {{ limit = \"3ms\", reroute_after = \"20us\" }}\nmeasure = {{ flows = true }}\n"
    );
    for _ in 0..2 {
        text += &one_of(&[
            "[[workload]]\nkind = \"permutation\"\nsize = \"40KB\"\n",
            "[[workload]]\nkind = \"all-to-all\"\nsize = \"6KB\"\niterations = 2\n",
            "[[workload]]\nkind = \"ring-all-reduce\"\nsize = \"90KB\"\niterations = 2\n",
            "[[workload]]\nkind = \"incast\"\nreceiver = 1\nsize = \"50KB\"\n",
        ]);
        text += &one_of(&[
            "",
            "[[fault]]\nkind = \"loss\"\nlinks = \"random-uplink\"\nprobability = 0.05\n",
            "[[fault]]\nkind = \"link-down\"\nlinks = \"random-uplink\"\nat = \"9us\"\nduration = \"40us\"\n",
            "[[fault]]\nkind = \"reordering\"\nlinks = \"random-uplink\"\nprobability = 0.1\nby = \"3us\"\n",
        ]);
    }
    text
}

#[test]
fn random_small_worlds() {
    for seed in 0..20 {
        assert_same(&random_world(seed), seed);
    }
}

#[test]
fn runs_that_take_one_thread_say_why() {
    let poisson = r#"
        [[workload]]
        kind = "poisson"
        load = 0.3
        duration = "100us"
    "#;
    for (text, expected) in [
        (poisson, Some("a workload opens channels without a handshake")),
        ("forwarding.kind = \"drill\"", Some("the switches' forwarding model keeps state")),
        ("port.kind = \"priority\"", Some("ports hold queues")),
        ("pcie = {}", Some("hosts have a bus to their memory")),
    ] {
        let text = format!("{LEAVES}\n{text}\n");
        let text = match text.contains("[[workload]]") {
            true => text,
            false => format!("{text}[[workload]]\nkind = \"permutation\"\nsize = \"20KB\""),
        };
        let scenario = scenario(&text);
        let (several, alone_because) = report(&scenario, 1, 4);
        assert_eq!(alone_because, expected, "{text}");
        assert_eq!(several.to_json(), report(&scenario, 1, 1).0.to_json(), "{text}");
    }
}

/// Records the progress after each window.
struct Recorder {
    seen: Vec<Progress>,
    wants_windows: bool,
}

impl Watcher for Recorder {
    fn wants_windows(&self) -> bool {
        self.wants_windows
    }

    fn wants_progress(&mut self) -> bool {
        true
    }

    fn on_progress(&mut self, progress: Progress) {
        self.seen.push(progress);
    }
}

#[test]
fn a_divided_run_tells_its_progress_as_one_thread_does() {
    let scenario = scenario(&format!(
        r#"
        {LEAVES}
        [[workload]]
        kind = "permutation"
        size = "100KB"
        "#
    ));
    let progress = |threads| {
        let mut recorder = Recorder { seen: vec![], wants_windows: false };
        let threads = NonZeroUsize::new(threads).unwrap();
        let (report, alone_because) = run_on(&scenario, Seed(1), threads, &mut recorder).unwrap();
        assert_eq!(alone_because, None);
        (report, recorder.seen)
    };
    let (report, one) = progress(1);
    let bytes = 36 * 100_000;
    assert!(one.len() > 10 && one.iter().all(|it| it.bytes_submitted == bytes), "{one:?}");
    assert!(one.is_sorted_by_key(|it| (it.now, it.packet_hops, it.bytes_received)), "{one:?}");
    let last = one.last().unwrap();
    assert_eq!((last.bytes_received, last.packet_hops), (bytes, report.network.packet_hops));
    assert_eq!(one, progress(2).1);
    assert_eq!(one, progress(3).1);
}

#[test]
fn a_watcher_of_windows_takes_the_run_to_one_thread() {
    let scenario = scenario(&format!("{LEAVES}\n[[workload]]\nkind = \"incast\"\nsize = \"9KB\""));
    let mut recorder = Recorder { seen: vec![], wants_windows: true };
    let two = NonZeroUsize::new(2).unwrap();
    let (_, alone_because) = run_on(&scenario, Seed(1), two, &mut recorder).unwrap();
    assert_eq!(alone_because, Some("a watcher looks at the whole network"));
}

#[test]
fn the_steps_of_runs_side_by_side_add_up() {
    let scenario = scenario(
        r#"
        topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }
        run = { fast_forward = 0.05, compare_exact = true }
        [[workload]]
        kind = "permutation"
        size = "10MB"
        "#,
    );
    let jobs = [1, 2, 3].map(|seed| Job { scenario: scenario.clone(), seed: Seed(seed) });
    let done = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&done);
    let advance = Advance::to(move |steps| log.lock().unwrap().push(steps));
    let hooks = Hooks { advance, ..Hooks::default() };
    let finished = run_each(&jobs, 2, &hooks, &|_| {}, |_, report| report.finished);
    assert!(finished.into_iter().all(Result::unwrap));
    let done = done.lock().unwrap();
    assert_eq!(done.iter().sum::<u64>(), 3 * STEPS, "{done:?}");
    assert!(done.iter().all(|&steps| steps < STEPS), "several calls for each run: {done:?}");
}
