//! A fabric of several paths inside one process, for machines without root privileges: a relay on
//! loopback addresses that chooses a path by hashing the source port, as a switch would, and gives
//! each path its own rate, delay, queue and loss, and lets a caller set it down.
//!
//! Loopback has many addresses. The client connects to the server's stand-in; the relay passes its
//! packets on from the client's stand-in, so that replies return through the relay too.
//!
//! ```text
//! client 127.0.0.1:c  →  127.0.0.3:s ⟶ path by hash(source port) ⟶ 127.0.0.2:*  →  127.0.0.1:s server
//!                     ←  127.0.0.3:* ⟵ path by hash(source port) ⟵ 127.0.0.2:c  ←
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use weft_udp::sockets::{SocketConfig, SocketError, Sockets};
use weft_units::{BitRate, ByteCount, Duration, Seed};

mod link;
mod relay;

pub use link::{PathControl, PathCounters};

/// One path, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathModel {
    /// Bits per second, counted over UDP payload.
    pub rate: BitRate,
    /// One-way delay without queueing.
    pub delay: Duration,
    /// The capacity of the queue; packets beyond it are dropped.
    pub queue: ByteCount,
    /// Packets that find more than this waiting are marked (ECN).
    pub mark_above: ByteCount,
    /// Loss rate, lost packets per million.
    pub loss_per_million: u32,
}

impl PathModel {
    /// Returns a path without loss, with a queue of 1 MiB that marks above 256 KiB.
    pub fn new(rate: BitRate, delay: Duration) -> Self {
        let (queue, mark_above) = (ByteCount::mib(1), ByteCount::kib(256));
        Self { rate, delay, queue, mark_above, loss_per_million: 0 }
    }
}

/// A fabric between one client and one server.
#[derive(Clone, Debug)]
pub struct EmulatorConfig {
    /// The address on which the client receives, an IPv4 loopback address.
    pub client: SocketAddr,
    /// The address on which the server receives, an IPv4 loopback address.
    pub server: SocketAddr,
    /// The paths, at least one.
    pub paths: Vec<PathModel>,
    /// The seed of the hash and the losses.
    pub seed: Seed,
}

/// An error of [`Emulator::start`].
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// An address is not loopback; the relay needs several local addresses, which only loopback
    /// has.
    #[error("{0} is not an IPv4 loopback address; the emulator relays between those only")]
    NotLoopback(SocketAddr),
    /// The configuration has no path.
    #[error("an emulator needs at least one path")]
    NoPaths,
    /// Sockets could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The system could not start a thread.
    #[error("cannot start the relay's thread: {0}")]
    Thread(#[from] io::Error),
}

/// A running emulator, which stops when it is dropped.
#[derive(Debug)]
pub struct Emulator {
    paths: Arc<[PathControl]>,
    listen_address: SocketAddr,
    seed: Seed,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Starts the relay on its own thread.
    ///
    /// # Errors
    /// Returns `NoPaths` or `NotLoopback` for an invalid configuration, `Socket` or `Thread` if the system refuses.
    pub fn start(config: &EmulatorConfig) -> Result<Self, EmulatorError> {
        if config.paths.is_empty() {
            return Err(EmulatorError::NoPaths);
        }
        for address in [config.client, config.server] {
            if !address.ip().is_loopback() || address.is_ipv6() {
                return Err(EmulatorError::NotLoopback(address));
            }
        }
        let server_side = stand_in(config.client, &[config.client.ip(), config.server.ip()])?;
        let taken = [config.client.ip(), config.server.ip(), server_side.local().ip()];
        let client_side = stand_in(config.server, &taken)?;
        let listen_address = client_side.local();
        let paths: Arc<[PathControl]> = config.paths.iter().map(PathControl::new).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let relay = relay::Relay::new(config, Arc::clone(&paths), client_side, server_side);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("weft-emulator".to_owned())
            .spawn(move || relay.run(&stopped))?;
        Ok(Self { paths, listen_address, seed: config.seed, stop, thread: Some(thread) })
    }

    /// Returns the address to which the client connects instead of the server's.
    pub fn listen_address(&self) -> SocketAddr {
        self.listen_address
    }

    /// Returns the paths, for changes of their settings and for their counters while packets pass.
    pub fn paths(&self) -> &[PathControl] {
        &self.paths
    }

    /// Returns the index of the path of packets from `source_port`, in both directions.
    pub fn path_of(&self, source_port: u16) -> usize {
        link::path_of(self.seed, source_port, self.paths.len())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A relay that panicked has already reported it.
            let _ = thread.join();
        }
    }
}

/// Opens sockets that receive instead of `peer`: on its port, at a free loopback address that is not in `taken`.
fn stand_in(peer: SocketAddr, taken: &[IpAddr]) -> Result<Sockets, SocketError> {
    let candidates = (2..=250)
        .map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)))
        .filter(|address| !taken.contains(address));
    let mut in_use = None;
    for address in candidates {
        let local = SocketAddr::new(address, peer.port());
        let config = SocketConfig { offload: false, ..SocketConfig::new(local, 2) };
        match Sockets::open_marking(&config) {
            Err(error @ SocketError::Bind { .. }) => in_use = Some(error),
            result => return result,
        }
    }
    Err(in_use.expect("more candidates than addresses taken"))
}
