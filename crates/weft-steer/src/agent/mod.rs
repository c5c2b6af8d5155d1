//! An sFlow agent for Linux routers: it samples packets at random as they arrive and leave, reads interface counters and
//! the marks of queues, and sends all of them to a collector.
//!
//! | step | where |
//! | --- | --- |
//! | packets sampled by the kernel, before anything is copied | `capture.rs` |
//! | interface counters | `interfaces.rs` |
//! | marks that the interfaces' queues made | `queues.rs` |
//! | all of them as datagrams | `report.rs` |
//!
//! One process serves a router, or all routers of a lab: it enters each router's network namespace once to open its
//! sockets, and sends from its own namespace.

mod capture;
mod interfaces;
mod iproute;
mod namespace;
mod queues;
mod report;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::capture::Capture;
use self::interfaces::Interfaces;
use self::namespace::enter;
use self::report::Reporter;
use crate::SteerError;

/// The settings of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPlan {
    /// The routers that it watches.
    pub routers: Vec<Watched>,
    /// The addresses of the collectors, at least one: several controllers of a fabric each get every datagram.
    pub collectors: Vec<SocketAddr>,
    /// The source address of datagrams, which the collector must know; by default chosen by route.
    pub source: Option<IpAddr>,
    /// The sampling rate: one packet in this many, at least 1.
    pub rate: u32,
    /// The maximum time that a sample waits for others to share a datagram.
    pub flush: Duration,
    /// The interval at which counters are sent.
    pub counters: Duration,
}

/// A router on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The agent address in its datagrams.
    pub address: IpAddr,
    /// The network namespace of the router; none for that of this process.
    pub namespace: Option<String>,
}

/// The event counts of an agent since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounters {
    /// Number of packets sampled and reported.
    pub samples: u64,
    /// Number of sampled packets dropped because the socket buffer was full.
    pub dropped: u64,
    /// Number of datagrams sent.
    pub datagrams: u64,
    /// Number of datagrams that could not be sent: the collector's port is closed or unreachable.
    pub unsent: u64,
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    plan: AgentPlan,
    routers: Vec<Router>,
    /// A socket for each collector.
    sockets: Vec<UdpSocket>,
    started: Instant,
    counters: AgentCounters,
    next_flush: Instant,
    next_counters: Instant,
}

/// A router's sockets and its pending samples.
#[derive(Debug)]
struct Router {
    capture: Capture,
    interfaces: Interfaces,
    reporter: Reporter,
}

impl Router {
    /// Replaces the interfaces, and logs when the marks of queues cannot be read any more.
    fn set_interfaces(&mut self, interfaces: Interfaces) {
        if let (None, Some(error)) = (&self.interfaces.marks_error, &interfaces.marks_error) {
            tracing::warn!(%error, "marks of queues are not reported; the controller estimates marks from samples");
        }
        self.interfaces = interfaces;
    }
}

/// Maximum number of packets read from one router before the next.
const MAX_PACKETS_PER_ROUTER: usize = 256;

impl Agent {
    /// Opens the sockets of the plan. Sampling starts at once.
    ///
    /// # Errors
    /// Returns `Io` if a namespace cannot be entered or the kernel refuses a socket: sampling needs `CAP_NET_RAW`.
    pub fn open(plan: AgentPlan) -> Result<Self, SteerError> {
        let routers = plan.routers.iter().map(|watched| {
            let open = || -> Result<Router, SteerError> {
                let mut router = Router {
                    capture: Capture::open(plan.rate)?,
                    interfaces: Interfaces::default(),
                    reporter: Reporter::new(watched.address, plan.rate),
                };
                router.set_interfaces(Interfaces::read()?);
                Ok(router)
            };
            match &watched.namespace {
                Some(name) => enter(name, open)?,
                None => open(),
            }
        });
        let routers = routers.collect::<Result<Vec<_>, _>>()?;
        let sockets = plan.collectors.iter().map(|&collector| connect(plan.source, collector));
        let sockets = sockets.collect::<Result<_, _>>()?;
        let now = Instant::now();
        let (next_flush, next_counters) = (now + plan.flush, now);
        let counters = AgentCounters::default();
        Ok(Self { plan, routers, sockets, started: now, counters, next_flush, next_counters })
    }

