//! Transfers through the emulator, and transfers with a hostile or a dead peer.

use std::cell::Cell;
use std::net::{SocketAddr, UdpSocket};

use weft_perf::emulator::{Emulator, EmulatorConfig, PathModel};
use weft_perf::{Client, ClientConfig, PerfError, Plan, Progress, Report, TestKind};
use weft_transport::{CloseReason, TimelyConfig, TransportConfig, congestion, path};
use weft_udp::{AgentConfig, Clock, WaitMode};
use weft_units::{BitRate, ByteCount, Duration, Seed};

mod server;

use server::RunningServer;

/// Returns a transport with more entropies than paths, so that the hash reaches every path.
fn transport() -> TransportConfig {
    TransportConfig { spray_unit: 4, send_window: 512, ..AgentConfig::ethernet(32) }
}

fn config(server: SocketAddr, milliseconds: u64) -> ClientConfig {
    ClientConfig {
        encryption: weft_udp::SealConfig::default(),
        local: "127.0.0.1:0".parse().unwrap(),
        server,
        transport: transport(),
        plan: Plan::new(TestKind::Throughput, 40_000, 16, true).unwrap(),
        connections: 1,
        duration: Duration::from_millis(milliseconds),
        wait: WaitMode::Block,
    }
}

fn path() -> PathModel {
    PathModel::new(BitRate::bps(100_000_000).unwrap(), Duration::from_micros(200))
}

/// Returns a client whose packets pass an emulator with these paths, and the emulator.
fn through(server: SocketAddr, paths: Vec<PathModel>, milliseconds: u64) -> (Client, Emulator) {
    through_with(config(server, milliseconds), paths)
}

fn through_with(config: ClientConfig, paths: Vec<PathModel>) -> (Client, Emulator) {
    let server = config.server;
    let mut client = Client::open(config).unwrap();
    let emulator = Emulator::start(&EmulatorConfig {
        client: client.agent().local(),
        server,
        paths,
        seed: Seed(7),
    })
    .unwrap();
    client.set_server(emulator.listen_address());
    (client, emulator)
}

fn retransmissions(report: &Report) -> u64 {
    report.client.engine.retransmissions()
}

#[test]
fn a_transfer_over_lossy_paths_arrives_unchanged() {
    let server = RunningServer::start("127.0.0.1:0");
    let lossy = PathModel { loss_per_million: 20_000, ..path() };
    let (client, emulator) = through(server.address, vec![lossy; 3], 500);
    let report = client.run(|_| {}).unwrap();
    assert!(report.messages > 50, "{report:?}");
    assert_eq!(report.corrupt, 0);
    let lost: u64 = emulator.paths().iter().map(|path| path.counters().lost).sum();
    assert!(
        lost > 0 && retransmissions(&report) > 0,
        "lost {lost}, resent {}",
        retransmissions(&report)
    );
    assert!(
        emulator.paths().iter().all(|path| path.counters().delivered > 100),
        "the hash finds every path"
    );
}

#[test]
fn a_path_that_dies_is_avoided_and_used_again_when_it_returns() {
    let server = RunningServer::start("127.0.0.1:0");
    let (client, emulator) = through(server.address, vec![path(); 4], 900);
    let victim = &emulator.paths()[2];
    let report = client
        .run(|progress: &Progress| {
            victim.set_up(!(0.2..0.5).contains(&progress.seconds));
        })
        .unwrap();
    assert_eq!(report.corrupt, 0);
    assert!(victim.counters().lost > 0, "{:?}", victim.counters());
    assert!(report.client.engine.paths_down > 0, "{:?}", report.client);
    assert!(report.client.engine.paths_up > 0, "{:?}", report.client);
}

/// Runs one flow of 20 Mb/s on paths of 100 Mb/s and 2 ms, then reduces its path to 2 Mb/s.
#[test]
fn hopper_leaves_a_path_that_becomes_slow() {
    let server = RunningServer::start("127.0.0.1:0");
    let mut config = config(server.address, 1_500);
    config.transport = TransportConfig {
        policy: path::Kind::Hopper,
        congestion: congestion::Kind::FixedWindow,
        line_rate: BitRate::bps(20_000_000).unwrap(),
        base_rtt: Duration::from_millis(5),
        spray_unit: 1,
        ack_every: 1,
        ..transport()
    };
    let model = PathModel::new(BitRate::bps(100_000_000).unwrap(), Duration::from_millis(2));
    let (client, emulator) = through_with(config, vec![model; 4]);
    let delivered =
        || -> Vec<u64> { emulator.paths().iter().map(|path| path.counters().delivered).collect() };
    let slowed = Cell::new(None);
    let report = client
        .run(|progress: &Progress| {
            if progress.seconds > 0.5 && slowed.get().is_none() {
                let before = delivered();
                let used = (0..4).max_by_key(|&path| before[path]).unwrap();
                emulator.paths()[used].set_rate(BitRate::bps(2_000_000).unwrap());
                slowed.set(Some((used, before[used], before.iter().sum::<u64>())));
            }
        })
        .unwrap();
    let (used, on_it, in_all) =
        slowed.get().expect("a second and a half is longer than half of one");
    let after = delivered();
    let (on_it, in_all) = (after[used] - on_it, after.iter().sum::<u64>() - in_all);
    assert!(
        report.client.engine.path_switches > 0 && report.client.engine.probes_sent > 1,
        "{report:?}"
    );
    // The path still carries ACKs, a window of data, and the data sent before the probes were answered.
    assert!(in_all > 500 && on_it * 3 < in_all, "{on_it} of {in_all}: {:?}", report.client);
    assert_eq!(report.corrupt, 0);
}

