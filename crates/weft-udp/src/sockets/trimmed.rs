//! Packets that a switch cut to their headers. Kernels drop most forms of them in their IP and UDP layers
//! (`docs/design/trimming.md`), so they are read from a packet socket, before those. A filter in the kernel passes only
//! UDP packets to this port with a DSCP of cut packets: all others cost its few instructions.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{RecvFlags, recv};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use weft_transport::TrimmedAt;
use weft_wire::{CutDatagram, DataHeader, U6};

use super::{SocketError, refused};

/// Bytes read of each packet: its headers are at the beginning, IPv4 options included.
const MAX_LEN: usize = 256;

/// The DSCPs that the network's switches give to packets that they cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimmedConfig {
    /// That of a switch inside the fabric, or of all switches.
    pub fabric: U6,
    /// That of the last switch, whose port leads to this host, if it has its own.
    pub last_hop: Option<U6>,
}

impl TrimmedConfig {
    /// Returns where a packet with this DSCP was cut; `None` if it was not.
    fn place(&self, dscp: U6) -> Option<TrimmedAt> {
        match dscp {
            _ if Some(dscp) == self.last_hop => Some(TrimmedAt::LastHop),
            _ if dscp == self.fabric => Some(TrimmedAt::Fabric),
            _ => None,
        }
    }
}

/// The headers of a data packet that was cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrimmedPacket {
    /// The source address and port.
    pub(crate) from: SocketAddr,
    pub(crate) header: DataHeader,
    pub(crate) at: TrimmedAt,
}

/// A packet socket for the packets cut on their way to one UDP port.
#[derive(Debug)]
pub(crate) struct TrimmedSocket {
    socket: Socket,
    config: TrimmedConfig,
    /// The address that packets have as their destination.
    local: SocketAddr,
    buffer: [u8; MAX_LEN],
}

impl TrimmedSocket {
    /// Opens the socket for packets to `local`, on all interfaces.
    ///
    /// # Errors
    /// The kernel refuses it: it takes root or CAP_NET_RAW.
    pub(crate) fn open(config: TrimmedConfig, local: SocketAddr) -> Result<Self, SocketError> {
        let what = "open a packet socket for trimmed packets (it takes root or CAP_NET_RAW)";
        let protocol = if local.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let protocol = u16::try_from(protocol).expect("protocols have 16 bits").to_be();
        // Packets without their Ethernet header. Until the filter is attached, some of any kind may arrive.
        let open = || {
            let protocol = Some(Protocol::from(i32::from(protocol)));
            let socket = Socket::new(Domain::PACKET, Type::DGRAM, protocol)?;
            socket.attach_filter(&filter(config, local))?;
            io::Result::Ok(socket)
        };
        Ok(Self { socket: open().map_err(refused(what))?, config, local, buffer: [0; MAX_LEN] })
    }

    /// Returns the descriptor that is readable while a packet waits.
    pub(crate) fn readable(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the next packet that was cut, if any. Packets of other protocols are skipped.
    pub(crate) fn next(&mut self) -> Option<TrimmedPacket> {
        loop {
            let (len, _) = recv(&self.socket, &mut self.buffer, RecvFlags::DONTWAIT).ok()?;
            if let Some(packet) = self.parse(&self.buffer[..len]) {
                return Some(packet);
            }
        }
    }

    /// Returns the headers of a cut packet to this port; `None` for any other packet.
    fn parse(&self, packet: &[u8]) -> Option<TrimmedPacket> {
        let cut = CutDatagram::parse(packet).ok()??;
        let is_here = self.local.ip().is_unspecified() || cut.destination == self.local.ip();
        if !is_here || cut.destination_port != self.local.port() {
            return None;
        }
        let at = self.config.place(cut.dscp)?;
        let (header, _) = DataHeader::parse(cut.bytes).ok()?;
        Some(TrimmedPacket { from: (cut.source, cut.source_port).into(), header, at })
    }
}

/// Returns an instruction that loads a value of the packet, or computes with it.
const fn step(operation: u32, k: u32) -> SockFilter {
    jump(operation, 0, 0, k)
}

/// Returns an instruction that skips `then` instructions if its comparison holds, and `otherwise` if not.
#[expect(clippy::cast_possible_truncation, reason = "an instruction's code has 16 bits")]
const fn jump(operation: u32, then: u8, otherwise: u8, k: u32) -> SockFilter {
    SockFilter::new(operation as u16, then, otherwise, k)
}

/// Returns the program (the kernel's `Documentation/networking/filter.rst`) that accepts UDP packets to `local`'s port
/// with a DSCP of `config`. Fragments have no UDP header, and are dropped.
fn filter(config: TrimmedConfig, local: SocketAddr) -> Vec<SockFilter> {
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET};
    use libc::{BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET};

    let udp = u32::from(weft_wire::UdpHeader::PROTOCOL);
    let port = local.port().into();
    // `left` instructions lie between this one and the last but one, which drops the packet.
    let expect = |k, left| jump(BPF_JMP | BPF_JEQ | BPF_K, 0, left, k);
    let mut program = match local {
        SocketAddr::V4(_) => vec![
            step(BPF_LD | BPF_B | BPF_ABS, 9),
            expect(udp, 9),
            step(BPF_LD | BPF_H | BPF_ABS, 6),
            jump(BPF_JMP | BPF_JSET | BPF_K, 7, 0, 0x1fff),
            step(BPF_LDX | BPF_B | BPF_MSH, 0),
            step(BPF_LD | BPF_H | BPF_IND, 2),
            expect(port, 4),
            step(BPF_LD | BPF_B | BPF_ABS, 1),
            step(BPF_ALU | BPF_AND | BPF_K, 0xfc),
        ],
        SocketAddr::V6(_) => vec![
            step(BPF_LD | BPF_B | BPF_ABS, 6),
            expect(udp, 6),
            step(BPF_LD | BPF_H | BPF_ABS, 42),
            expect(port, 4),
            step(BPF_LD | BPF_H | BPF_ABS, 0),
            step(BPF_ALU | BPF_AND | BPF_K, 0x0fc0),
        ],
    };
    let shift = if local.is_ipv4() { 2 } else { 6 };
    let dscp = |dscp: U6| u32::from(dscp.get()) << shift;
    program.extend([
        jump(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, dscp(config.fabric)),
        jump(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, dscp(config.last_hop.unwrap_or(config.fabric))),
        step(BPF_RET | BPF_K, 0),
        step(BPF_RET | BPF_K, u32::MAX),
    ]);
    program
}
