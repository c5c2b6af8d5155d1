//! A measurement server on its own thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use weft_perf::{Server, ServerConfig};
use weft_udp::{AgentConfig, WaitMode};

/// A server on loopback that runs until it is dropped.
pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    pub(crate) fn start(local: &str) -> Self {
        let mut server = Server::open(&ServerConfig {
            encryption: weft_udp::SealConfig::default(),
            local: local.parse().unwrap(),
            transport: AgentConfig::ethernet(4),
            wait: WaitMode::Hybrid,
        })
        .unwrap();
        let (address, stop) = (server.local(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = Some(thread::spawn(move || server.run(&stopped)));
        Self { address, stop, thread }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
