//! A prober of a host: it sends small UDP packets to other hosts from several source ports, each of which is a path,
//! answers those of others, and reports loss and round-trip times of each path for a controller.
//!
//! | step | where |
//! | --- | --- |
//! | settings and their limits | `plan.rs` |
//! | a probe as bytes | `packet.rs` |
//! | the probes of a path, in flight and counted | `track.rs` |
//! | sockets, and the time that a packet waited in one | `socket.rs` |
//! | times and reports | here |
//!
//! Pings of `weft ping` cannot do this: they are RDMA messages, which retransmit what is lost, and the device chooses
//! their source ports.
//!
//! A host that is busy with other work serves no probes, and must not make its cable look broken: what a packet waits in
//! a socket, at either end, is no part of its round trip, and probes to a host that answers none at all are lost only
//! after a second.

mod packet;
mod plan;
mod socket;
mod track;

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_route::{ProbeReport, ProbedPath};

use self::packet::{Kind, Packet};
pub use self::plan::{PROBE_PORT, ProbePlan, ProbePlanError};
use self::socket::TimedSocket;
use self::track::{Results, Track};
use crate::SteerError;

/// A running prober.
#[derive(Debug)]
pub struct Prober {
    plan: ProbePlan,
    /// The socket that answers probes of other hosts.
    answerer: TimedSocket,
    /// The sockets that probe, one for each source port.
    sockets: Vec<TimedSocket>,
    session: u64,
    /// By index of its socket and destination, each path.
    tracks: BTreeMap<(usize, IpAddr), Track>,
    /// The latest time at which a probe that was answered arrived at each destination, or shortly after.
    served_at: BTreeMap<IpAddr, Instant>,
    /// The paths in the order in which they are probed.
    order: Vec<(usize, IpAddr)>,
    next_path: usize,
    next_probe: Instant,
    next_report: Instant,
}

/// Maximum number of packets read from one socket, and of probes sent, before other work.
const MAX_BURST: usize = 256;
/// The longest wait for packets.
const MAX_WAIT: Duration = Duration::from_millis(100);

impl Prober {
    /// Opens the sockets of the plan.
    ///
    /// # Errors
    /// Returns `ProbePlan` if the plan is beyond its limits, or `Io` if a port is taken or the source is no address of
    /// this host.
    pub fn open(plan: ProbePlan) -> Result<Self, SteerError> {
        plan.check()?;
        let open = |port| {
            let at = SocketAddr::new(plan.source, port);
            TimedSocket::bind(at)
                .map_err(SteerError::io(format!("probe from {at}, with a free port of this host")))
        };
        let answerer = open(plan.port)?;
        let ports = plan.first_port..=plan.first_port + (plan.ports - 1);
        let sockets = ports.map(open).collect::<Result<Vec<_>, _>>()?;
        let of_socket = |socket| plan.destinations.iter().map(move |&to| (socket, to));
        let order: Vec<_> = (0..sockets.len()).flat_map(of_socket).collect();
        let tracks = order.iter().map(|&path| (path, Track::default())).collect();
        let session = RandomState::new().build_hasher().finish();
        let now = Instant::now();
        let (next_probe, next_report) = (now, now + plan.report);
        let next_path = 0;
        Ok(Self {
            plan,
            answerer,
            sockets,
            session,
            tracks,
            served_at: BTreeMap::new(),
            order,
            next_path,
            next_probe,
            next_report,
        })
    }

    /// Runs until `stop` returns `true`; it is called at least ten times per second. `report` gets a report of each
    /// interval and must not block, because probes wait meanwhile.
    ///
    /// # Errors
    /// Returns `Io` if a socket fails.
    pub fn run(
        &mut self,
        stop: impl Fn() -> bool,
        mut report: impl FnMut(ProbeReport),
    ) -> Result<(), SteerError> {
        while !stop() {
            if let Some(made) = self.turn()? {
                report(made);
            }
        }
        Ok(())
    }

    /// Waits for packets or the next deadline, at most 100 ms, and does the work that is due. Returns the report of an
    /// interval that has ended.
    ///
    /// # Errors
    /// Returns `Io` if a socket fails.
    pub fn turn(&mut self) -> Result<Option<ProbeReport>, SteerError> {
        let due = self.next_probe.min(self.next_report);
        let wait = due.saturating_duration_since(Instant::now()).min(MAX_WAIT);
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let sockets = self.sockets.iter().chain([&self.answerer]);
        let mut fds: Vec<PollFd<'_>> =
            sockets.map(|it| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(SteerError::io("wait for probes")(errno.into())),
        }
        let readable: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (socket, _) in readable.iter().enumerate().filter(|(_, readable)| **readable) {
            if socket < self.sockets.len() { self.read_answers(socket)? } else { self.answer()? }
        }
        self.probe(Instant::now());
        let now = Instant::now();
        if now < self.next_report {
            return Ok(None);
        }
        self.next_report = now + self.plan.report;
        Ok(self.report(now))
    }

