//! The loop between sockets and an engine: reads batches, looks for strays, gives the engine room to send, and keeps
//! keys. Agents and the overlay run whole [turns](Driver::turn); the RDMA device, which serves shared memory between
//! them, calls the steps. The hot path: nothing here allocates per packet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft_seal::Seals;
use weft_transport::Arrival;
use weft_units::{Duration, Instant};

use crate::delay_line::DelayLine;
use crate::sockets::Received;
use crate::{Clock, KeyLog, Node, SocketSet};

/// Distance, in datagrams, from the one being parsed to the one whose header is prefetched.
const PREFETCH_DISTANCE: usize = 4;

/// The interval at which sockets that only send are read. An arrival there is a reset: it reports that a connection no
/// longer exists, which the endpoint would otherwise detect only by a peer timeout.
const STRAY_INTERVAL: Duration = Duration::from_millis(1);

/// The limits of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Number of datagrams of one address after which no further batch is read. At least one batch is read.
    pub datagrams: usize,
    /// Maximum packets taken from the node before the sockets are read again, less those that wait for the kernel. It
    /// bounds the packets that are sent while an ACK waits to be read.
    pub packets: usize,
    /// Maximum strays read from one address at a time.
    pub strays: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { datagrams: 1, packets: 176, strays: 16 }
    }
}

/// Counters of what a driver received. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ReceiveCounters {
    /// Datagrams received, malformed ones included.
    pub datagrams_received: u64,
    /// Datagrams that are no packet of this protocol, or that belong to no connection here.
    pub malformed: u64,
    /// Receive calls that failed.
    pub receive_errors: u64,
}

/// The counts of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Turn {
    /// Datagrams that arrived; with delays, those that were due.
    pub received: usize,
    /// Datagrams that were sent, or wait for room in the kernel.
    pub sent: usize,
}

impl Turn {
    /// Returns `true` if a datagram arrived or left.
    pub fn worked(self) -> bool {
        self.received + self.sent > 0
    }
}

/// Sockets, the clock and the encryption of one thread.
#[derive(Debug)]
pub struct Driver<S> {
    /// The sockets.
    pub sockets: S,
    /// The keys of the node's connections.
    pub seals: Seals,
    /// The file that keys are appended to, for a dissector.
    pub key_log: Option<KeyLog>,
    budget: Budget,
    kernel_timestamps: bool,
    clock: Clock,
    /// The next time to read the sockets that only send.
    strays_due: Instant,
    delay_line: DelayLine,
    counters: ReceiveCounters,
}

impl<S: SocketSet> Driver<S> {
    /// Returns a driver of these sockets.
    pub fn new(sockets: S, seals: Seals, budget: Budget) -> Self {
        Self {
            sockets,
            seals,
            key_log: None,
            budget,
            kernel_timestamps: false,
            clock: Clock,
            strays_due: Instant::EPOCH,
            delay_line: DelayLine::default(),
            counters: ReceiveCounters::default(),
        }
    }

    /// Returns the same driver, whose sockets report the kernel's arrival times if `stamped` is `true`.
    #[must_use]
    pub fn with_kernel_timestamps(self, stamped: bool) -> Self {
        Self { kernel_timestamps: stamped, ..self }
    }

    /// Returns the same driver, which delays each packet from these addresses, as longer cables would.
    #[must_use]
    pub fn with_delays(self, delays: BTreeMap<IpAddr, Duration>) -> Self {
        Self { delay_line: DelayLine::new(delays), ..self }
    }

    /// Returns the time.
    #[inline]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns `true` if arrivals have the kernel's time.
    pub fn has_kernel_timestamps(&self) -> bool {
        self.kernel_timestamps
    }

    /// Returns the limits of a turn.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Returns the counters.
    pub fn counters(&self) -> ReceiveCounters {
        self.counters
    }

    /// Returns the time at which the next delayed datagram is due; `None` if none is delayed.
    pub fn next_due(&self) -> Option<Instant> {
        self.delay_line.next_due()
    }

    /// Takes one turn without blocking: reads the sockets, handles timeouts, and sends.
    pub fn turn(&mut self, node: &mut impl Node<S>) -> Turn {
        let addresses = self.sockets.addresses();
        let mut received = (0..addresses).map(|address| self.receive(address, node)).sum();
        if self.delay_line.has_delays() {
            received = self.receive_delayed(node);
        }
        let now = self.now();
        self.receive_strays(now, node);
        node.handle_timeout(now);
        let sent = self.transmit(now, node);
        Turn { received, sent }
    }

    /// Handles the datagrams that arrived at an address, and returns their number. It reads several batches, since with
    /// many connections each message has one datagram: the kernel coalesces only datagrams with the same source port
    /// and length.
    #[inline]
    pub fn receive(&mut self, address: usize, node: &mut impl Node<S>) -> usize {
        let mut datagrams = 0;
        loop {
            let batch = self.receive_batch(address, node);
            datagrams += batch;
            let is_last = batch == 0 || !self.sockets.inbox(address).may_have_more();
            if is_last || datagrams >= self.budget.datagrams || !node.accepts() {
                return datagrams;
            }
        }
    }

