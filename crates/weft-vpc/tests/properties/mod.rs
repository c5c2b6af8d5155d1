//! What holds for every input of what reads tenants' bytes. The deterministic mutation test and the
//! fuzz targets both call these.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use weft_vpc::{Frame, FrameError, Transport};

/// Feeds bytes to a function, holds its promises, and says by a short name what became of them.
pub type Property = fn(&[u8]) -> &'static str;

/// Every property by the name of its fuzz target.
pub const PROPERTIES: &[(&str, Property)] = &[("tenant_frame", tenant_frame)];

/// A frame behind its virtio-net header.
pub fn tenant_frame(bytes: &[u8]) -> &'static str {
    match parsed(bytes) {
        Ok(_) => "accepted",
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "an error is one line");
            error.reason()
        }
    }
}

/// Parses a whole frame, and holds that what was found lies within it and that its first bytes say
/// the same.
fn parsed(bytes: &[u8]) -> Result<Frame, FrameError> {
    let (_, frame) = Frame::parse_virtio(bytes, bytes.len())?;
    let ethernet = &bytes[12..];
    assert_eq!(frame.len as usize, ethernet.len());
    assert!(!frame.source.is_group());
    let first = &ethernet[..ethernet.len().min(Frame::LOOK_AHEAD)];
    match Frame::parse(first, ethernet.len()) {
        Ok(same) => assert_eq!(same, frame),
        Err(error) => {
            assert_eq!(error.reason(), "truncated");
            assert!(ethernet.len() > Frame::LOOK_AHEAD);
        }
    }
    if let Some(ip) = frame.ip() {
        let end = usize::from(ip.transport_offset) + usize::from(ip.transport_len);
        assert!(usize::from(frame.network_offset) < usize::from(ip.transport_offset));
        assert!(end <= ethernet.len(), "the packet ends at {end} of {}", ethernet.len());
        let needed = match ip.transport {
            Transport::Tcp(tcp) => usize::from(tcp.header_len),
            Transport::Udp(_) | Transport::Icmp(_) => 8,
            Transport::LaterFragment | Transport::Other => 0,
        };
        assert!(needed <= usize::from(ip.transport_len), "the header lies in the packet");
        let later = ip.fragment.is_some_and(|fragment| fragment.is_later());
        assert_eq!(later, ip.transport == Transport::LaterFragment);
    }
    Ok(frame)
}
