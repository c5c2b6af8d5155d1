//! Properties for every input of guests and front ends. The mutation tests and the fuzz targets
//! both call this.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use weft_ports::{
    ChainError, Descriptors, Port, PortError, Position, Purpose, Role, VhostConfig, VhostPort,
    walk, walk_packed,
};
use weft_units::Instant;
use weft_vpc::{Staging, Turn};

/// The address of a guest's memory.
const BASE: u64 = 0x1000;

/// Guest memory with these bytes.
struct Guest<'a>(&'a [u8]);

impl Descriptors for Guest<'_> {
    fn descriptor(&self, address: u64) -> Option<[u8; 16]> {
        let at = usize::try_from(address.checked_sub(BASE)?).ok()?;
        self.0.get(at..at.checked_add(16)?)?.try_into().ok()
    }

    fn holds(&self, address: u64, len: u32) -> bool {
        let end = address.checked_add(u64::from(len));
        address >= BASE && end.is_some_and(|end| end <= BASE + self.0.len() as u64)
    }
}

/// Walks a chain in guest memory: three bytes are the table's size, the chain's first descriptor and its purpose; the
/// rest is the memory, which begins with the table.
///
/// # Errors
/// The reason why the chain was refused.
///
/// # Panics
/// If an accepted chain differs from the expected one.
pub fn chain(bytes: &[u8]) -> Result<(), ChainError> {
    let Some((&[size, head, purpose], memory)) = bytes.split_first_chunk() else { return Ok(()) };
    let (size, head) = (1 << (size % 16), u16::from(head));
    let purpose = if purpose % 2 == 0 { Purpose::Sent } else { Purpose::Received };
    let guest = Guest(memory);
    let mut segments = vec![];
    let walked = walk(&guest, BASE, size, head, purpose, &mut segments);
    assert!(segments.len() <= 1_025, "a walk of {} steps", segments.len());
    let mut start = 0;
    for segment in &segments {
        assert!(segment.len > 0 && guest.holds(segment.address, segment.len));
        assert_eq!(segment.start, start);
        start += segment.len;
    }
    let total = walked?;
    assert_eq!(total, start);
    Ok(())
}

/// Walks a chain of a packed ring in guest memory: three bytes are the ring's size, the position and the purpose; the
/// rest is the memory, which begins with the ring.
///
/// # Errors
/// The reason why the chain was refused.
///
/// # Panics
/// If an accepted chain differs from the expected one.
pub fn packed_chain(bytes: &[u8]) -> Result<(), ChainError> {
    let Some((&[size, index, purpose], memory)) = bytes.split_first_chunk() else { return Ok(()) };
    let size = u16::from(size) + 1;
    let at = Position { index: u16::from(index) % size, wrap: purpose & 2 == 0 };
    let purpose = if purpose % 2 == 0 { Purpose::Sent } else { Purpose::Received };
    let guest = Guest(memory);
    let mut segments = vec![];
    let walked = walk_packed(&guest, BASE, size, at, purpose, &mut segments);
    assert!(segments.len() <= 1_024, "a walk of {} steps", segments.len());
    let mut start = 0;
    for segment in &segments {
        assert!(segment.len > 0 && guest.holds(segment.address, segment.len));
        assert_eq!(segment.start, start);
        start += segment.len;
    }
    let chain = walked?;
    assert_eq!(chain.len, start);
    assert!((1..=size).contains(&chain.descriptors));
    Ok(())
}