    /// Answers the probes of known hosts.
    fn answer(&self) -> Result<(), SteerError> {
        for _ in 0..MAX_BURST {
            let Some(received) = self.answerer.receive()? else { break };
            if let Some(packet) = received.packet.filter(|it| it.kind == Kind::Probe)
                && self.plan.hosts.contains(&received.from.ip())
            {
                let answer = Packet { kind: Kind::Answer, held: received.waited, ..packet };
                // An answer that is not sent is a lost probe.
                let _ = self.answerer.send(&answer, received.from);
            }
        }
        Ok(())
    }

    fn read_answers(&mut self, socket: usize) -> Result<(), SteerError> {
        for _ in 0..MAX_BURST {
            let Some(received) = self.sockets[socket].receive()? else { break };
            let from = received.from;
            let is_ours = |it: &Packet| it.kind == Kind::Answer && it.session == self.session;
            let track = self.tracks.get_mut(&(socket, from.ip()));
            if let Some((packet, track)) =
                received.packet.filter(is_ours).zip(track).filter(|_| from.port() == self.plan.port)
            {
                let now = Instant::now();
                let arrived = now.checked_sub(received.waited).unwrap_or(now);
                track.on_answer(packet.sequence, arrived, packet.held);
                let served_at = arrived.checked_sub(packet.held).unwrap_or(arrived);
                let latest = self.served_at.entry(from.ip()).or_insert(served_at);
                *latest = served_at.max(*latest);
            }
        }
        Ok(())
    }

    /// Sends the probes that are due. Those missed while this process did not run are not made up for.
    fn probe(&mut self, now: Instant) {
        let spacing = self.plan.spacing();
        for _ in 0..MAX_BURST {
            if self.next_probe > now {
                return;
            }
            self.next_probe += spacing;
            let path = self.order[self.next_path];
            self.next_path = (self.next_path + 1) % self.order.len();
            let track = self.tracks.get_mut(&path).expect("every path has one");
            let (session, sequence, held) = (self.session, track.next(), Duration::ZERO);
            let probe = Packet { kind: Kind::Probe, session, sequence, held };
            let to = SocketAddr::new(path.1, self.plan.port);
            // A probe that this host cannot send says nothing about its path.
            if self.sockets[path.0].send(&probe, to).is_ok() {
                track.on_sent(Instant::now());
            }
        }
        self.next_probe = now + spacing;
    }

