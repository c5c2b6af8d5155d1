//! One long TCP stream that records to the millisecond when its bytes arrived.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Site;

/// A stream from end 0 to end 1 that runs until `end` is called.
pub(crate) struct Bulk {
    stop: Arc<AtomicBool>,
    began: Instant,
    sender: JoinHandle<()>,
    receiver: JoinHandle<Vec<u64>>,
}

/// The number of bytes that arrived in each millisecond.
pub(crate) struct Arrivals(Vec<u64>);

impl Bulk {
    pub(crate) fn start(site: &Site, port: u16) -> Self {
        Self::between(site, 0, port)
    }

    /// Starts a stream from another end to end 1.
    pub(crate) fn between(site: &Site, from: usize, port: u16) -> Self {
        let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
        let listener = weft_lab::enter(&site.namespace(1), listen);
        let listener = listener.expect("a namespace of the trial").expect("a port that is free");
        let to = (site.server(), port);
        let connect = || TcpStream::connect((to.0.as_str(), to.1));
        let stream = weft_lab::enter(&site.namespace(from), connect);
        let mut out = stream.expect("a namespace of the trial").expect("it listens");
        let (mut arriving, _) = listener.accept().expect("it connected");
        let began = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            let bytes = [0; 128 << 10];
            out.set_write_timeout(Some(Duration::from_millis(500))).expect("not zero");
            while !stopped.load(Ordering::Relaxed) {
                let _ = out.write(&bytes);
            }
        });
        let receiver = thread::spawn(move || {
            let (mut bins, mut bytes) = (vec![], vec![0; 256 << 10]);
            while let Ok(len @ 1..) = arriving.read(&mut bytes) {
                let at = usize::try_from(began.elapsed().as_millis()).expect("a short run");
                bins.resize(bins.len().max(at + 1), 0);
                bins[at] += len as u64;
            }
            bins
        });
        Self { stop, began, sender, receiver }
    }

    /// Returns the time since the start, ms.
    pub(crate) fn now(&self) -> usize {
        usize::try_from(self.began.elapsed().as_millis()).expect("a short run")
    }

    pub(crate) fn end(self) -> Arrivals {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().expect("it does not panic");
        Arrivals(self.receiver.join().expect("it does not panic"))
    }
}

impl Arrivals {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the rate between two milliseconds, Mb/s.
    pub(crate) fn rate(&self, from: usize, to: usize) -> f64 {
        let bytes: u64 = self.0.iter().take(to).skip(from).sum();
        bytes as f64 * 8.0 / 1e3 / (to - from) as f64
    }

    /// Returns the longest time between two milliseconds in which nothing arrived, ms.
    pub(crate) fn longest_gap(&self, from: usize, to: usize) -> usize {
        let (mut gap, mut longest) = (0, 0);
        for at in from..to {
            gap = if self.0.get(at).is_some_and(|&bytes| bytes > 0) { 0 } else { gap + 1 };
            longest = longest.max(gap);
        }
        longest
    }
}
