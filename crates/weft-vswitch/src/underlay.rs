//! The datagrams that leave for other hosts: VXLAN, and after it a packet of the transport or a tenant's frame, each
//! sealed or unencrypted. They are sealed in place; `node.rs` opens those that arrive.

use std::net::SocketAddr;

use weft_seal::{Seals, Wrap};
use weft_udp::sockets::Outbox;
use weft_vpc::gateway::forward;
use weft_vpc::{Frame, Leaving, Plain, Reading, Tenants, Vni};
use weft_wire::{SealedContent, U24, VirtioNetHeader, VxlanHeader, VxlanNext};

use crate::redirect::ThreadIndex;

/// Length of the part of a datagram that is authenticated but not encrypted, bytes: it names the network.
pub(crate) const CLEAR: usize = VxlanHeader::LEN;

pub(crate) fn header(vni: Vni, next: VxlanNext) -> VxlanHeader {
    VxlanHeader { vni: U24::truncate(vni.get()), next }
}

/// The destination of a datagram, and the header and protection with which it leaves.
struct Target {
    to: SocketAddr,
    /// The thread of the other host, if it is known.
    peer_thread: Option<u8>,
    path: u16,
    vxlan: VxlanHeader,
    wrap: Wrap,
    content: SealedContent,
}

/// Writes a datagram into the outbox: the VXLAN header, then `len` bytes that `fill` writes.
#[inline]
fn push(link: &mut Link<'_>, target: &Target, len: usize, fill: impl FnOnce(&mut [u8])) {
    // A datagram's length has 16 bits. A longer frame is dropped: the kernel would refuse it too.
    let Ok(size) = u16::try_from(CLEAR + target.wrap.len() + len) else { return };
    let Link { outbox, seals, index, paths } = link;
    let socket = u16::from(index.group(target.peer_thread)) * *paths + target.path % *paths;
    outbox.push(&target.to, socket, size, |out| {
        target.vxlan.emit(out);
        let inside = target.wrap.inside(CLEAR, out.len());
        fill(&mut out[inside]);
        match target.content {
            SealedContent::Packet => seals.seal(target.wrap, CLEAR, out),
            SealedContent::Frame => seals.seal_frame(target.wrap, CLEAR, out),
        }
    });
}

/// The parts that a host needs to send datagrams.
#[derive(Debug)]
pub(crate) struct Link<'a> {
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) seals: &'a mut Seals,
    pub(crate) index: ThreadIndex,
    /// Number of source ports for each thread of another host.
    pub(crate) paths: u16,
}

/// Numbers of datagrams and frames that this overlay could not handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) malformed: u64,
    /// Number of frames that were not sent because their virtio-net header does not match them.
    pub(crate) unsendable: u64,
    /// Number of handovers for which another thread of this host had no room.
    pub(crate) not_handed_over: u64,
}

/// Writes a packet of the transport into the outbox.
#[inline]
pub(crate) fn push_packet(link: &mut Link<'_>, leaving: &Leaving<'_>, tenants: &mut impl Tenants) {
    let headers = leaving.packet.len();
    let len = headers + usize::from(leaving.payload_len());
    let departure = leaving.departure;
    let target = Target {
        to: departure.to,
        peer_thread: leaving.peer_thread(),
        path: departure.path.0,
        vxlan: header(leaving.vni, VxlanNext::Weft),
        wrap: link.seals.wrap(&departure.to, departure.connection, leaving.packet),
        content: SealedContent::Packet,
    };
    push(link, &target, len, |out| {
        leaving.packet.emit(out);
        leaving.read(tenants, &mut out[headers..]);
    });
}

/// A sender of frames outside pairs' connections, which fills in checksums and cuts frames to the network's
/// size.
#[derive(Debug, Default)]
pub(crate) struct PlainSender {
    frame: Vec<u8>,
    piece: Vec<u8>,
}

impl PlainSender {
    /// Sends a frame, and releases it.
    pub(crate) fn send(
        &mut self,
        plain: &Plain,
        link: &mut Link<'_>,
        tenants: &mut impl Tenants,
        counters: &mut Counters,
    ) {
        self.frame.resize(plain.len as usize, 0);
        tenants.read(plain.port, plain.token, 0, &mut self.frame, Reading::First);
        if plain.is_last {
            tenants.release(plain.port, plain.token);
        }
        if let (Some(next), Some(ethernet)) =
            (plain.next, self.frame.get_mut(VirtioNetHeader::LEN..))
        {
            forward(ethernet, next);
        }
        if self.push_on_wire(plain, link).is_none() {
            counters.unsendable += 1;
        }
    }

    /// Writes the datagrams of the read frame into the outbox. Returns `None` if the frame's virtio-net header does not
    /// match it.
    fn push_on_wire(&mut self, plain: &Plain, link: &mut Link<'_>) -> Option<()> {
        weft_vpc::offload::on_wire(&mut self.frame, &mut self.piece, |frame, ethernet| {
            push_plain(plain, path_of(frame, link.paths), ethernet, link);
        })
    }
}

fn push_plain(plain: &Plain, path: u16, ethernet: &[u8], link: &mut Link<'_>) {
    let wrap = match plain.under {
        None => Some(Wrap::Clear),
        Some(keys) => link.seals.wrap_frame(keys.connection),
    };
    // The connection has just ended, and the frame must not leave unencrypted.
    let Some(wrap) = wrap else { return };
    for &to in &plain.to {
        let next = if plain.under.is_some() { VxlanNext::Weft } else { VxlanNext::Frame };
        let (vxlan, content) = (header(plain.vni, next), SealedContent::Frame);
        let peer_thread = plain.under.map(|keys| keys.peer_thread);
        let target = Target { to, peer_thread, path, vxlan, wrap, content };
        push(link, &target, ethernet.len(), |out| out.copy_from_slice(ethernet));
    }
}

/// Returns the path of a plain frame, the same for all frames of a flow, so that the tenant's packets keep their
/// order (RFC 7348, section 5).
fn path_of(frame: &Frame, paths: u16) -> u16 {
    u16::try_from(frame.flow_hash() % u32::from(paths)).expect("less than the paths")
}
