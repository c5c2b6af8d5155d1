//! A TCP connection between the tenants of two hosts, which is busy all the time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::host::{Host, LIMIT};

/// Bytes of a message: several segments of TCP.
const MESSAGE: usize = 16 << 10;

/// Echoes that show that a connection goes on.
const ECHOES: u64 = 500;

/// A connection on which numbered messages go to the other tenant and come back, one at a time.
pub(crate) struct Echo {
    echoes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start(hosts: &[Host<'_>; 2]) -> Self {
        let address = "192.168.7.2:7";
        let [client, server] = hosts.each_ref().map(Host::tenant);
        let listener = weft_lab::enter(&server, || TcpListener::bind(address)).unwrap().unwrap();
        let server = std::thread::spawn(move || return_all(listener.accept().unwrap().0));
        let stream = weft_lab::enter(&client, || TcpStream::connect(address)).unwrap().unwrap();
        let (echoes, stop) = (Arc::default(), Arc::default());
        let (counted, stopped) = (Arc::clone(&echoes), Arc::clone(&stop));
        let client = std::thread::spawn(move || exchange(stream, &counted, &stopped));
        Self { echoes, stop, threads: vec![server, client] }
    }

    /// Waits until messages have come back after this call.
    pub(crate) fn goes_on(&self, state: &str) {
        let (before, began) = (self.echoes.load(Ordering::Relaxed), Instant::now());
        while self.echoes.load(Ordering::Relaxed) < before + ECHOES {
            let is_alive = self.threads.iter().all(|thread| !thread.is_finished());
            assert!(is_alive && began.elapsed() < LIMIT, "the connection has ended: {state}");
            weft_testkit::pause();
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

/// Limits the time for which a connection may stand still.
fn limit(stream: &TcpStream) {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
}

fn exchange(mut stream: TcpStream, echoes: &AtomicU64, stop: &AtomicBool) {
    limit(&stream);
    while !stop.load(Ordering::Relaxed) {
        let number = echoes.load(Ordering::Relaxed);
        let sent: Vec<_> = number.to_le_bytes().into_iter().cycle().take(MESSAGE).collect();
        let mut returned = [0; MESSAGE];
        stream.write_all(&sent).unwrap();
        stream.read_exact(&mut returned).unwrap();
        assert!(returned == *sent, "message {number} has changed");
        echoes.fetch_add(1, Ordering::Relaxed);
    }
}

fn return_all(mut stream: TcpStream) {
    limit(&stream);
    let mut bytes = vec![0; MESSAGE];
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        stream.write_all(&bytes[..len]).unwrap();
    }
}
