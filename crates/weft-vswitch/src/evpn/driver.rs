//! The thread with the TCP connections to neighbours, which drives the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use weft_evpn::{Action, RouteTarget, Speaker};
use weft_udp::Clock;
use weft_units::{Duration, Instant, Seed};
use weft_wire::MacAddr;

use super::EvpnSettings;
use super::log::SessionLog;
use super::report::Shared;
use crate::config::Host;

/// Number of bytes that are read from a neighbour before the others.
const MAX_READ: usize = 64 << 10;

/// A change for the thread.
#[derive(Debug)]
pub(super) enum Command {
    /// Other neighbours.
    Settings(Box<EvpnSettings>),
    /// The networks that take part, with their route targets.
    Networks(BTreeMap<u32, BTreeSet<RouteTarget>>),
    /// The machines of this host's ports in them.
    Machines(BTreeMap<(u32, MacAddr), BTreeSet<IpAddr>>),
    /// A machine of this host has sent a frame although its place is elsewhere.
    Frame(u32, MacAddr),
    /// The end of the thread.
    Stop,
}

/// A connection that is set up, or on the way.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    is_open: bool,
}

/// The state of the thread.
pub(super) struct Driver {
    speaker: Speaker,
    settings: EvpnSettings,
    local: IpAddr,
    connections: BTreeMap<IpAddr, Connection>,
    commands: Receiver<Command>,
    shared: Arc<Shared>,
    log: SessionLog,
    buffer: Vec<u8>,
}

impl Driver {
    pub(super) fn new(
        settings: EvpnSettings,
        host: &Host,
        seed: Seed,
        commands: Receiver<Command>,
        shared: Arc<Shared>,
    ) -> Self {
        let mut speaker = Speaker::new(settings.speaker(host), seed);
        speaker.set_neighbours(Clock.now(), &settings.neighbours());
        let (connections, log) = (BTreeMap::new(), SessionLog::new(Clock.now()));
        let buffer = vec![0; MAX_READ];
        let local = host.address;
        Self { speaker, settings, local, connections, commands, shared, log, buffer }
    }

    /// Speaks to the neighbours until it is stopped.
    pub(super) fn run(mut self) {
        while self.carry_out_commands() {
            self.speaker.handle_timeout(Clock.now());
            self.carry_out_actions();
            self.send();
            self.carry_out_actions();
            self.publish();
            if let Err(error) = self.wait_and_receive() {
                tracing::error!(%error, "cannot wait for BGP neighbours");
                break;
            }
        }
        self.speaker.shut_down(Clock.now());
        self.carry_out_actions();
    }

    /// Carries out the commands that have arrived. Returns `false` at the end.
    fn carry_out_commands(&mut self) -> bool {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Settings(settings) => {
                    self.speaker.set_neighbours(Clock.now(), &settings.neighbours());
                    self.settings = *settings;
                }
                Command::Networks(networks) => self.speaker.set_networks(networks),
                Command::Machines(machines) => self.speaker.set_machines(machines),
                Command::Frame(vni, mac) => self.speaker.on_frame(Clock.now(), vni, mac),
                Command::Stop => return false,
            }
        }
        true
    }

    fn carry_out_actions(&mut self) {
        while let Some(action) = self.speaker.poll_action() {
            match action {
                Action::Connect(to) => {
                    if let Err(error) = self.connect(to) {
                        self.speaker.on_disconnected(Clock.now(), to, &reason(&error));
                    }
                }
                Action::Close(to, last) => {
                    if let Some(mut connection) = self.connections.remove(&to) {
                        // The neighbour learns the reason if there is room for it, and the end in any case.
                        let _ = connection.stream.write(&last);
                    }
                }
            }
        }
    }

    /// Begins to connect to a neighbour, from this host's address, by which the neighbour knows it.
    fn connect(&mut self, to: IpAddr) -> io::Result<()> {
        let Some(to) = self.settings.socket_of(to) else { return Err(Errno::DESTADDRREQ.into()) };
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddr::new(self.local, 0))?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        self.connections.insert(to.ip(), Connection { stream, is_open: false });
        Ok(())
    }

    /// Sends what there is room for.
    fn send(&mut self) {
        for (&to, connection) in self.connections.iter_mut().filter(|(_, it)| it.is_open) {
            loop {
                let bytes = self.speaker.output(to);
                if bytes.is_empty() {
                    break;
                }
                match connection.stream.write(bytes) {
                    Ok(len) => self.speaker.consume(to, len),
                    Err(error) if is_later(&error) => break,
                    Err(error) => {
                        self.speaker.on_disconnected(Clock.now(), to, &reason(&error));
                        break;
                    }
                }
            }
        }
    }

    /// Reports what has changed to the daemon, and has their beginnings, ends and faults logged.
    fn publish(&mut self) {
        let neighbours: Vec<_> = self.speaker.neighbours().collect();
        self.log.on_views(&neighbours, Clock.now());
        let duplicates: Vec<_> = self.speaker.duplicates().collect();
        let changes = std::iter::from_fn(|| self.speaker.poll_change());
        self.shared.publish(changes, neighbours, duplicates);
    }

    /// Waits until something can be done, and reads what has arrived.
    fn wait_and_receive(&mut self) -> io::Result<()> {
        let now = Clock.now();
        let dues = [self.speaker.poll_timeout(), self.log.next_due()];
        let span = dues.into_iter().flatten().min().map(|due| timespec(due, now));
        let mut wanted = vec![(self.shared.waker(), PollFlags::IN)];
        for (&to, connection) in &self.connections {
            let has_output = !connection.is_open || !self.speaker.output(to).is_empty();
            let output = if has_output { PollFlags::OUT } else { PollFlags::empty() };
            wanted.push((connection.stream.as_fd(), PollFlags::IN | output));
        }
        let mut fds: Vec<_> =
            wanted.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        match poll(&mut fds, span.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        self.shared.clear_wake();
        let connections: Vec<_> = self.connections.keys().copied().collect();
        for (to, _) in connections.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            self.receive(to);
        }
        Ok(())
    }

    /// Handles a connection on which something has happened.
    fn receive(&mut self, from: IpAddr) {
        let Some(connection) = self.connections.get_mut(&from) else { return };
        let now = Clock.now();
        if !connection.is_open {
            match connection.stream.take_error() {
                Ok(None) if connection.stream.peer_addr().is_ok() => {
                    connection.is_open = true;
                    self.speaker.on_connected(now, from);
                }
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => {
                    self.speaker.on_disconnected(now, from, &reason(&error));
                }
            }
            return;
        }
        match connection.stream.read(&mut self.buffer) {
            Ok(0) => self.speaker.on_disconnected(now, from, "the neighbour closed the connection"),
            Ok(len) => self.speaker.handle_bytes(now, from, &self.buffer[..len]),
            Err(error) if is_later(&error) => {}
            Err(error) => self.speaker.on_disconnected(now, from, &reason(&error)),
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns the reason that a connection ended, for people.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused: does it speak BGP?".into(),
        _ => format!("TCP: {error}"),
    }
}

/// Returns the time until `due`, rounded up: a wait that ends too early would be repeated.
fn timespec(due: Instant, now: Instant) -> Timespec {
    let span = (due.since(now) + Duration::from_micros(1)).as_nanos();
    let (seconds, nanos) = (span / 1_000_000_000, span % 1_000_000_000);
    Timespec {
        tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos).expect("below a second"),
    }
}