    /// Returns the report of the probes that are answered or overdue; none if there are none.
    fn report(&mut self, now: Instant) -> Option<ProbeReport> {
        let ProbePlan { source, port, first_port, timeout, .. } = self.plan;
        let paths = self.tracks.iter_mut().filter_map(|(&(socket, destination), track)| {
            let served_at = self.served_at.get(&destination).copied();
            let Results { sent, lost, round_trip } = track.take(timeout, served_at, now)?;
            let source_port = first_port + u16::try_from(socket).expect("ports are 16 bits");
            Some(ProbedPath { destination, source_port, sent, lost, round_trip })
        });
        let paths: Vec<ProbedPath> = paths.collect();
        (!paths.is_empty()).then_some(ProbeReport { source, port, paths })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::packet::LEN;
    use super::*;

    /// Returns the plan of a prober on loopback that probes another over two ports.
    fn plan(source: [u8; 4], destination: [u8; 4], port: u16) -> ProbePlan {
        ProbePlan {
            source: source.into(),
            port,
            hosts: vec![destination.into()],
            destinations: vec![destination.into()],
            first_port: port + 1,
            ports: 2,
            interval: Duration::from_millis(2),
            rate: 10_000,
            timeout: Duration::from_millis(100),
            report: Duration::from_millis(100),
        }
    }

    /// Returns the first of four ports that no other program uses, below those of devices and the kernel's ephemeral ones.
    fn free_ports() -> u16 {
        let is_free = |port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
        let first = 10_000 + u16::try_from(std::process::id() % 1000).unwrap() * 8;
        (first..).step_by(4).find(|&four| (four..four + 4).all(is_free)).unwrap()
    }

    /// Turns probers until the first has reported `count` probes of each path or more; returns all counts.
    fn totals(probers: &mut [Prober], count: u32) -> BTreeMap<u16, (u32, u32)> {
        let mut totals: BTreeMap<u16, (u32, u32)> = BTreeMap::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while totals.len() < 2 || totals.values().any(|it| it.0 < count) {
            assert!(Instant::now() < deadline, "{totals:?}");
            for (index, prober) in probers.iter_mut().enumerate() {
                for path in
                    prober.turn().unwrap().filter(|_| index == 0).iter().flat_map(|it| &it.paths)
                {
                    let total = totals.entry(path.source_port).or_default();
                    (total.0, total.1) = (total.0 + path.sent, total.1 + path.lost);
                    assert_eq!(path.round_trip.is_some(), path.lost < path.sent);
                }
            }
        }
        totals
    }

    #[test]
    fn two_hosts_answer_each_other_and_a_silent_one_loses_all() {
        let port = free_ports();
        let (one, two) = ([127, 7, 0, 1], [127, 7, 0, 2]);
        let open = |from, to| Prober::open(plan(from, to, port)).unwrap();
        let mut both = [open(one, two), open(two, one)];
        let answered = totals(&mut both, 50);
        assert_eq!(answered.keys().copied().collect::<Vec<_>>(), [port + 1, port + 2]);
        // A busy machine may be late with some.
        assert!(answered.values().all(|(sent, lost)| lost * 2 < *sent), "{answered:?}");
        let [one, two] = both;
        drop(two);
        // The first half second has probes that were answered before; those sent since are lost.
        let mut alone = [one];
        totals(&mut alone, 250);
        let silent = totals(&mut alone, 50);
        assert!(silent.values().all(|(sent, lost)| lost == sent), "{silent:?}");
    }

    #[test]
    fn the_time_in_which_a_host_runs_nothing_is_no_loss_and_no_round_trip() {
        let port = free_ports();
        let (one, two) = ([127, 7, 0, 6], [127, 7, 0, 7]);
        let mut both =
            [(one, two), (two, one)].map(|(from, to)| Prober::open(plan(from, to, port)).unwrap());
        let timeout = both[0].plan.timeout;
        let [one, two] = &mut both;
        let (began, mut stalls, mut reported) = (Instant::now(), 0, 0);
        // The answering host runs once in two timeouts.
        while reported < 100 {
            assert!(began.elapsed() < Duration::from_secs(30), "{reported} after {stalls} stalls");
            let next_turn = Instant::now() + timeout * 2;
            while Instant::now() < next_turn {
                for path in one.turn().unwrap().iter().flat_map(|it| &it.paths) {
                    reported += path.sent;
                    assert_eq!(path.lost, 0, "{path:?}");
                    assert!(path.round_trip.unwrap().p99_ns < 50_000_000, "{path:?}");
                }
            }
            stalls += 1;
            two.turn().unwrap();
        }
    }

    #[test]
    fn only_probes_of_known_hosts_are_answered_and_no_answer_is() {
        let port = free_ports();
        let (known, unknown) = ([127, 7, 0, 4], [127, 7, 0, 5]);
        let plan = ProbePlan { ports: 1, ..plan([127, 7, 0, 3], known, port) };
        let mut prober = Prober::open(plan).unwrap();
        let bind = |address: [u8; 4]| UdpSocket::bind(SocketAddr::from((address, 0))).unwrap();
        let (known, unknown) = (bind(known), bind(unknown));
        let (session, sequence) = (7, 9);
        let packet = |kind| Packet { kind, session, sequence, held: Duration::ZERO };
        let [probe, answer] = [Kind::Probe, Kind::Answer].map(|kind| packet(kind).emit());
        let at = SocketAddr::from(([127, 7, 0, 3], port));
        for (socket, bytes) in
            [(&unknown, &probe[..]), (&known, &answer), (&known, b"?"), (&known, &probe)]
        {
            socket.send_to(bytes, at).unwrap();
        }
        // The last datagram is answered after all others were read.
        known.set_nonblocking(true).unwrap();
        unknown.set_nonblocking(true).unwrap();
        let mut received = [0; 64];
        let deadline = Instant::now() + Duration::from_secs(20);
        while known.recv(&mut received).is_err() {
            assert!(Instant::now() < deadline);
            prober.turn().unwrap();
        }
        // It waited for this machine, perhaps.
        let received = Packet::parse(&received[..LEN]).unwrap();
        assert_eq!(Packet { held: Duration::ZERO, ..received }.emit(), answer);
        let mut received = [0; 64];
        assert!(known.recv(&mut received).is_err() && unknown.recv(&mut received).is_err());
    }
}
