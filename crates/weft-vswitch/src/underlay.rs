//! The datagrams that leave for other hosts: VXLAN, and after it a packet of the transport or a tenant's frame, each
//! sealed or unencrypted. They are sealed in place; `node.rs` opens those that arrive.

use std::net::SocketAddr;

use weft_seal::{Seals, Wrap};
use weft_udp::sockets::Outbox;
use weft_vpc::gateway::forward;
use weft_vpc::{Frame, Leaving, Plain, Reading, Tenants, Vni};
use weft_wire::{SealedContent, U24, VirtioNetHeader, VxlanHeader, VxlanNext};

use crate::mirror::Copied;
use crate::redirect::ThreadIndex;

/// Length of the part of a datagram that is authenticated but not encrypted, bytes: it names the network.
pub(crate) const CLEAR: usize = VxlanHeader::LEN;

/// Maximum length of a datagram, bytes: the largest payload of UDP over IPv4.
const MAX_DATAGRAM: usize = 65_507;

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
///
/// # Panics
/// If the datagram is longer than [`MAX_DATAGRAM`].
#[inline]
fn push(link: &mut Link<'_>, target: &Target, len: usize, fill: impl FnOnce(&mut [u8])) {
    let size = u16::try_from(CLEAR + target.wrap.len() + len).expect("the caller limits it");
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
    /// Number of frames that were not sent because their virtio-net header does not match them, or because they are
    /// longer than a datagram.
    pub(crate) unsendable: u64,
    /// Number of handovers for which another thread of this host had no room.
    pub(crate) not_handed_over: u64,
}

/// Writes a packet of the transport into the outbox. The MTU limits its length.
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

    /// Sends a copy of a frame.
    pub(crate) fn send_copy(
        &mut self,
        copied: Copied,
        link: &mut Link<'_>,
        counters: &mut Counters,
    ) {
        self.frame = copied.frame;
        if self.push_on_wire(&copied.plain, link).is_none() {
            counters.unsendable += 1;
        }
    }

    /// Writes the datagrams of the read frame into the outbox. Returns `None` if the frame's virtio-net header does not
    /// match it, or a datagram would be too long.
    fn push_on_wire(&mut self, plain: &Plain, link: &mut Link<'_>) -> Option<()> {
        let mut fits = true;
        weft_vpc::offload::on_wire(&mut self.frame, &mut self.piece, |frame, ethernet| {
            fits &= push_plain(plain, path_of(frame, link.paths), ethernet, link);
        })?;
        fits.then_some(())
    }
}

/// Writes a frame in wire form into the outbox, for each host that receives it. Returns `false` if it is longer than a
/// datagram.
fn push_plain(plain: &Plain, path: u16, ethernet: &[u8], link: &mut Link<'_>) -> bool {
    let wrap = match plain.under {
        None => Some(Wrap::Clear),
        Some(keys) => link.seals.wrap_frame(keys.connection),
    };
    // The connection has just ended, and the frame must not leave unencrypted.
    let Some(wrap) = wrap else { return true };
    if CLEAR + wrap.len() + ethernet.len() > MAX_DATAGRAM {
        return false;
    }
    for &to in &plain.to {
        let next = if plain.under.is_some() { VxlanNext::Weft } else { VxlanNext::Frame };
        let (vxlan, content) = (header(plain.vni, next), SealedContent::Frame);
        let peer_thread = plain.under.map(|keys| keys.peer_thread);
        let target = Target { to, peer_thread, path, vxlan, wrap, content };
        push(link, &target, ethernet.len(), |out| out.copy_from_slice(ethernet));
    }
    true
}

/// Returns the path of a plain frame, the same for all frames of a flow, so that the tenant's packets keep their
/// order (RFC 7348, section 5).
fn path_of(frame: &Frame, paths: u16) -> u16 {
    u16::try_from(frame.flow_hash() % u32::from(paths)).expect("less than the paths")
}

#[cfg(test)]
mod tests {
    use weft_seal::SealConfig;
    use weft_udp::sockets::{SocketConfig, Sockets};
    use weft_vpc::{PortId, Slot, Staging, Token, Turn};

    use super::*;

    /// A guest of which each frame is a broadcast of the wanted length.
    struct Guest;

    impl Tenants for Guest {
        fn read(&mut self, _: PortId, _: Token, offset: u32, out: &mut [u8], _: Reading) {
            assert_eq!(offset, 0);
            out.fill(0);
            out[VirtioNetHeader::LEN..][..14]
                .copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        }
        fn release(&mut self, _: PortId, _: Token) {}
        fn claim(&mut self, _: PortId, _: u32, _: Turn, _: Staging, _: &[u8]) -> Option<Slot> {
            None
        }
        fn place(&mut self, _: PortId, _: Slot, _: u32, _: &[u8]) {}
        fn peek(&mut self, _: PortId, _: Slot, _: &mut [u8]) -> usize {
            0
        }
        fn complete(&mut self, _: PortId, _: Slot) {}
        fn cancel(&mut self, _: PortId, _: Slot) {}
    }

    #[test]
    fn a_frame_longer_than_a_datagram_is_counted_as_unsendable() {
        let mut sockets =
            Sockets::open(&SocketConfig::new("127.0.0.1:0".parse().unwrap(), 1)).unwrap();
        let mut seals = Seals::new(SealConfig::default(), [7; 32]);
        let to = vec![sockets.local(); 2];
        let outbox = &mut sockets.outbox;
        let index = ThreadIndex { thread: 0, threads: 1 };
        let mut link = Link { outbox, seals: &mut seals, index, paths: 1 };
        let (mut plain, mut counters) = (PlainSender::default(), Counters::default());
        for (datagram, waiting, unsendable) in
            [(65_507, 2, 0), (65_508, 2, 1), (65_535, 2, 2), (65_536, 2, 3)]
        {
            let frame = Plain {
                vni: Vni::new(7).unwrap(),
                port: PortId(1),
                token: Token(1),
                len: u32::try_from(datagram - VxlanHeader::LEN + VirtioNetHeader::LEN).unwrap(),
                next: None,
                to: to.clone(),
                under: None,
                is_last: true,
            };
            plain.send(&frame, &mut link, &mut Guest, &mut counters);
            let counts = (link.outbox.waiting(), counters.unsendable);
            assert_eq!(counts, (waiting, unsendable), "{datagram} bytes");
        }
    }
}
