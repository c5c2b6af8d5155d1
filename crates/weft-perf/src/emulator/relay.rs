//! The emulator's thread: receives packets on one side and sends them on the other when their
//! path's delay has passed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_udp::sockets::Sockets;
use weft_udp::wait::Waiter;
use weft_udp::{Clock, WaitMode};
use weft_units::{Duration, Instant, Seed};

use super::EmulatorConfig;
use super::link::{self, Link, PathControl};

/// Index of the socket whose packets are marked (ECN), in [`Sockets::open_marking`].
const MARKED: u16 = 1;

/// Maximum sleep, which bounds the delay until the thread reads its stop flag.
const MAX_SLEEP: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Relay {
    toward_server: Direction,
    toward_client: Direction,
    paths: Arc<[PathControl]>,
    seed: Seed,
    clock: Clock,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
}

/// All packets in flight to one end.
#[derive(Debug)]
struct Direction {
    /// The sockets that receive packets addressed to this end.
    sockets: Sockets,
    destination: SocketAddr,
    links: Vec<Link>,
}

impl Relay {
    pub(super) fn new(
        config: &EmulatorConfig,
        paths: Arc<[PathControl]>,
        client_side: Sockets,
        server_side: Sockets,
    ) -> Self {
        let direction = |name, sockets, destination| Direction {
            sockets,
            destination,
            links: (0..paths.len())
                .map(|path| Link::new(config.seed.child(name, path as u64)))
                .collect(),
        };
        Self {
            toward_server: direction("toward server", client_side, config.server),
            toward_client: direction("toward client", server_side, config.client),
            paths,
            seed: config.seed,
            clock: Clock,
            spare: Vec::new(),
        }
    }

    /// Relays packets until `stop` is set.
    pub(super) fn run(mut self, stop: &AtomicBool) {
        let mut waiter = Waiter::new(WaitMode::Block, self.clock);
        while !stop.load(Ordering::Relaxed) {
            let took = self.ingest();
            let passed = self.forward();
            if took || passed {
                waiter.worked();
                continue;
            }
            let until = self.next_arrival().min(self.clock.now() + MAX_SLEEP);
            let watched = [&self.toward_server, &self.toward_client];
            let [first, second] = watched.map(|direction| direction.sockets.readable());
            waiter.wait_for_either(first, second, until);
        }
    }

    /// Enqueues received packets; returns `true` if there were any.
    fn ingest(&mut self) -> bool {
        let Self { paths, seed, spare, clock, .. } = self;
        let mut took = false;
        for direction in [&mut self.toward_server, &mut self.toward_client] {
            let messages = direction.sockets.inbox.receive().unwrap_or(0);
            let now = clock.now();
            for index in 0..messages {
                took = true;
                let received = direction.sockets.inbox.message(index);
                let path = link::path_of(*seed, received.from.port(), paths.len());
                for datagram in received.datagrams() {
                    let buffer = || spare.pop().unwrap_or_default();
                    direction.links[path].enqueue(now, &paths[path], datagram, buffer);
                }
            }
        }
        took
    }

    /// Sends packets whose delay has passed; returns `true` if there were any.
    fn forward(&mut self) -> bool {
        let now = self.clock.now();
        let mut passed = false;
        // Packets for the server leave from the client's stand-in, which receives for the client, and packets for the
        // client from the server's, so that each end sees the address that it knows.
        let Self { toward_server, toward_client, paths, spare, .. } = self;
        for (direction, exit) in [
            (&mut toward_server.links, (&mut toward_client.sockets, toward_server.destination)),
            (&mut toward_client.links, (&mut toward_server.sockets, toward_client.destination)),
        ] {
            let (sockets, destination) = exit;
            for (link, path) in direction.iter_mut().zip(paths.iter()) {
                while let Some(packet) = link.dequeue(now, path) {
                    passed = true;
                    let size = u16::try_from(packet.bytes.len()).expect("it came as a datagram");
                    let mark = if packet.marked { MARKED } else { 0 };
                    sockets.outbox.push(&destination, mark, size, |out| {
                        out.copy_from_slice(&packet.bytes);
                    });
                    spare.push(packet.bytes);
                }
            }
            sockets.outbox.flush();
        }
        passed
    }

    fn next_arrival(&self) -> Instant {
        [&self.toward_server, &self.toward_client]
            .into_iter()
            .flat_map(|direction| &direction.links)
            .filter_map(Link::next_arrival)
            .min()
            .unwrap_or(Instant::FAR_FUTURE)
    }
}
