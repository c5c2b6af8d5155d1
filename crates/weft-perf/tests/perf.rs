//! Measurements over loopback with client and server, which check every byte.

use std::net::SocketAddr;

use weft_perf::{Client, ClientConfig, PerfError, Plan, Report, TestKind};
use weft_udp::{AgentConfig, WaitMode};
use weft_units::Duration;

mod server;

use server::RunningServer;

fn client(server: SocketAddr, plan: Plan) -> ClientConfig {
    let unspecified: &str = if server.is_ipv6() { "[::1]:0" } else { "127.0.0.1:0" };
    ClientConfig {
        encryption: weft_udp::SealConfig::default(),
        local: unspecified.parse().unwrap(),
        server,
        transport: AgentConfig::ethernet(4),
        plan,
        connections: 1,
        duration: Duration::from_millis(300),
        wait: WaitMode::Hybrid,
    }
}

fn run(config: ClientConfig) -> Result<Report, PerfError> {
    Client::open(config).unwrap().run(|_| {})
}

#[test]
fn a_stream_of_messages_arrives_whole_and_unchanged() {
    let server = RunningServer::start("127.0.0.1:0");
    let plan = Plan::new(TestKind::Throughput, 100_003, 16, true).unwrap();
    let report = run(client(server.address, plan)).unwrap();
    assert!(report.messages > 16, "{report:?}");
    assert_eq!(report.corrupt, 0);
    assert_eq!(
        report.placed.bytes.iter().sum::<u64>(),
        report.messages * 100_003,
        "every byte is placed once"
    );
    let used = report.client.paths.iter().filter(|path| path.datagrams > 0).count();
    assert_eq!(used, 4, "every path carries something: {:?}", report.client.paths);
}

#[test]
fn a_stream_of_messages_arrives_over_ipv6() {
    let server = RunningServer::start("[::1]:0");
    let plan = Plan::new(TestKind::Throughput, 65_536, 8, true).unwrap();
    let report = run(client(server.address, plan)).unwrap();
    assert!(report.messages > 8, "{report:?}");
    assert_eq!(report.corrupt, 0);
}

#[test]
fn replies_carry_the_bytes_of_their_requests_on_every_connection() {
    let server = RunningServer::start("127.0.0.1:0");
    for (kind, bytes, outstanding) in
        [(TestKind::Latency, 64, 1), (TestKind::Messages, 64, 100), (TestKind::Messages, 5000, 7)]
    {
        let plan = Plan::new(kind, bytes, outstanding, true).unwrap();
        let report = run(ClientConfig { connections: 3, ..client(server.address, plan) }).unwrap();
        assert!(report.messages > 30, "{report:?}");
        assert_eq!(report.corrupt, 0, "{kind:?} of {bytes} bytes");
        assert_eq!(report.latency_us.count, report.messages);
        assert!(report.latency_us.p50 > 0.0 && report.latency_us.p50 <= report.latency_us.max);
    }
}

#[test]
fn a_server_that_does_not_answer_is_named_with_remedies() {
    // The socket is bound and never read, so nothing answers and no other program takes the port.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let plan = Plan::new(TestKind::Latency, 64, 1, false).unwrap();
    let mut config = client(address, plan);
    config.transport.peer_timeout = Duration::from_millis(300);
    let error = run(config).unwrap_err();
    assert!(matches!(error, PerfError::Unreachable { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains(&address.to_string()), "{message}");
    assert!(message.contains("weft perf server"), "{message}");
}
