//! A switch with two ports that cuts packets to their headers, as those with packet trimming do when a queue is full: two
//! packet sockets in a network namespace, and a rule that selects the packets.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use libc::sockaddr_ll;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::{Domain, Protocol, Socket, Type};
use weft_udp::sockets::set_option;

/// Bytes that are left of a cut packet, Ethernet's header included: SONiC's default.
const CUT_TO: usize = 128;
/// Offsets of IPv4's DSCP, its length and its checksum, and of UDP's length, in a frame without options.
const TRAFFIC_CLASS: usize = 15;
const IP_LENGTH: usize = 16;
const IP_CHECKSUM: usize = 24;
const UDP_LENGTH: usize = 38;

/// The changes that a switch makes to a packet that it cuts (`docs/design/trimming.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Nothing but the DSCP: both lengths and the IP checksum are those of the whole packet.
    AsItWas,
    /// The new length and checksum in the IP header.
    IpLength,
    /// New lengths in both headers. The UDP checksum is that of the whole packet.
    BothLengths,
}

/// The switch. Packets from the first port to the second may be cut.
pub(crate) struct Switch<Rule> {
    ports: [Socket; 2],
    dscp: u8,
    pub(crate) form: Form,
    /// Called for each packet with a payload of 500 bytes or more; returns `true` to cut it.
    pub(crate) rule: Rule,
    /// Number of packets cut.
    pub(crate) cut: u64,
}

impl<Rule: FnMut() -> bool> Switch<Rule> {
    /// Opens the ports: interfaces of this thread's network namespace, by index.
    pub(crate) fn open(interfaces: [i32; 2], dscp: u8, form: Form, rule: Rule) -> Self {
        Self { ports: interfaces.map(|index| open(index).unwrap()), dscp, form, rule, cut: 0 }
    }

    /// Forwards all packets that wait.
    pub(crate) fn forward(&mut self) {
        let mut frame = [0; 2048];
        for from in [0, 1] {
            while let Ok((len, _)) = recv(&self.ports[from], &mut frame, RecvFlags::DONTWAIT) {
                let is_cut = from == 0 && is_large_udp(&frame[..len]) && (self.rule)();
                let len = if is_cut { self.cut(&mut frame) } else { len };
                // A packet for which there is no room is lost, as on any switch.
                let _ = send(&self.ports[1 - from], &frame[..len], SendFlags::DONTWAIT);
            }
        }
    }

    /// Cuts a packet; returns the length that is left.
    fn cut(&mut self, frame: &mut [u8]) -> usize {
        self.cut += 1;
        frame[TRAFFIC_CLASS] = self.dscp << 2 | frame[TRAFFIC_CLASS] & 0b11;
        let mut write = |at: usize, value: u16| {
            frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        let left = u16::try_from(CUT_TO - 14).unwrap();
        if self.form == Form::BothLengths {
            write(UDP_LENGTH, left - 20);
        }
        if self.form != Form::AsItWas {
            write(IP_LENGTH, left);
            write(IP_CHECKSUM, 0);
            let checksum = checksum(&frame[14..34]);
            frame[IP_CHECKSUM..IP_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        CUT_TO
    }
}

/// Returns `true` for UDP over IPv4 without options and a payload of 500 bytes or more.
fn is_large_udp(frame: &[u8]) -> bool {
    frame.len() >= 542 && frame[12..15] == [0x08, 0x00, 0x45] && frame[23] == 17
}

/// Returns the Internet checksum (RFC 1071) of a header.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}

/// Opens a packet socket for what arrives on an interface.
fn open(interface: i32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
    // linux/if_packet.h; what the socket sends does not come back.
    const PACKET_IGNORE_OUTGOING: i32 = 23;
    set_option(socket.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    let every = u16::try_from(libc::ETH_P_ALL).unwrap().to_be();
    // SAFETY: all fields are integers, for which zero is a value.
    let mut address: sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
    address.sll_protocol = every;
    address.sll_ifindex = interface;
    let len = u32::try_from(size_of::<sockaddr_ll>()).unwrap();
    // SAFETY: the address is a local of this length, and the kernel only reads it.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if bound == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}
