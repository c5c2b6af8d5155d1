//! A tenant's frame in its wire form.

use alloc::vec::Vec;

use super::{Offload, Segments, complete};
use crate::Frame;
use weft_wire::VirtioNetHeader;

/// Does the work that the tenant left to its device: completes the checksum of the frame after the virtio-net
/// header that `bytes` begin with, or cuts a super-frame into segments, each written to `piece`. Passes each
/// resulting Ethernet frame to `send` with the tenant's parsed frame. Returns `None` and sends nothing if the
/// virtio-net header does not match its frame.
pub fn on_wire(
    bytes: &mut [u8],
    piece: &mut Vec<u8>,
    mut send: impl FnMut(&Frame, &[u8]),
) -> Option<()> {
    let (virtio, frame) = Frame::parse_virtio(bytes, bytes.len()).ok()?;
    let offload = Offload::check(&virtio, &frame).ok()?;
    let ethernet = &mut bytes[VirtioNetHeader::LEN..];
    let Some(segmentation) = offload.segmentation else {
        if let Some(partial) = offload.checksum {
            complete(ethernet, partial);
        }
        send(&frame, ethernet);
        return Some(());
    };
    let mut segments = Segments::new(ethernet, &frame, segmentation);
    piece.resize(segments.longest(), 0);
    while let Some(len) = segments.write_next(piece) {
        send(&frame, &piece[..len]);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use weft_wire::GsoType;

    use super::*;
    use crate::example::{packet, tcp};
    use crate::offload::verify;
    use crate::{TcpFlags, protocol};

    fn frame(header: VirtioNetHeader, payload: usize) -> Vec<u8> {
        let segment = tcp((40_000, 80), TcpFlags::ACK, &[], &vec![7; payload]);
        let mut bytes = vec![0; VirtioNetHeader::LEN];
        header.emit(&mut bytes);
        bytes.extend(packet("10.0.0.1", "10.0.0.2", protocol::TCP, &segment));
        bytes
    }

    fn sent(header: VirtioNetHeader, payload: usize) -> Option<Vec<Vec<u8>>> {
        let mut sent = Vec::new();
        let mut bytes = frame(header, payload);
        on_wire(&mut bytes, &mut Vec::new(), |_, ethernet| sent.push(ethernet.to_vec()))
            .map(|()| sent)
    }

    #[test]
    fn a_super_frame_is_sent_in_segments_and_an_inconsistent_one_is_not_sent() {
        let long = VirtioNetHeader {
            needs_csum: true,
            gso_type: GsoType::TcpV4,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
            ..VirtioNetHeader::default()
        };
        let pieces = sent(long, 3000).unwrap();
        let lengths: Vec<usize> = pieces.iter().map(Vec::len).collect();
        assert_eq!(lengths, [54 + 1448, 54 + 1448, 54 + 104]);
        for piece in &pieces {
            assert_eq!(verify(piece, &Frame::parse(piece, piece.len()).unwrap()), Ok(()));
        }
        assert_eq!(sent(VirtioNetHeader { needs_csum: false, ..long }, 3000), None);
    }

    #[test]
    fn only_the_checksum_of_a_frame_changes() {
        let untouched = frame(VirtioNetHeader::default(), 10)[VirtioNetHeader::LEN..].to_vec();
        assert_eq!(sent(VirtioNetHeader::default(), 10), Some(vec![untouched.clone()]));
        let header = VirtioNetHeader {
            needs_csum: true,
            csum_start: 34,
            csum_offset: 16,
            ..VirtioNetHeader::default()
        };
        let completed = sent(header, 10).unwrap().remove(0);
        assert_eq!(completed[..50], untouched[..50]);
        assert_ne!(completed[50..52], untouched[50..52]);
        assert_eq!(completed[52..], untouched[52..]);
    }
}