    /// Handles the datagrams of one system call, and returns their number.
    #[inline]
    fn receive_batch(&mut self, address: usize, node: &mut impl Node<S>) -> usize {
        let messages = self.sockets.receive(address).unwrap_or_else(|_| {
            self.counters.receive_errors += 1;
            0
        });
        if messages == 0 {
            return 0;
        }
        let now = self.now();
        let lead = if self.kernel_timestamps { self.clock.wall_clock_lead() } else { 0 };
        let (mut datagrams, mut malformed) = (0, 0);
        let Self { sockets, seals, delay_line, .. } = self;
        let is_delayed = delay_line.has_delays();
        'batch: for index in 0..messages {
            let inbox = sockets.inbox(address);
            let received = inbox.message(index);
            let (arrival, segment) = (arrival_of(&received, now, lead), received.segment.max(1));
            let bytes = inbox.bytes_mut(index);
            for start in (0..bytes.len()).step_by(segment) {
                if !node.accepts() {
                    break 'batch;
                }
                datagrams += 1;
                prefetch(bytes, start + PREFETCH_DISTANCE * segment);
                let end = bytes.len().min(start + segment);
                let datagram = &mut bytes[start..end];
                if is_delayed {
                    delay_line.put(&arrival, datagram);
                } else if !node.handle_datagram(now, &arrival, datagram, seals) {
                    malformed += 1;
                }
            }
            sockets.record_arrival(arrival.from.ip(), address);
        }
        self.counters.malformed += malformed;
        self.counters.datagrams_received += datagrams as u64;
        datagrams
    }

    /// Handles the packets that are due on the delay line, and returns their number.
    #[cold]
    fn receive_delayed(&mut self, node: &mut impl Node<S>) -> usize {
        let now = self.now();
        let mut datagrams = 0;
        while let Some((arrival, mut datagram)) = self.delay_line.take(now) {
            datagrams += 1;
            if !node.handle_datagram(now, &arrival, &mut datagram, &mut self.seals) {
                self.counters.malformed += 1;
            }
            self.delay_line.recycle(datagram);
        }
        datagrams
    }

    /// Has the next [`receive_strays`](Self::receive_strays) read the sockets that only send, because a datagram there
    /// has ended a wait.
    pub(crate) fn expect_strays(&mut self) {
        self.strays_due = Instant::EPOCH;
    }

    /// Reads the sockets that only send, at most once each millisecond. Returns `true` if it read them.
    #[inline]
    pub fn receive_strays(&mut self, now: Instant, node: &mut impl Node<S>) -> bool {
        if now < self.strays_due {
            return false;
        }
        self.strays_due = now + STRAY_INTERVAL;
        for address in 0..self.sockets.addresses() {
            for _ in 0..self.budget.strays {
                let Some((from, datagram)) = self.sockets.stray(address) else { break };
                let (congestion_experienced, hops) = (false, 0);
                let arrival = Arrival { from, received_at: now, congestion_experienced, hops };
                self.counters.datagrams_received += 1;
                if !node.handle_stray(now, &arrival, datagram, &mut self.seals) {
                    self.counters.malformed += 1;
                }
            }
        }
        true
    }

    /// Sends packets of the node, and returns their number; then removes the keys of connections that have ended, and
    /// logs those of new ones.
    #[inline]
    pub fn transmit(&mut self, now: Instant, node: &mut impl Node<S>) -> usize {
        self.seals.handle_timeout(now);
        // Datagrams for which the kernel has no room wait in the outbox; further packets of the node would only queue
        // behind them.
        let waiting = self.sockets.waiting();
        let room = self.budget.packets.saturating_sub(waiting);
        let sent = node.poll_transmit(now, room, &mut self.sockets, &mut self.seals);
        if waiting + sent > 0 {
            self.sockets.flush();
        }
        while let Some(ended) = node.poll_ended() {
            self.seals.remove(ended);
        }
        if let Some(log) = &mut self.key_log {
            log.append(&mut self.seals);
        }
        sent
    }
}

/// Returns the metadata of a received message, as the engine expects it.
#[inline]
fn arrival_of(received: &Received<'_>, now: Instant, lead: u64) -> Arrival {
    Arrival {
        from: received.from,
        received_at: received.received_at(now, lead),
        congestion_experienced: received.congestion_experienced,
        hops: received.hops,
    }
}

/// Loads the byte at `at`, if there is one, so that the header there is cached when it is parsed: headers lie too far
/// apart for the hardware prefetcher, and each would be a cache miss (`docs/performance/transport.md`).
#[inline]
fn prefetch(bytes: &[u8], at: usize) {
    if let Some(&first) = bytes.get(at) {
        std::hint::black_box(first);
    }
}

#[cfg(test)]
mod tests;