/// The socket to which ports connect.
struct PortSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl PortSocket {
    fn new() -> Self {
        let thread = format!("{:?}", std::thread::current().id());
        let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
        let name = format!("weft-ports-said-{}-{thread}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, path }
    }

    /// Returns the connection of a port, if there is one.
    fn accept(&self) -> Option<UnixStream> {
        self.listener.accept().ok().map(|(stream, _)| stream)
    }
}

impl Drop for PortSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

thread_local! {
    /// The socket is created once, because files would take most of the time.
    static SOCKET: PortSocket = PortSocket::new();
}

/// Maximum number of frames taken from the guest after a request.
const TAKEN: usize = 4;

/// First bytes from this on write to the guest's memory; those below are requests.
const WRITE: u8 = 225;

/// Runs a front end that sends the requests in the bytes: of each eight bytes one is the request, one selects its
/// attachments, and the others are numbers for its body; or they are a write to the guest's memory. Returns `true` if
/// its device was ever up.
///
/// # Panics
/// If the port panics.
pub fn front_end(bytes: &[u8]) -> bool {
    SOCKET.with(|socket| run_script(socket, bytes))
}

fn run_script(socket: &PortSocket, bytes: &[u8]) -> bool {
    let config = VhostConfig { role: Role::Connect, window: 8, ..VhostConfig::at(&socket.path) };
    let mut port = VhostPort::open(&config).unwrap();
    port.service(Instant::EPOCH).unwrap();
    let mut stream = socket.accept().unwrap();
    let memory = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&memory, 1 << 16).unwrap();
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let (mut was_up, mut is_sound) = (false, true);
    for script in bytes.chunks_exact(8) {
        match script {
            &[first, _, high, low, ref written @ ..] if first >= WRITE => {
                let offset = u64::from(u16::from_be_bytes([high, low])) & !3;
                memory.write_all_at(written, offset).unwrap();
            }
            _ => send_request(&stream, script, &memory, &event),
        }
        let served = port.service(Instant::EPOCH);
        // A port that disconnected, which is an error, has reconnected in the call after it.
        if let Some(again) = (!is_sound).then(|| socket.accept()).flatten() {
            stream = again;
        }
        was_up |= port.is_up();
        is_sound = carry(&mut port, script).is_ok() && served.is_ok();
    }
    drop(port);
    // A connection after the last request would be the next input's first.
    while !is_sound && socket.accept().is_some() {}
    was_up
}

/// Takes frames from the guest and gives it one.
fn carry(port: &mut VhostPort, script: &[u8]) -> Result<(), PortError> {
    let taken = (0..TAKEN).try_for_each(|_| {
        let Some(sent) = port.take(Instant::EPOCH)? else { return Ok(()) };
        let _ = port.read(sent.token, 0, &mut [0; 100], weft_vpc::Reading::Retransmission);
        if script[6] & 1 == 0 {
            port.release(sent.token);
        }
        Ok(())
    });
    if let Some(slot) = port.claim(u32::from(script[7]) * 100, Turn::Next, Staging::InPlace, &[]) {
        let _ = port.place(slot, 0, &[1; 100]);
        port.complete(slot);
    }
    port.flush().and(taken)
}

/// Sends one request.
fn send_request(stream: &UnixStream, script: &[u8], memory: &File, event: &OwnedFd) {
    let [request, how, a, b, c, d, e, f] = *script else { return };
    let small = |byte: u8| u64::from(byte);
    let body: Vec<u8> = match how % 8 {
        // One region of memory, with the same guest and front-end addresses.
        0 => [1, small(a) << 8, small(b) << 12, small(a) << 8, small(c) << 12]
            .map(u64::to_ne_bytes)
            .concat(),
        // A queue and a number.
        1 => [u32::from(a % 3), u32::from(b)].map(u32::to_ne_bytes).concat(),
        2 => [u32::from(a % 3), 1 << (b % 18)].map(u32::to_ne_bytes).concat(),
        // Addresses of a queue.
        3 => [small(a % 3), small(b) << 4, small(c) << 4, small(d) << 4, 0]
            .map(u64::to_ne_bytes)
            .concat(),
        4 => small(a % 3).to_ne_bytes().to_vec(),
        5 => (small(a) | small(b) << 24 | small(c) << 32).to_ne_bytes().to_vec(),
        6 => vec![],
        _ => script.to_vec(),
    };
    let files: &[BorrowedFd<'_>] = match e % 4 {
        0 => &[],
        1 => &[memory.as_fd()],
        2 => &[event.as_fd()],
        _ => &[event.as_fd(), memory.as_fd()],
    };
    let size = u32::try_from(body.len()).unwrap();
    let flags = if f % 16 == 0 { 9 } else { 1 };
    let header = [u32::from(request % 45), flags, size].map(u32::to_ne_bytes).concat();
    let bytes = [&header[..], &body].concat();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = sendmsg(stream, &[IoSlice::new(&bytes)], &mut ancillary, flags);
}
