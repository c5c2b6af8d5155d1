//! Memory and time of pairs of vNICs that each send a little: their connections, the switches' ports and tables, and
//! the simulated tenants. With a number as argument, it reports on that many pairs between 100 hosts; without, on
//! 2,000.

use std::path::Path;

use weft_sim::bench::process_cpu_nanos;
use weft_sim::memory::allocated_bytes;
use weft_sim::world::World;
use weft_sim::{Scenario, SimTime, build};
use weft_units::Seed;

const HOSTS: u32 = 100;

/// Returns a world with one vNIC on a host for each of its peers: each pair has its own.
fn world(pairs: u32) -> World {
    let each = pairs / HOSTS;
    let list: Vec<String> =
        (0..HOSTS).map(|host| format!("[{host}, {}]", (host + 37) % HOSTS)).collect();
    let text = format!(
        r#"
        transport = {{ profile = "bifrost", congestion = "weft", first_window = 65536, mtu = 4096 }}
        overlay = {{ ports = {each} }}
        measure = {{ sample_every = "0s" }}
        [topology]
        kind = "leaf-spine"
        leaves = 10
        spines = 10
        hosts_per_leaf = 10
        host_rate = "200Gbps"
        uplink_rates = ["200Gbps"]
        [[workload]]
        kind = "pairs"
        pairs = [{}]
        connections = {each}
        size = "512B"
        "#,
        list.join(", ")
    );
    build(&Scenario::parse(&text, Path::new("")).unwrap(), Seed(1)).unwrap()
}

/// The memory of a pair, bytes, as the mean of all pairs.
struct PairMemory {
    /// The memory of its vNICs alone.
    vnics: f64,
    /// The memory after its flow has finished.
    sending: f64,
    /// The memory once its connection is idle.
    idle: f64,
}

/// Returns the memory of a number of pairs; `None` if the allocator does not count it.
fn measure(pairs: u32) -> Option<PairMemory> {
    let begun = process_cpu_nanos();
    let before = allocated_bytes()?;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = |bytes: usize| (bytes - before) as f64 / f64::from(pairs);
    let mut world = world(pairs);
    let vnics = each(allocated_bytes()?);
    world.start();
    assert!(world.run(SimTime::from_picos(1_000_000_000_000)), "all flows finish");
    let (sent_at, sending) = (world.ended_at(), each(allocated_bytes()?));
    // A frame that overtook its pair's set-up request would have waited for a timeout, 4 ms.
    let took = sent_at.since(SimTime::EPOCH).as_micros_f64();
    assert!(took < 1_000.0, "all have sent after {took:.0} us");
    let ends = |world: &World| -> usize {
        let hosts = world.network.hosts.iter();
        hosts.map(|host| host.stack.as_deref().unwrap().vtep().unwrap().switch().pair_count()).sum()
    };
    assert_eq!(ends(&world), 2 * pairs as usize);
    world.run_to(SimTime::from_picos(3_000_000_000_000));
    assert_eq!(ends(&world), 2 * pairs as usize, "connections rest, and stay");
    let idle = each(allocated_bytes()?);
    let finished = world.network.traffic.finished.len();
    assert_eq!(finished, pairs as usize);
    #[expect(clippy::cast_precision_loss, reason = "likewise")]
    let spent = (process_cpu_nanos() - begun) as f64 / 1e9;
    println!(
        "{pairs} pairs: {vnics:.0} B a pair for its vNICs, {sending:.0} B with its flow and connection, {idle:.0} B \
         idle; {:.0} us of simulated time until all had sent, {:.1} s of processor time in all",
        took, spent,
    );
    Some(PairMemory { vnics, sending, idle })
}

fn main() {
    let requested = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let Some(memory) = measure(requested.unwrap_or(2000)) else {
        return weft_testkit::skip("overlay_pairs", "the allocator is not glibc's");
    };
    assert!(memory.vnics < memory.idle && memory.idle < memory.sending);
}
