use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::Path;

use weft_topo::build::LeafSpine;
use weft_topo::{NodeId, Topology};
use weft_units::{BitRate, Rng, Seed};

use super::*;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::time::{SimSpan, SimTime};
use crate::traffic::{ChannelId, Notice, SendRequest};
use crate::workload::Iteration;
use crate::world::{Session, Stage};

/// An uncongested network: a host's messages leave one after another at `rate`, or at once without a rate, and arrive
/// `latency` later.
#[derive(Debug)]
struct IdealNetwork {
    now: SimTime,
    rate: Option<BitRate>,
    latency: SimSpan,
    channels: Vec<NodeId>,
    free: BTreeMap<NodeId, SimTime>,
    /// Future events; those of equal time in the order they were scheduled.
    events: BinaryHeap<Reverse<(SimTime, usize)>>,
    notices: Vec<Notice>,
}

impl IdealNetwork {
    fn new(rate: Option<BitRate>, latency: SimSpan) -> Self {
        Self {
            now: SimTime::EPOCH,
            rate,
            latency,
            channels: Vec::new(),
            free: BTreeMap::new(),
            events: BinaryHeap::new(),
            notices: Vec::new(),
        }
    }

    fn schedule(&mut self, at: SimTime, notice: Notice) {
        self.events.push(Reverse((at, self.notices.len())));
        self.notices.push(notice);
    }

    fn run(&mut self, job: &mut Job) {
        job.start(&mut Session::new(self, 0));
        while let Some(Reverse((at, number))) = self.events.pop() {
            self.now = at;
            let notice = self.notices[number];
            job.on_notice(&notice, &mut Session::new(self, 0));
        }
        assert!(job.is_done(), "{:?} is left undone", job.config);
    }
}

impl Stage for IdealNetwork {
    fn now(&self) -> SimTime {
        self.now
    }

    fn open(&mut self, _workload: u32, from: NodeId, to: NodeId) -> ChannelId {
        assert_ne!(from, to, "a host does not send to itself");
        self.channels.push(from);
        ChannelId(u32::try_from(self.channels.len()).unwrap() - 1)
    }

    fn send(&mut self, _workload: u32, request: SendRequest) {
        let from = self.channels[request.channel.0 as usize];
        let picos = |rate: BitRate| {
            u128::from(request.length) * 8_000_000_000_000 / u128::from(rate.as_bps())
        };
        let span = SimSpan::from_picos(self.rate.map_or(0, picos).try_into().unwrap());
        let free = self.free.entry(from).or_default();
        *free = self.now.max(*free) + span;
        let at = *free + self.latency;
        self.schedule(at, Notice::Delivered { request });
        self.schedule(at, Notice::Acknowledged { request });
    }

    fn close(&mut self, _channel: ChannelId) {}

    fn wake(&mut self, _workload: u32, at: SimTime, token: u64) {
        self.schedule(at, Notice::Woken { token });
    }

    fn wake_at(&mut self, _workload: u32, _host: NodeId, at: SimTime, token: u64) {
        self.schedule(at, Notice::Woken { token });
    }
}

fn topology() -> Topology {
    LeafSpine { leaves: 4, spines: 2, hosts_per_leaf: 16, ..LeafSpine::default() }.build().unwrap()
}

/// Returns server links that take no time.
fn instant() -> ServerConfig {
    let rate = BitRate::bps(u64::MAX).unwrap();
    ServerConfig { rate, latency: Duration::ZERO, ..ServerConfig::default() }
}

fn job(config: &Config) -> Job {
    let topology = topology();
    let setting = Setting { topology: &topology, seed: Seed(1), folder: Path::new("") };
    config.job(&setting).unwrap_or_else(|error| panic!("{error}: {config:?}"))
}

fn iterate(config: &Config, network: &mut IdealNetwork) -> Iteration {
    let mut job = job(config);
    network.run(&mut job);
    assert_eq!(job.iterations().len(), config.iterations as usize);
    job.iterations()[0]
}

