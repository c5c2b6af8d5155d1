//! The measurement of bare sockets: the same batches and waits without a transport. A bench divides the transport's
//! results by these, measured in the same run.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use weft_udp::sockets::{SocketConfig, SocketError, Sockets};
use weft_udp::wait::Waiter;
use weft_udp::{Clock, WaitMode};
use weft_units::{Duration, Instant};

use crate::report::{LatencyMicros, latency_histogram};

/// Bytes of the UDP payload that are headers in a packet of the transport.
pub const HEADER_BYTES: u16 = 32;

/// Number of datagrams sent on one path before the next path.
const BURST: u16 = 44;

/// The counts of the receiver of a blast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blast {
    /// Datagrams received.
    pub datagrams: u64,
    /// UDP payload of these datagrams, bytes.
    pub bytes: u64,
    /// Time from the first datagram to the last, seconds.
    pub seconds: f64,
}

impl Blast {
    /// Returns the payload rate without `header` bytes of each datagram, bits per second; zero if no time passed
    /// between the first datagram and the last.
    #[expect(clippy::cast_precision_loss, reason = "counts of one run are far below 2^53")]
    pub fn goodput_bps(&self, header: u16) -> f64 {
        let headers = self.datagrams * u64::from(header);
        if self.seconds > 0.0 { (self.bytes - headers) as f64 * 8.0 / self.seconds } else { 0.0 }
    }
}

/// One end of a bare measurement.
#[derive(Debug)]
pub struct Bare {
    sockets: Sockets,
    clock: Clock,
    waiter: Waiter,
}

impl Bare {
    /// Opens sockets with the settings of an agent.
    ///
    /// # Errors
    /// Returns the [`SocketError`] if a socket cannot be opened.
    pub fn open(config: &SocketConfig, wait: WaitMode) -> Result<Self, SocketError> {
        let clock = Clock;
        Ok(Self { sockets: Sockets::open(config)?, clock, waiter: Waiter::new(wait, clock) })
    }

    /// Returns the address and port at which this end receives.
    pub fn local(&self) -> SocketAddr {
        self.sockets.local()
    }

    /// Sends datagrams of `size` bytes to `to` for `duration`, as fast as the kernel accepts them,
    /// in bursts over every path.
    pub fn blast(&mut self, to: SocketAddr, size: u16, duration: Duration) {
        let until = self.clock.now() + duration;
        let paths = u16::try_from(self.sockets.outbox.paths().len()).unwrap_or(u16::MAX);
        while self.clock.now() < until {
            for path in 0..paths {
                // The contents are irrelevant and not written, so the baseline is the fastest possible.
                (0..BURST).for_each(|_| self.sockets.outbox.push(&to, path, size, |_| {}));
            }
            self.sockets.outbox.flush();
            if self.sockets.outbox.waiting() > 0 {
                self.waiter.wait(self.sockets.readable(), self.sockets.outbox.blocked(), until);
            }
        }
    }

    /// Counts datagrams from the first one on, until none arrives for `silence` or `stop` is set, and returns the
    /// counts.
    pub fn count(&mut self, silence: Duration, stop: &AtomicBool) -> Blast {
        let mut blast = Blast::default();
        let (mut first, mut last) = (None, self.clock.now());
        while !stop.load(Ordering::Relaxed) {
            let messages = self.sockets.inbox.receive().unwrap_or(0);
            let now = self.clock.now();
            if messages == 0 {
                if first.is_some() && now.since(last) >= silence {
                    break;
                }
                let until = now + Duration::from_millis(10);
                self.waiter.wait(self.sockets.readable(), std::iter::empty(), until);
                continue;
            }
            self.waiter.worked();
            let first = *first.get_or_insert(now);
            last = now;
            for index in 0..messages {
                let received = self.sockets.inbox.message(index);
                blast.bytes += received.bytes.len() as u64;
                blast.datagrams += received.datagrams().count() as u64;
            }
            blast.seconds = last.since(first).as_secs_f64();
        }
        blast
    }

    /// Sends every datagram back to its source address, at the port that [`ping`](Self::ping) writes into its first
    /// two bytes, until `stop` is set.
    pub fn echo(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let Sockets { inbox, outbox, .. } = &mut self.sockets;
            let messages = inbox.receive().unwrap_or(0);
            for index in 0..messages {
                let received = inbox.message(index);
                for datagram in received.datagrams() {
                    let &[high, low, ..] = datagram else { continue };
                    let port = u16::from_be_bytes([high, low]);
                    let to = SocketAddr::new(received.from.ip(), port);
                    let size = u16::try_from(datagram.len()).expect("a UDP datagram");
                    outbox.push(&to, 0, size, |out| out.copy_from_slice(datagram));
                }
            }
            outbox.flush();
            if messages > 0 {
                self.waiter.worked();
            } else {
                let until = self.clock.now() + Duration::from_millis(10);
                self.waiter.wait(self.sockets.readable(), std::iter::empty(), until);
            }
        }
    }

    /// Sends datagrams of `size` bytes (at least 10) to an [`echo`](Self::echo) at `to`, one at a time, for
    /// `duration`, and returns the round-trip times. An echo that takes longer than 0.1 s counts as lost.
    pub fn ping(&mut self, to: SocketAddr, size: u16, duration: Duration) -> LatencyMicros {
        let size = size.max(Ping::LEN);
        let mut latency = latency_histogram();
        let end = self.clock.now() + duration;
        let mut ping = Ping { reply_port: self.local().port(), number: 0 };
        while self.clock.now() < end {
            ping.number += 1;
            let sent_at = self.clock.now();
            self.sockets.outbox.push(&to, 0, size, |out| ping.write(out));
            self.sockets.outbox.flush();
            if self.await_echo(ping, sent_at + Duration::from_millis(100)) {
                latency.saturating_record(self.clock.now().since(sent_at).as_nanos());
            }
        }
        LatencyMicros::of(&latency)
    }

    /// Returns `true` if the echo of `ping` arrives before `until`.
    fn await_echo(&mut self, ping: Ping, until: Instant) -> bool {
        loop {
            let messages = self.sockets.inbox.receive().unwrap_or(0);
            for index in 0..messages {
                let received = self.sockets.inbox.message(index);
                if received.datagrams().any(|datagram| ping.is_echo(datagram)) {
                    self.waiter.worked();
                    return true;
                }
            }
            if messages == 0 {
                if self.clock.now() >= until {
                    return false;
                }
                self.waiter.wait(self.sockets.readable(), std::iter::empty(), until);
            }
        }
    }
}

/// The first bytes of a bare ping: the port for the echo, and the ping's number.
#[derive(Clone, Copy, Debug)]
struct Ping {
    reply_port: u16,
    number: u64,
}

impl Ping {
    const LEN: u16 = 10;

    fn bytes(self) -> [u8; Self::LEN as usize] {
        let mut bytes = [0; Self::LEN as usize];
        bytes[..2].copy_from_slice(&self.reply_port.to_be_bytes());
        bytes[2..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    fn write(self, out: &mut [u8]) {
        out[..usize::from(Self::LEN)].copy_from_slice(&self.bytes());
    }

    fn is_echo(self, datagram: &[u8]) -> bool {
        datagram.starts_with(&self.bytes())
    }
}