/// TIMELY paces at 100 Mb/s: 1440 bytes and 78 of headers every 121 us.
#[test]
fn packets_leave_no_faster_than_their_rate() {
    let server = RunningServer::start("127.0.0.1:0");
    let mut config = config(server.address, 500);
    config.transport = TransportConfig {
        congestion: congestion::Kind::Timely,
        line_rate: BitRate::bps(100_000_000).unwrap(),
        timely: TimelyConfig {
            t_low: Duration::from_secs(1),
            t_high: Duration::from_secs(1),
            ..TimelyConfig::default()
        },
        ..transport()
    };
    let report = Client::open(config).unwrap().run(|_| {}).unwrap();
    // A process without a processor sends less: pacing makes up for missed time only up to a bound.
    let max_bps = 100e6 * 1440.0 / 1518.0 * 1.01;
    assert!((0.05 * max_bps..max_bps).contains(&report.goodput_bps), "{report:?}");
}

#[test]
fn congestion_marks_of_a_full_queue_reach_the_receiver() {
    let server = RunningServer::start("127.0.0.1:0");
    let slow = PathModel { mark_above: ByteCount::kib(16), ..path() };
    let (client, emulator) = through(server.address, vec![slow; 2], 300);
    let report = client.run(|_| {}).unwrap();
    let marked: u64 = emulator.paths().iter().map(|path| path.counters().marked).sum();
    assert!(marked > 0);
    assert!(report.server.engine.ecn_marks > 0, "{marked} marked by the fabric, none seen");
}

#[test]
fn hostile_datagrams_are_counted_and_the_transfer_finishes() {
    let server = RunningServer::start("127.0.0.1:0");
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut rng = Seed(99).rng();
    let sent = Cell::new(0_u64);
    let client = Client::open(config(server.address, 500)).unwrap();
    let report = client
        .run(|_| {
            for _ in 0..200 {
                let mut bytes = [0_u8; 90];
                bytes.iter_mut().for_each(|byte| *byte = rng.next_u64().to_le_bytes()[0]);
                // Half of the datagrams begin like a packet of the protocol.
                if rng.chance(1, 2) {
                    bytes[0] = 1 + rng.next_u64().to_le_bytes()[0] % 8;
                    bytes[1] = 0x10;
                }
                let len = rng.index(bytes.len());
                attacker.send_to(&bytes[..len], server.address).unwrap();
                sent.set(sent.get() + 1);
            }
        })
        .unwrap();
    assert!(report.messages > 16, "{report:?}");
    assert_eq!(report.corrupt, 0);
    let dropped: u64 = report.server.dropped.values().sum();
    assert!(sent.get() > 0);
    // A few bytes may happen to be a well-formed request for a connection, which is answered, and a
    // busy machine's socket overflows.
    assert!(dropped * 2 >= sent.get(), "{} sent, {:?}", sent.get(), report.server);
    assert!(report.server.dropped["malformed"] > 0, "{:?}", report.server.dropped);
}

#[test]
fn a_peer_that_dies_is_noticed_within_its_timeout() {
    let mut server = Some(RunningServer::start("127.0.0.1:0"));
    let mut config = config(server.as_ref().unwrap().address, 10_000);
    config.transport.peer_timeout = Duration::from_millis(400);
    let died_at = Cell::new(None);
    let client = Client::open(config).unwrap();
    let error = client
        .run(|_| {
            if server.take().is_some() {
                died_at.set(Some(Clock.now()));
            }
        })
        .unwrap_err();
    let noticed = Clock.now().since(died_at.get().expect("the server was stopped"));
    assert!(matches!(error, PerfError::Lost { reason: CloseReason::PeerGone, .. }), "{error:?}");
    assert!(noticed < Duration::from_millis(2_000), "noticed after {noticed:?}");
}
