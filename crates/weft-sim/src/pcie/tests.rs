use std::path::Path;

use weft_units::{BitRate, ByteCount};

use super::*;
use crate::report::Report;
use crate::scenario::Scenario;

const PAGE: u16 = 4096;

fn dma(change: impl FnOnce(&mut PcieConfig)) -> Dma {
    let mut config = PcieConfig::default();
    change(&mut config);
    config.check().unwrap();
    Dma::new(&config, Seed(1))
}

fn page(number: u32) -> Piece {
    Piece { connection: 0, length: 64 << 20, offset: number * u32::from(PAGE), len: PAGE }
}

fn nanos(span: SimSpan) -> u64 {
    span.as_picos() / 1000
}

/// Returns the duration of one read on an idle bus, nanoseconds.
fn read(dma: &mut Dma, number: u32) -> u64 {
    let now = dma.down.busy_until + SimSpan::from_picos(1_000_000_000);
    nanos(dma.read(now, page(number)).since(now))
}

#[test]
fn a_read_pays_for_a_translation_once_and_for_a_walk_once_a_block() {
    let mut dma = dma(|config| config.layout = Layout::InOrder);
    // 16 packets of 256 + 24 bytes at 231 Gb/s are 155 ns; half a microsecond until they arrive.
    let plain = 500 + 155;
    assert_eq!(read(&mut dma, 0), 1540 + 330 + plain);
    assert_eq!(read(&mut dma, 0), plain);
    assert_eq!(read(&mut dma, 1), 1540 + plain, "the IOTLB knows the block");
    assert_eq!(read(&mut dma, 512), 1540 + 330 + plain);
    let Counts { atc_hits, atc_misses, iotlb_hits, walks, .. } = dma.counts();
    assert_eq!((atc_hits, atc_misses, iotlb_hits, walks), (1, 3, 1, 2));
}

#[test]
fn the_table_translates_a_gpus_addresses_and_the_iommu_a_hosts() {
    let mut gpu = dma(|config| config.translation = Translation::Emtt);
    assert_eq!([read(&mut gpu, 0), read(&mut gpu, 0)], [655, 655]);
    assert_eq!(gpu.counts().walks, 0);
    let mut host = dma(|config| {
        config.translation = Translation::Emtt;
        config.target = Target::Host;
    });
    assert_eq!([read(&mut host, 0), read(&mut host, 0)], [250 + 330 + 655, 250 + 655]);
}

#[test]
fn the_root_complex_walks_for_every_address_and_limits_the_rate() {
    let mut dma = dma(|config| config.translation = Translation::RootComplex);
    // The same 4480 bytes at 154.2 Gb/s are 232 ns.
    assert_eq!([read(&mut dma, 0), read(&mut dma, 0)], [250 + 330 + 232 + 655, 250 + 232 + 655]);
    assert_eq!(dma.counts().atc_misses, 0);
}

#[test]
fn a_requested_translation_is_not_requested_again() {
    let mut dma = dma(|config| config.page = ByteCount::kib(64));
    let now = SimTime::EPOCH;
    let first = dma.write(now, page(0));
    let second = dma.write(now, page(1));
    assert_eq!((dma.counts().atc_misses, dma.counts().walks), (1, 1));
    assert_eq!(nanos(second.since(first)), 155, "it only waits for the link");
}

/// Returns the payload rate of `pages` different pages that are all requested at once, Gb/s.
fn rate_of_misses(pages: u32, change: impl FnOnce(&mut PcieConfig)) -> f64 {
    let mut dma = dma(change);
    let ends = (0..pages).map(|number| dma.write(SimTime::EPOCH, page(number)));
    let last = ends.fold(SimTime::EPOCH, SimTime::max);
    let bits = f64::from(pages) * f64::from(PAGE) * 8.0;
    bits / last.since(SimTime::EPOCH).as_secs_f64() / 1e9
}