/// Returns a random job of at most 128 ranks.
fn random_config(rng: &mut Rng) -> Config {
    let mut pick = |from: &[u32]| from[rng.index(from.len())];
    let (tensor, pipeline) = (pick(&[1, 2, 3, 4, 8, 16]), pick(&[1, 2, 3, 4]));
    let data = pick(&[1, 2, 3, 4, 6, 8]).min(128 / (tensor * pipeline));
    let divisors: Vec<u32> = (1..=data).filter(|expert| data % expert == 0).collect();
    let expert = pick(&divisors);
    let layers = pipeline * pick(&[1, 2, 3]);
    let micro_batches = pick(&[1, 2, 3, 5, 8]);
    let sharding = Sharding::ALL[pick(&[0, 1, 2]) as usize];
    let placement =
        [Placement::Reranked, Placement::Random, Placement::Listed][pick(&[0, 1, 2]) as usize];
    let mut bytes = || ByteCount(u64::from(pick(&[0, 1, 7_000, 300_000])));
    let load = Load {
        compute: Duration::from_micros(360),
        tensor: bytes(),
        pipeline: bytes(),
        gradients: bytes(),
        expert_gradients: bytes(),
        tokens: bytes(),
        sharding,
        layers,
        micro_batches,
        ..Load::default()
    };
    let (slices, queue_pairs) = (pick(&[1, 2, 4]), pick(&[1, 3]));
    let overlap = pick(&[0, 1]) == 1;
    Config {
        load: Some(load),
        scale: 1.0,
        tensor,
        pipeline,
        data,
        expert,
        placement,
        overlap,
        slices,
        queue_pairs,
        server: instant(),
        ..Config::default()
    }
}

#[test]
fn on_an_instant_network_an_iteration_takes_its_critical_path() {
    let mut rng = Seed(7).rng();
    for _ in 0..200 {
        let config = random_config(&mut rng);
        let load = config.load.clone().unwrap();
        let iteration = iterate(&config, &mut IdealNetwork::new(None, SimSpan::ZERO));
        // 360 us of computation are divided among the micro-batches, which pass the stages one after another: each
        // half of a layer is truncated to whole picoseconds.
        let (count, stages) = (f64::from(load.micro_batches), f64::from(config.pipeline));
        let expected = 360.0 * (count + stages - 1.0) / count;
        assert!((iteration.time_us - expected).abs() < 1e-3, "{config:?}: {iteration:?}");
        let shares = iteration.shares.unwrap();
        assert!(shares.exposed.abs() < 1e-9, "{shares:?}");
        assert!((shares.computing - 360.0 / expected).abs() < 1e-5, "{shares:?}");
    }
}

/// Returns a job of one layer and one micro-batch that has the exchanges of `load` and no computation.
fn only(load: Load) -> Config {
    let load = Load { compute: Duration::ZERO, layers: 1, micro_batches: 1, ..load };
    Config {
        load: Some(load),
        scale: 1.0,
        tensor: 1,
        pipeline: 1,
        data: 1,
        expert: 1,
        slices: 1,
        queue_pairs: 1,
        server: instant(),
        ..Config::default()
    }
}

/// Returns a network of 10 GB/s: 80 us for 800 KB.
fn network() -> IdealNetwork {
    IdealNetwork::new(BitRate::gbps(80), SimSpan::ZERO)
}

#[test]
fn without_computation_an_iteration_takes_its_communication() {
    let size = ByteCount(800_000);
    // One GPU in each of 4 servers of one NIC: three steps of 200 KB scatter, three of 100 KB gather.
    let alone = ServerConfig { hosts: 1, gpus_per_host: 1, ..instant() };
    let gradients = Load { gradients: size, ..Load::default() };
    let ring = Config { data: 4, server: alone.clone(), ..only(gradients.clone()) };
    let time = |config: &Config| iterate(config, &mut network()).time_us;
    assert_eq!(time(&ring), 3.0 * 20.0 + 3.0 * 10.0);
    let summed = Load { sharding: Sharding::Nothing, ..gradients.clone() };
    assert_eq!(time(&Config { data: 4, server: alone.clone(), ..only(summed) }), 6.0 * 20.0);
    // Parameters of half the bytes before the forward and the backward pass, gradients after.
    let sharded = Load { sharding: Sharding::Parameters, ..gradients.clone() };
    let sharded = Config { data: 4, server: alone.clone(), ..only(sharded) };
    assert_eq!(time(&sharded), (30.0 + 30.0) + 60.0);
    // Every pair of 4 exchanges a quarter, 3 of which a rank sends; there and back, in both directions.
    let tokens = Load { tokens: size, ..Load::default() };
    let experts = Config { data: 4, expert: 4, server: alone.clone(), ..only(tokens) };
    assert_eq!(time(&experts), 4.0 * 3.0 * 20.0);
    // Four all-reduces of a quarter each.
    let tensor = Load { tensor: size, ..Load::default() };
    let tensor = Config { tensor: 4, server: alone.clone(), ..only(tensor) };
    assert_eq!(time(&tensor), 4.0 * 6.0 * 5.0);
    // Three stages: twice forward, twice back.
    let stages = Load { pipeline: size, ..Load::default() };
    let mut stages = Config { pipeline: 3, server: alone, ..only(stages) };
    stages.load.as_mut().unwrap().layers = 3;
    assert_eq!(time(&stages), 4.0 * 80.0);
    // Two GPUs per NIC in two servers: 400 KB each go to the other server, over one NIC, scattered once and gathered
    // once as 200 KB; inside a server nothing takes time.
    let two = ServerConfig { hosts: 1, gpus_per_host: 2, ..instant() };
    let both = Config { data: 4, server: two, ..only(gradients) };
    assert_eq!(time(&both), 2.0 * 20.0 + 2.0 * 10.0);
}

