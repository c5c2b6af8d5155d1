//! The capture of the datagrams that a process's sockets send and receive, in a file for Wireshark. It needs
//! no privileges, and datagrams that the kernel coalesces are recorded separately.

use std::collections::BTreeMap;
use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_trace::Datagram;
use weft_trace::pcapng::{Direction, InterfaceId, LinkType, Record, Writer};
use weft_wire::Ecn;

use super::{HOP_LIMIT, Received, SocketError};
use crate::clock::Clock;

/// The file of a capture, and the bytes recorded of each packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureConfig {
    /// The file to create, or an existing pipe or device. If a regular file has the name, the process appends its
    /// process id to the name.
    pub file: PathBuf,
    /// Maximum bytes recorded of each packet, headers included; zero records all.
    pub snap: u32,
}

impl CaptureConfig {
    /// The variable with the file's name, for a process and its children.
    pub const FILE: &str = "WEFT_CAPTURE";

    /// The variable with the maximum bytes recorded of each packet; if unset, all.
    pub const SNAP: &str = "WEFT_CAPTURE_SNAP";

    /// Returns the capture set in the environment, if any. A length that is no number records all bytes.
    pub fn from_environment() -> Option<Self> {
        let file = env::var_os(Self::FILE).filter(|file| !file.is_empty())?;
        let snap = env::var(Self::SNAP).ok().and_then(|snap| snap.parse().ok()).unwrap_or(0);
        Some(Self { file: file.into(), snap })
    }
}

/// The process's current capture, to which the sockets of all threads write.
static CURRENT: Mutex<Option<Arc<Capture>>> = Mutex::new(None);

/// A capture that is being written.
#[derive(Debug)]
pub(super) struct Capture {
    config: CaptureConfig,
    /// `None` after the file could not be written.
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    writer: Writer<BufWriter<File>>,
    interface: InterfaceId,
}

impl Capture {
    /// Returns the process's capture with this configuration; starts one if there is none.
    ///
    /// # Errors
    /// The file cannot be created.
    fn open(config: &CaptureConfig) -> Result<Arc<Self>, SocketError> {
        let mut current = lock(&CURRENT);
        if let Some(capture) = current.as_ref().filter(|capture| capture.config == *config) {
            return Ok(Arc::clone(capture));
        }
        let state = State::create(config)
            .map_err(|cause| SocketError::Capture { file: config.file.clone(), cause })?;
        let capture = Arc::new(Self { config: config.clone(), state: Mutex::new(Some(state)) });
        *current = Some(Arc::clone(&capture));
        Ok(capture)
    }

    /// Runs `act` on the file; on the first error reports it and stops the capture.
    fn with(&self, act: impl FnOnce(&mut State) -> io::Result<()>) {
        let mut state = lock(&self.state);
        let Some(current) = state.as_mut() else { return };
        if let Err(error) = act(current) {
            *state = None;
            let file = self.config.file.display();
            eprintln!("weft: the capture {file} ends here: {error}");
        }
    }
}

impl State {
    fn create(config: &CaptureConfig) -> io::Result<Self> {
        let file = match create_new(&config.file) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut name = config.file.clone().into_os_string();
                name.push(format!(".{}", std::process::id()));
                create_new(Path::new(&name))?
            }
            file => file?,
        };
        let process = env::current_exe().unwrap_or_default();
        let source = format!("{}, process {}", process.display(), std::process::id());
        let mut writer = Writer::new(BufWriter::with_capacity(1 << 18, file), &source)?;
        let interface = writer.interface("weft sockets", LinkType::Raw, config.snap)?;
        Ok(Self { writer, interface })
    }
}

/// Creates a file, or opens an existing pipe or device.
///
/// # Errors
/// A regular file has the name, or the kernel refuses.
fn create_new(file: &Path) -> io::Result<File> {
    let is_special = file.metadata().is_ok_and(|metadata| !metadata.is_file());
    OpenOptions::new().write(true).create_new(!is_special).open(file)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // If a thread panicked while it wrote a packet, the capture is still usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The header fields of a datagram to record.
#[derive(Clone, Copy, Debug)]
struct HeaderFields {
    from: SocketAddr,
    to: SocketAddr,
    ecn: Ecn,
    hop_limit: u8,
}

/// One direction of a host's sockets, and the capture it is written to.
#[derive(Debug)]
pub(super) struct Tap {
    capture: Arc<Capture>,
    /// The address to which the sockets are bound.
    local: IpAddr,
    /// The local address of the route to each peer, if the sockets are bound to the unspecified address.
    addresses: BTreeMap<IpAddr, IpAddr>,
}

impl Tap {
    /// Returns the recorder of one direction of sockets bound to `local`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(super) fn new(config: &CaptureConfig, local: IpAddr) -> Result<Self, SocketError> {
        Ok(Self { capture: Capture::open(config)?, local, addresses: BTreeMap::new() })
    }

    /// Records a sent datagram.
    pub(super) fn sent(&mut self, port: u16, to: SocketAddr, bytes: &[u8]) {
        let from = SocketAddr::new(self.address_towards(to), port);
        let fields = HeaderFields { from, to, ecn: Ecn::Capable0, hop_limit: HOP_LIMIT };
        self.record(Direction::Out, fields, bytes);
    }

    /// Records received datagrams.
    pub(super) fn received(&mut self, port: u16, received: &Received<'_>) {
        let to = SocketAddr::new(self.address_towards(received.from), port);
        let ecn = if received.congestion_experienced {
            Ecn::CongestionExperienced
        } else {
            Ecn::Capable0
        };
        for datagram in received.datagrams() {
            let hop_limit = HOP_LIMIT - received.hops;
            let fields = HeaderFields { from: received.from, to, ecn, hop_limit };
            self.record(Direction::In, fields, datagram);
        }
    }

    /// Writes buffered packets to the file.
    pub(super) fn flush(&self) {
        self.capture.with(|state| state.writer.flush());
    }

    fn record(&self, direction: Direction, fields: HeaderFields, bytes: &[u8]) {
        let HeaderFields { from, to, ecn, hop_limit } = fields;
        // No socket delivers more than a datagram can carry.
        let Ok(payload_len) = u16::try_from(bytes.len()) else { return };
        let mut headers = [0; Datagram::MAX_LEN];
        let len = Datagram { source: from, destination: to, ecn, hop_limit, payload_len }
            .emit(&mut headers);
        let length = len + bytes.len();
        let recorded = match self.capture.config.snap {
            0 => bytes.len(),
            snap => bytes.len().min((snap as usize).saturating_sub(len)),
        };
        let time_ns = Clock.wall();
        self.capture.with(|State { writer, interface }| {
            let bytes: &[&[u8]] = &[&headers[..len], &bytes[..recorded]];
            writer.packet(&Record { interface: *interface, time_ns, direction, bytes, length })
        });
    }

    /// Returns the local address of packets to and from a peer.
    fn address_towards(&mut self, peer: SocketAddr) -> IpAddr {
        if !self.local.is_unspecified() {
            return self.local;
        }
        let local = self.local;
        *self.addresses.entry(peer.ip()).or_insert_with(|| {
            // Connecting a UDP socket sends no packet: it only looks up the route.
            let routed = UdpSocket::bind((local, 0)).and_then(|socket| {
                socket.connect(peer)?;
                socket.local_addr()
            });
            routed.map_or(local, |address| address.ip())
        })
    }
}
