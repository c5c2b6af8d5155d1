//! The processing time of one packet in the engine, both ends together: two endpoints exchange packets with a fixed
//! delay and no network between them.
//!
//! Run it with `cargo bench -p weft-transport --bench engine`.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant as Clock;

use weft_transport::{
    Arrival, Endpoint, EndpointConfig, Event, Message, Secret, Transmit, TransportConfig, Verdict,
    path,
};
use weft_units::{BitRate, ByteCount, Duration, Instant, Seed};

/// The delay of the network in each direction.
const ONE_WAY: Duration = Duration::from_micros(5);
/// The length of a message, bytes.
const MESSAGE: u32 = 2_000_000;
const MESSAGES: u64 = 400;

fn endpoint(config: &TransportConfig, seed: u64) -> Endpoint {
    let config = EndpointConfig {
        transport: config.clone(),
        receive_port: 4791,
        thread_id: 0,
        accept: true,
        max_connections: 16,
    };
    Endpoint::new(config, Seed(seed), Secret::from_seed(Seed(seed)))
        .expect("the profiles are valid")
}

/// Runs one bulk transfer; returns the number of data packets sent, the number of ACKs sent, and the wall time in
/// seconds.
#[expect(clippy::disallowed_methods, reason = "a benchmark is a clock's one use here")]
fn transfer(config: &TransportConfig) -> (u64, u64, f64) {
    let at = |host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4791));
    let (mut a, mut b) = (endpoint(config, 1), endpoint(config, 2));
    let mut now = Instant::from_nanos(1);
    let (id, _) = Endpoint::join(now, (&mut a, at(1)), (&mut b, at(2))).expect("both are empty");
    for token in 0..MESSAGES {
        let message = Message { token, opcode: 0, tag: 0, length: MESSAGE };
        a.submit(now, id, message).expect("the queue holds them all");
    }
    // One packet leaves in each slot of the wire.
    let rate = BitRate::gbps(400).expect("not zero");
    let slot = rate.serialization_delay(ByteCount(config.mtu.into()));
    let mut wires: [VecDeque<(Instant, Transmit)>; 2] = Default::default();
    let mut unacked = MESSAGES;
    let began = Clock::now();
    while unacked > 0 {
        now += slot;
        if let Some(transmit) = a.poll_transmit(now) {
            wires[1].push_back((now + ONE_WAY, transmit));
        }
        while let Some(transmit) = b.poll_transmit(now) {
            wires[0].push_back((now + ONE_WAY, transmit));
        }
        for (end, wire) in [&mut a, &mut b].into_iter().zip(&mut wires) {
            while let Some((at_time, transmit)) = wire.pop_front_if(|(at, _)| *at <= now) {
                let arrival = Arrival {
                    from: at(1),
                    received_at: at_time,
                    congestion_experienced: false,
                    hops: 6,
                };
                let from = if transmit.payload.is_some() { at(1) } else { at(2) };
                let arrival = Arrival { from, ..arrival };
                let len = transmit.payload.map_or(0, |payload| payload.len);
                if let Verdict::Place(placement) =
                    end.handle_packet(now, &arrival, &transmit.packet, len)
                {
                    end.placed(now, placement.connection, placement.psn).expect("it waits");
                }
            }
            if end.poll_timeout().is_some_and(|at| at <= now) {
                end.handle_timeout(now);
            }
        }
        while let Some(event) = a.poll_event() {
            unacked -= u64::from(matches!(event, Event::Acked { .. }));
        }
        while b.poll_event().is_some() {}
    }
    let seconds = began.elapsed().as_secs_f64();
    (a.stats().data_sent, b.stats().acks_sent, seconds)
}

fn main() {
    println!("{:<14} {:>10} {:>8} {:>14}", "policy", "packets", "acks", "ns per packet");
    for &policy in path::Kind::ALL {
        let config = TransportConfig { policy, ..TransportConfig::stellar() };
        let (packets, acks, seconds) = transfer(&config);
        let nanos = seconds * 1e9 / packets as f64;
        println!("{:<14} {packets:>10} {acks:>8} {nanos:>14.1}", policy.name());
    }
}