#[test]
fn outstanding_requests_limit_the_rate_of_misses() {
    let in_order = |config: &mut PcieConfig| config.layout = Layout::InOrder;
    // 8 pages in 1.54 us are 170.2 Gb/s; 4 are half of it.
    let of = |outstanding| {
        rate_of_misses(10_000, |config| {
            in_order(config);
            config.ats.outstanding = outstanding;
        })
    };
    assert!((169.0..171.0).contains(&of(8)), "{}", of(8));
    assert!((84.0..86.0).contains(&of(4)), "{}", of(4));
    assert!((210.0..212.0).contains(&of(64)), "the link's: {}", of(64));
}

#[test]
fn walkers_are_as_limited_as_requests() {
    let rate = rate_of_misses(10_000, |config| {
        config.iotlb_page = config.page;
        config.ats.outstanding = 1000;
        config.walk = WalkConfig { walkers: 1, delay: Duration::from_nanos(500) };
    });
    assert!((65.0..66.0).contains(&rate), "a page each 500 ns: {rate}");
}

#[test]
fn an_invalid_value_is_named() {
    for (change, want) in [
        ("page = \"5KB\"", "page is 5KB, expected a power of two"),
        ("atc = { entries = 10, ways = 4 }", "atc has 10 entries in sets of 4"),
        ("ats = { outstanding = 0 }", "outstanding is 0"),
        ("translation = \"emt\"", "emtt"),
        ("iotlb_page = \"5KiB\"", "iotlb_page is 5KiB, expected a multiple"),
    ] {
        let text = format!("topology = {{ kind = \"leaf-spine\" }}\n[pcie]\n{change}\n");
        let error = Scenario::parse(&text, Path::new("")).unwrap_err().to_string();
        assert!(error.contains(want) && error.contains("line 3"), "{error}");
    }
    let text = "topology = { kind = \"leaf-spine\" }\nport = { kind = \"priority\" }\n[pcie]\n";
    let error = Scenario::parse(text, Path::new("")).unwrap_err().to_string();
    assert!(error.contains("fifo"), "{error}");
}

/// Returns the report of 64 MiB between two hosts at 200 Gb/s, in messages of 1 MiB over 4 connections.
fn run(pcie: &str) -> Report {
    let text = format!(
        r#"
        topology = {{ kind = "leaf-spine", leaves = 1, spines = 1, hosts_per_leaf = 2, host_rate = "200Gbps" }}
        transport = {{ profile = "ecmp", congestion = "fixed-window", mtu = 4096, base_rtt = "20us" }}
        host = {{ nic_packets = 64 }}
        {pcie}
        [[workload]]
        kind = "writes"
        connections = 4
        size = "1MiB"
        total = "16MiB"
        depth = 2
        "#
    );
    let scenario = Scenario::parse(&text, Path::new("")).unwrap();
    crate::run(&scenario, Seed(1)).unwrap()
}

#[test]
fn a_run_is_as_fast_as_its_bus_and_without_one_as_its_port() {
    let none = run("");
    assert!(none.finished && none.pcie.is_none());
    let wire = none.goodput.total_gbps;
    let slow = run("pcie = { translation = \"emtt\", rate = \"100Gbps\" }");
    let bus = 100.0 * 256.0 / 280.0;
    let goodput = slow.goodput.total_gbps;
    assert!((0.98 * bus..bus).contains(&goodput), "{goodput} of {bus}, {wire} without");
    assert!(wire > 1.9 * goodput);
    // Each of the 16,384 packets is read once and written once.
    let pcie = slow.pcie.unwrap();
    assert_eq!((pcie.reads, pcie.writes), (16_384, 16_384));
}

#[test]
fn a_cache_that_is_too_small_limits_the_rate() {
    let of = |entries: u32| {
        let report = run(&format!("pcie.atc = {{ entries = {entries}, ways = 16 }}"));
        (report.goodput.total_gbps, report.pcie.unwrap().atc_miss_share)
    };
    // 1024 pages at either end; each is requested once in 16 rounds, or whenever it is used.
    let ((fast, few), (slow, all)) = (of(4096), of(512));
    assert!(few < 0.07 && all > 0.9, "{few} {all}");
    assert!(fast > 185.0 && (160.0..172.0).contains(&slow), "{fast} {slow}");
    let rate = BitRate::gbps(200).unwrap().as_bps();
    assert!(fast < rate as f64 / 1e9);
}
