//! Several senders into one slow link with the agent's default transport, in the simulator, so results are
//! deterministic; `docs/design/congestion.md` has the same on real packets.

use std::fmt::Write;
use std::path::Path;
use std::sync::Once;

use toml::{Table, Value};
use weft_sim::{Report, Scenario, run};
use weft_udp::AgentConfig;
use weft_units::Seed;

/// Rate of the receiver's link, bits per second, and size of its queue, bytes: 10 ms at this rate.
const LINK: f64 = 200e6;
const BUFFER: f64 = LINK / 8.0 / 100.0;
/// Bytes of a packet's payload, and of the packet on the wire.
const PAYLOAD: f64 = 1440.0;
const FRAME: f64 = 1518.0;
/// The measured time, microseconds of the run: it excludes the start.
const MEASURED: std::ops::Range<f64> = 1e6..4e6;

/// Returns a topology in ns-3's format: one receiver behind the slow link and 16 senders, over four paths.
fn topology() -> String {
    let (near, far) = (17, 18);
    let mut text = format!("23 6 25\n17 18 19 20 21 22\n0 {near} 200Mbps 10us 0\n");
    for host in 1..17 {
        writeln!(text, "{host} {far} 40Gbps 10us 0").unwrap();
    }
    for spine in 19..23 {
        writeln!(text, "{spine} {near} 40Gbps 10us 0\n{spine} {far} 40Gbps 10us 0").unwrap();
    }
    text
}

/// Streams of 64 KiB messages into the link.
#[derive(Clone, Copy)]
struct Case {
    senders: usize,
    /// The queue discipline of the ports.
    queue: &'static str,
    /// The first window in bytes; `None` for the agent's default.
    first_window: Option<u32>,
    /// The share of packets that each path loses, in each direction.
    loss: f64,
}

const ALONE: Case = Case { senders: 1, queue: "drop-tail", first_window: None, loss: 0.0 };

/// Runs a case and returns its report. Marking thresholds are for 100 Gb/s and scale with the rate of a port, so 25 MB
/// are 2 ms, a fifth of the buffer. Hosts send within 100 us of the time at which they could.
fn run_case(Case { senders, queue, first_window, loss }: Case) -> Report {
    static TOPOLOGY: Once = Once::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    TOPOLOGY.call_once(|| std::fs::write(folder.join("shared-link.topo"), topology()).unwrap());
    let mut transport = Table::try_from(AgentConfig::ethernet(16)).unwrap();
    if let Some(bytes) = first_window {
        transport.insert("first_window".into(), bytes.into());
    }
    transport.insert("profile".into(), "bifrost".into());
    let pairs: Vec<_> = (1..=senders).map(|sender| [i64::try_from(sender).unwrap(), 0]).collect();
    let mut text = format!(
        "topology = {{ kind = \"file\", file = \"shared-link.topo\" }}\n\
         queue = {{ kind = \"{queue}\", limit = \"250KB\", ecn_min = \"25MB\", ecn_max = \"25MB\" }}\n\
         host = {{ nic_packets = 44, handshake = true, jitter = \"100us\" }}\n\
         run = {{ limit = \"4s\" }}\n\
         measure = {{ flows = true, from = \"1s\", sample_every = \"1ms\" }}\n\
         transport = {}\n\
         [[workload]]\n\
         kind = \"writes\"\nsize = \"64KiB\"\ndepth = 32\ntotal = \"1GB\"\npairs = {}\n",
        Value::from(transport),
        Value::try_from(pairs).unwrap(),
    );
    for spine in 19..23 {
        let links = format!("18-{spine}");
        write!(text, "[[fault]]\nkind = \"loss\"\nlinks = \"{links}\"\nprobability = {loss}\n")
            .unwrap();
    }
    run(&Scenario::parse(&text, folder).unwrap(), Seed(1)).unwrap()
}

/// Returns the bytes that each sender delivered in the time measured.
fn delivered(senders: usize, report: &Report) -> Vec<f64> {
    let mut bytes = vec![0.0; senders];
    for flow in report.flows.iter().filter(|flow| MEASURED.contains(&flow.delivered_us)) {
        bytes[flow.source as usize - 1] += f64::from(flow.bytes);
    }
    bytes
}

/// Asserts that the link is full and shared evenly, and that its queue is below a third of the buffer.
fn assert_shared(senders: usize, report: &Report) {
    let bytes = delivered(senders, report);
    let total: f64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|bytes| bytes * bytes).sum();
    let seconds = (MEASURED.end - MEASURED.start) / 1e6;
    let goodput = total * 8.0 / seconds / (LINK * PAYLOAD / FRAME);
    let fairness = total * total / (bytes.len() as f64 * squares);
    // The mean over the leaves' ports to hosts, of which one has a queue.
    let depth = &report.queues["leaf-down"];
    let queue = depth.mean_bytes * depth.ports as f64 / BUFFER;
    println!("{senders} senders: goodput {goodput:.3}, Jain {fairness:.3}, queue {queue:.3}");
    assert!(goodput >= 0.98, "{senders} senders: {goodput} of the link");
    assert!(fairness >= 0.95, "{senders} senders: Jain {fairness}");
    assert!(queue < 1.0 / 3.0, "{senders} senders: a queue of {queue} of the buffer");
}

#[test]
fn senders_fill_one_link_evenly_with_a_short_queue() {
    for queue in ["drop-tail", "ecn"] {
        for senders in [1, 2, 4, 8, 16] {
            let report = run_case(Case { senders, queue, ..ALONE });
            assert_shared(senders, &report);
            let retransmitted = report.transport.retransmit_share;
            assert!(
                retransmitted <= 0.01,
                "{senders} senders, {queue}: {retransmitted} retransmitted"
            );
        }
    }
}

/// A probe of an idle path takes 64 bytes of the link; the probes of 16 senders once took 3 % of its rate.
#[test]
fn probes_of_idle_paths_take_little_of_a_slow_link() {
    let report = run_case(Case { senders: 16, ..ALONE }).transport;
    assert!(
        report.counters.probes_sent > 16 * 50,
        "idle paths stay measured: {}",
        report.counters.probes_sent
    );
    assert!(
        report.counters.probes_sent * 8 < report.counters.data_sent,
        "{} probes",
        report.counters.probes_sent
    );
}

/// Without a bound on the first window all 16 senders overflow the queue at the start. It stays full until all have
/// reduced their windows. No sender may take it for the queue of competing traffic, or all would follow losses from
/// then on.
#[test]
fn senders_that_overflow_the_queue_together_empty_it() {
    let report = run_case(Case { senders: 16, first_window: Some(256 << 10), ..ALONE });
    let samples = report.queues["leaf-down"].series.iter();
    let late: Vec<_> = samples.filter(|point| point.time_us > 3e6).map(|p| p.max_bytes).collect();
    let mean = late.iter().sum::<u64>() as f64 / late.len() as f64 / BUFFER;
    assert!(mean < 1.0 / 3.0, "a queue of {mean} of the buffer");
}

/// Losses without a queue are due to the paths: they are retransmitted, and the window does not shrink.
#[test]
fn random_loss_on_every_path_costs_no_throughput() {
    let goodput = |loss| delivered(1, &run_case(Case { loss, ..ALONE }))[0];
    let free = goodput(0.0);
    for loss in [0.001, 0.01, 0.02] {
        let part = goodput(loss) / free;
        println!("{} % of loss: {part:.3} of the throughput without", loss * 100.0);
        assert!(part >= 0.95, "{loss}: {part} of the throughput without loss");
    }
}
