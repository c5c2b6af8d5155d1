//! The work of a tenant's device on a frame before the tenant receives it: the device checks the frame against its
//! virtio header, and does the offloads that the tenant did not negotiate (virtio 1.2, 5.1.6.4).

use weft_vpc::offload::{Offload, Segments, complete};
use weft_wire::{GsoType, VirtioNetHeader};

use crate::HEADER_LEN;

/// A frame's virtio header, as bytes.
pub(crate) type Header = [u8; HEADER_LEN as usize];

/// Maximum length of a frame that is certainly no super-frame, bytes: a virtio header, an Ethernet header with two
/// tags, and 1,500 bytes.
const MAX_ORDINARY_LEN: u32 = HEADER_LEN + 14 + 8 + 1_500;

/// The offloads that a tenant accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ability {
    /// Partial checksums.
    pub(crate) checksum: bool,
    /// Unsegmented TCP over IPv4.
    pub(crate) tcp_v4: bool,
    /// Unsegmented TCP over IPv6.
    pub(crate) tcp_v6: bool,
    /// Unsegmented TCP with CWR in the first segment.
    pub(crate) ecn: bool,
    /// Unsegmented UDP over IPv4.
    pub(crate) udp_v4: bool,
    /// Unsegmented UDP over IPv6.
    pub(crate) udp_v6: bool,
}

/// The action for a frame.
#[derive(Debug)]
pub(crate) enum Finished {
    /// Deliver it unchanged, under this header.
    AsIs(Header),
    /// Change it.
    Changed(Change),
}

/// The change that makes one or several complete frames of a frame.
#[derive(Debug)]
pub(crate) struct Change {
    frame: weft_vpc::Frame,
    offload: Offload,
}

impl Ability {
    /// Checksums, and all of TCP.
    pub(crate) const TCP: Self = Self {
        checksum: true,
        tcp_v4: true,
        tcp_v6: true,
        ecn: true,
        udp_v4: false,
        udp_v6: false,
    };

    /// Returns `true` if a frame of `len` bytes with its header can be delivered unchanged, unless
    /// it is of a rare kind.
    pub(crate) fn takes_any(&self, len: u32) -> bool {
        self.checksum && (len <= MAX_ORDINARY_LEN || (self.tcp_v4 && self.tcp_v6))
    }

    fn takes(&self, frame: &weft_vpc::Frame, offload: &Offload, header: &VirtioNetHeader) -> bool {
        let is_v4 = frame.ip().is_some_and(|ip| ip.source.is_ipv4());
        let kind = match header.gso_type {
            GsoType::None => true,
            GsoType::TcpV4 => self.tcp_v4,
            GsoType::TcpV6 => self.tcp_v6,
            GsoType::Udp if is_v4 => self.udp_v4,
            GsoType::Udp => self.udp_v6,
            GsoType::UdpFragments => false,
        };
        kind && (self.checksum || offload.checksum.is_none()) && (self.ecn || !header.ecn)
    }
}

/// Returns the action for a frame of `len` bytes without its virtio header; `head` is the virtio header and the frame's
/// first bytes. Returns `None` if the header does not match the frame.
pub(crate) fn finish(head: &[u8], len: u32, ability: Ability) -> Option<Finished> {
    let (header, first) = VirtioNetHeader::parse(head).ok()?;
    if !header.needs_csum && header.gso_type == GsoType::None {
        return Some(Finished::AsIs(emit(&VirtioNetHeader {
            num_buffers: 1,
            ..Default::default()
        })));
    }
    let first = &first[..first.len().min(len as usize)];
    let frame = weft_vpc::Frame::parse(first, len as usize).ok()?;
    let offload = Offload::check(&header, &frame).ok()?;
    let checked = offload.header();
    Some(if ability.takes(&frame, &offload, &checked) {
        Finished::AsIs(emit(&checked))
    } else {
        Finished::Changed(Change { frame, offload })
    })
}

fn emit(header: &VirtioNetHeader) -> Header {
    let mut bytes = [0; HEADER_LEN as usize];
    header.emit(&mut bytes);
    bytes
}

impl Change {
    /// Returns the frames made of `frame`, which is whole and without its virtio header.
    pub(crate) fn apply(&self, mut frame: Vec<u8>) -> Vec<Vec<u8>> {
        let Some(segmentation) = self.offload.segmentation else {
            if let Some(checksum) = self.offload.checksum {
                complete(&mut frame, checksum);
            }
            return vec![frame];
        };
        let mut segments = Segments::new(&frame, &self.frame, segmentation);
        let mut longest = vec![0; segments.longest()];
        let mut frames = Vec::with_capacity(segmentation.count());
        while let Some(len) = segments.write_next(&mut longest) {
            frames.push(longest[..len].to_vec());
        }
        frames
    }
}
