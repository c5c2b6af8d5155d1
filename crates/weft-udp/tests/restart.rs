//! A peer that has lost all state in a restart, over real sockets.

use std::net::{SocketAddr, UdpSocket};

use weft_transport::{
    CloseReason, ConnectionId, Endpoint, Event, Message, Payload, Placement, TransportConfig,
};
use weft_udp::wait::MAX_SLEEP;
use weft_udp::{Agent, AgentConfig, Application, WaitMode};
use weft_units::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(10);

/// An application that records events. Its messages are zeros, and received payload is dropped.
#[derive(Default)]
struct Log(Vec<Event>);

impl Application for Log {
    fn read(&mut self, _: ConnectionId, _: Payload, out: &mut [u8]) {
        out.fill(0);
    }

    fn place(&mut self, _: Instant, _: &Placement, _: &[u8]) {}

    fn on_event(&mut self, _: &mut Endpoint, _: Instant, event: Event) {
        self.0.push(event);
    }
}

fn agent(local: SocketAddr) -> Agent {
    let transport =
        TransportConfig { peer_timeout: Duration::from_secs(60), ..AgentConfig::ethernet(4) };
    Agent::open(&AgentConfig::new(local, transport).accepting()).unwrap()
}

/// Runs both agents until an event in `log`, that of the first one, satisfies `done`.
fn run_until(ends: [&mut Agent; 2], log: &mut Log, done: impl Fn(&Event) -> bool) {
    let [first, second] = ends;
    let deadline = first.now() + TIMEOUT;
    while !log.0.iter().any(&done) {
        assert!(first.now() < deadline, "{:?}", log.0);
        let _ = first.turn(log);
        let _ = second.turn(&mut Log::default());
    }
}

/// A data packet does not contain its sender's receive port, so the answer to one of an unknown
/// connection goes to its source port.
#[test]
fn a_restarted_peer_resets_the_connection() {
    let mut client = agent("127.0.0.1:0".parse().unwrap());
    let mut server = agent("127.0.0.1:0".parse().unwrap());
    let (address, mut log, now) = (server.local(), Log::default(), client.now());
    let connection = client.endpoint().connect(now, address, 0).unwrap();
    let connected = |event: &Event| matches!(event, Event::Connected { .. });
    run_until([&mut client, &mut server], &mut log, connected);

    drop(server);
    let mut server = agent(address);
    let message = Message { token: 1, opcode: 0, tag: 0, length: 100_000 };
    client.endpoint().submit(now, connection, message).unwrap();
    let reset = Event::Closed { connection, reason: CloseReason::Reset };
    run_until([&mut client, &mut server], &mut log, |event| *event == reset);
}

/// A turn within a millisecond of the last one does not read the sockets that only send.
#[test]
fn an_answer_at_a_source_port_ends_a_wait() {
    let transport = AgentConfig::ethernet(4);
    let config = AgentConfig::new("127.0.0.1:0".parse().unwrap(), transport);
    let mut agent = Agent::open(&AgentConfig { wait: WaitMode::Block, ..config }).unwrap();
    let port = agent.sockets().outbox.source_ports().unwrap()[2];
    let (peer, mut log) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Log::default());
    for _ in 0..50 {
        let _ = agent.turn(&mut log);
        let (read, began) = (agent.counters().malformed, agent.now());
        peer.send_to(b"?", ("127.0.0.1", port)).unwrap();
        let _ = agent.step(&mut log, began + TIMEOUT);
        let woke = agent.now().since(began) < MAX_SLEEP;
        // If the thread was interrupted for a millisecond, the step has read the datagram before it waited.
        if woke && agent.counters().malformed == read {
            let _ = agent.turn(&mut log);
            assert_eq!(agent.counters().malformed, read + 1, "the next turn reads it");
            return;
        }
    }
    panic!("no datagram at a source port ended a wait");
}
