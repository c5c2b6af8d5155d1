//! A tenant's frame as it travels on a wire.

use alloc::vec::Vec;

use super::{Offload, Segments, complete};
use crate::Frame;
use weft_wire::VirtioNetHeader;

/// Does what the tenant left to its device: completes the checksum of the frame behind the virtio-net header
/// that `bytes` begin with, or cuts it into `piece`, and hands each Ethernet frame that results to `send` beside
/// the tenant's. Returns `None`, having sent nothing, for a virtio-net header that does not fit its frame.
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