#[test]
fn gradients_are_reduced_while_the_backward_pass_goes_on() {
    let load = Load {
        compute: Duration::from_micros(240),
        gradients: ByteCount(800_000),
        sharding: Sharding::Nothing,
        layers: 4,
        micro_batches: 1,
        ..Load::default()
    };
    let server = ServerConfig { hosts: 1, gpus_per_host: 1, ..instant() };
    let config = Config { data: 2, server, ..only(load.clone()) };
    let config = Config { load: Some(load), ..config };
    // 80 us forward, 160 us backward in four layers of 40, and a layer's gradients in 20: those of the first three
    // overlap with computation.
    let overlapped = iterate(&config, &mut network());
    assert!((overlapped.time_us - 260.0).abs() < 1e-3, "{overlapped:?}");
    let shares = overlapped.shares.unwrap();
    assert!((shares.exposed - 20.0 / 260.0).abs() < 1e-6, "{shares:?}");
    assert!((shares.data - 80.0 / 260.0).abs() < 1e-6, "{shares:?}");
    let one_by_one = iterate(&Config { overlap: false, ..config }, &mut network());
    assert!((one_by_one.time_us - 320.0).abs() < 1e-3, "{one_by_one:?}");
}

/// Returns the passes of a rank, forward and backward, each from its first computation to its last: the `parts` of a
/// pass follow each other, and backward ones take twice as long.
fn passes(
    log: &[(u32, SimTime, SimTime)],
    rank: u32,
    parts: usize,
) -> [Vec<(SimTime, SimTime)>; 2] {
    let of_rank: Vec<_> = log.iter().filter(|(of, ..)| *of == rank).collect();
    let shortest = of_rank.iter().map(|(_, from, to)| to.since(*from)).min().unwrap();
    let mut passes = [Vec::new(), Vec::new()];
    for pass in of_rank.chunks(parts) {
        let backward = pass[0].2.since(pass[0].1) > shortest;
        passes[usize::from(backward)].push((pass[0].1, pass[parts - 1].2));
    }
    passes
}

#[test]
fn no_micro_batch_is_computed_before_its_input_has_arrived() {
    let mut rng = Seed(8).rng();
    let mut checked = 0;
    for _ in 0..100 {
        let config = random_config(&mut rng);
        let latency = SimSpan::from_picos(1_000_000);
        let mut job = job(&config);
        IdealNetwork::new(BitRate::gbps(100), latency).run(&mut job);
        let load = config.load.clone().unwrap();
        let parts = 2 * (load.layers / config.pipeline) as usize;
        let size = config.tensor * config.data;
        // Small neighbouring stages are in one server; then nothing delays them.
        let apart = |rank: u32| rank / 8 != (rank + size) / 8;
        for rank in 0..size * (config.pipeline - 1) {
            let before = passes(&job.log, rank, parts);
            let behind = passes(&job.log, rank + size, parts);
            let delay = if apart(rank) { latency } else { SimSpan::ZERO };
            for batch in 0..load.micro_batches as usize {
                assert!(behind[0][batch].0 >= before[0][batch].1 + delay, "{config:?}");
                assert!(before[1][batch].0 >= behind[1][batch].1 + delay, "{config:?}");
                assert!(before[1][batch].0 >= before[0][batch].1);
                checked += 1;
            }
        }
    }
    assert!(checked > 1_000, "{checked}");
}