    /// Returns the event counts.
    pub const fn counters(&self) -> AgentCounters {
        self.counters
    }

    /// Runs until `stop`, which is called after each turn and at least ten times per second, returns `true`.
    ///
    /// # Errors
    /// Returns `Io` if a socket fails or a namespace is gone.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> Result<(), SteerError> {
        self.turn()?;
        while !stop() {
            self.turn()?;
        }
        self.flush()
    }

    /// Waits for packets or the next deadline, at most 100 ms, and does the work that is due.
    ///
    /// # Errors
    /// Returns the errors of [`Self::run`].
    pub fn turn(&mut self) -> Result<(), SteerError> {
        let max_wait = Duration::from_millis(100);
        let now = Instant::now();
        let due = self.next_flush.min(self.next_counters).saturating_duration_since(now);
        let timeout = Timespec { tv_sec: 0, tv_nsec: due.min(max_wait).subsec_nanos().into() };
        let mut fds: Vec<PollFd<'_>> = self
            .routers
            .iter()
            .map(|router| PollFd::from_borrowed_fd(router.capture.as_fd(), PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(SteerError::io("wait for packets")(errno.into())),
        }
        let readable: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (index, _) in readable.iter().enumerate().filter(|(_, readable)| **readable) {
            self.read_samples(index)?;
        }
        let now = Instant::now();
        if now >= self.next_counters {
            self.next_counters = now + self.plan.counters;
            self.send_counters()?;
        }
        if now >= self.next_flush {
            self.next_flush = now + self.plan.flush;
            self.flush()?;
        }
        Ok(())
    }

    /// Reads up to `MAX_PACKETS_PER_ROUTER` sampled packets of a router.
    fn read_samples(&mut self, index: usize) -> Result<(), SteerError> {
        let router = &mut self.routers[index];
        for _ in 0..MAX_PACKETS_PER_ROUTER {
            let Some(sampled) = router.capture.next()? else { break };
            if !router.interfaces.samples(sampled.interface) {
                continue;
            }
            self.counters.samples += 1;
            if let Some(datagram) = router.reporter.sample(&sampled, self.started.elapsed()) {
                send(&self.sockets, &mut self.counters, &datagram);
            }
        }
        Ok(())
    }

    fn send_counters(&mut self) -> Result<(), SteerError> {
        for (router, watched) in self.routers.iter_mut().zip(&self.plan.routers) {
            let interfaces = match &watched.namespace {
                Some(name) => enter(name, Interfaces::read)??,
                None => Interfaces::read()?,
            };
            router.set_interfaces(interfaces);
            let dropped = router.capture.dropped()?;
            self.counters.dropped += u64::from(dropped);
            let uptime = self.started.elapsed();
            for datagram in router.reporter.counters(&router.interfaces, dropped, uptime) {
                send(&self.sockets, &mut self.counters, &datagram);
            }
        }
        Ok(())
    }

    /// Sends pending samples.
    fn flush(&mut self) -> Result<(), SteerError> {
        for router in &mut self.routers {
            if let Some(datagram) = router.reporter.flush(self.started.elapsed()) {
                send(&self.sockets, &mut self.counters, &datagram);
            }
        }
        Ok(())
    }
}

/// Returns a socket that sends to a collector.
fn connect(source: Option<IpAddr>, collector: SocketAddr) -> Result<UdpSocket, SteerError> {
    let unspecified: IpAddr = if collector.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let source_address = source.unwrap_or(unspecified);
    let sending = format!("send from {source_address}, which must be an address of this host");
    let socket = UdpSocket::bind((source_address, 0)).map_err(SteerError::io(sending))?;
    let named = format!("send to the collector at {collector}");
    socket.connect(collector).map_err(SteerError::io(named))?;
    Ok(socket)
}

/// Sends a datagram to each collector and counts it. An unreachable collector is not an error, because it may start later.
fn send(sockets: &[UdpSocket], counters: &mut AgentCounters, datagram: &[u8]) {
    for socket in sockets {
        match socket.send(datagram) {
            Ok(_) => counters.datagrams += 1,
            Err(_) => counters.unsent += 1,
        }
    }
}