fn simulate(training: &str, seed: u64) -> Result<Report, String> {
    let text = format!(
        "topology = {{ kind = \"hpn\", segments = 2, servers_per_segment = 2, rails = 4, aggregations = 4 }}\n\
         run = {{ limit = \"50ms\" }}\n\
         [[workload]]\nkind = \"parallel-training\"\n{training}"
    );
    let scenario = Scenario::parse(&text, Path::new("")).map_err(|error| error.to_string())?;
    crate::run(&scenario, Seed(seed)).map_err(|error| error.to_string())
}

#[test]
fn every_model_trains_on_the_simulated_network_the_same_each_time() {
    for &model in Model::ALL {
        let Grid { tensor, pipeline, .. } = model.grid();
        let (tensor, pipeline) = (tensor.min(4), pipeline.min(2));
        let data = 32 / tensor / pipeline;
        let expert = if model == Model::Mixtral { 2 } else { 1 };
        let text = format!(
            "model = \"{model}\"\nscale = 1e5\ntensor = {tensor}\npipeline = {pipeline}\ndata = {data}\n\
             expert = {expert}\nlayers = 8\nmicro_batches = 4\nplacement = \"random\"\niterations = 2"
        );
        let report = simulate(&text, 3).unwrap();
        let iterations = &report.workloads[0].iterations;
        assert!(report.finished && iterations.len() == 2, "{model}: {iterations:?}");
        for Iteration { time_us, bus_gbps, shares, .. } in iterations {
            let shares = shares.unwrap();
            assert!(
                (0.0..1.0).contains(&shares.exposed) && shares.data > 0.0,
                "{model}: {shares:?}"
            );
            assert!((shares.expert > 0.0) == (expert > 1), "{model}: {shares:?}");
            assert!((shares.tensor > 0.0) == (tensor > 1), "{model}: {shares:?}");
            assert!(*time_us > 0.0 && *bus_gbps > 0.0 && *bus_gbps < 200.0, "{model}: {bus_gbps}");
        }
        assert_eq!(report.to_json(), simulate(&text, 3).unwrap().to_json(), "{model}");
        assert_ne!(report.to_json(), simulate(&text, 4).unwrap().to_json(), "{model}");
    }
}

#[test]
fn in_slow_motion_computation_keeps_its_part() {
    let text = r#"
        topology = { kind = "hpn", segments = 1, servers_per_segment = 2, rails = 4, aggregations = 2 }
        [[workload]]
        kind = "parallel-training"
        scale = 1e5
        pipeline = 2
        data = 4
        layers = 4
        micro_batches = 4
    "#;
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let iteration = |scenario: &Scenario| {
        let report = crate::run(scenario, Seed(1)).unwrap();
        report.workloads[0].iterations[0]
    };
    let (was, is) = (iteration(&scenario), iteration(&scenario.slowed(100).unwrap()));
    let [was, is] = [was, is].map(|iteration| iteration.shares.unwrap());
    assert!((was.computing / is.computing - 1.0).abs() < 0.05, "{was:?} became {is:?}");
}

#[test]
fn invalid_settings_are_refused() {
    for (training, want) in [
        ("iterations = 0", "line 5: workload 1 (parallel-training): iterations is 0"),
        ("slices = 65", "line 5: workload 1 (parallel-training): slices is 65, expected 1 to 64"),
        ("scale = 0.0", "line 5: workload 1 (parallel-training): scale is 0"),
        ("scale = nan", "line 5: workload 1 (parallel-training): scale is NaN"),
        (
            "model = \"llama-33\"",
            "line 5: model: no model \"llama-33\", did you mean \"llama-33b\"?",
        ),
        (
            "data = 99",
            "workload 1 (parallel-training): tensor x pipeline x data is 2 x 3 x 99, with GPUs for 32",
        ),
        ("data = 4\nexpert = 3", "workload 1 (parallel-training): expert is 3 with data 4"),
        ("data = 4\nlayers = 7", "workload 1 (parallel-training): layers is 7 with 3 stages"),
        (
            "data = 4\nmicro_batches = 99999",
            "workload 1 (parallel-training): micro_batches is 99999",
        ),
        ("data = 4\nscale = 1e-4", "workload 1 (parallel-training): load is"),
        ("server = { hosts = 0 }", "line 5: workload 1 (parallel-training): hosts is 0"),
        ("hosts = \"0..3\"", "workload 1 (parallel-training): 3 hosts are too few"),
    ] {
        let error = simulate(training, 1).unwrap_err();
        assert!(error.starts_with(want), "{training}: {error}");
    }
}
