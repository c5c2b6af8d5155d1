//! A reader of this project's captures: pcapng as [`weft_trace::pcapng`] writes it, with headers in network
//! order.

use std::path::Path;

use weft_trace::pcapng::Direction;

const ENHANCED_PACKET: u32 = 6;
const OPTION_FLAGS: u16 = 2;

/// A packet of a capture: its time, direction and first bytes.
pub(crate) struct Captured {
    pub(crate) at_ns: u64,
    pub(crate) direction: Direction,
    pub(crate) bytes: Vec<u8>,
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the packets of a file that were written whole.
pub(crate) fn read(file: &Path) -> Vec<Captured> {
    let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut packets = vec![];
    let mut rest = &bytes[..];
    while let (Some(kind), Some(len)) = (long(rest, 0), long(rest, 4)) {
        let Some((block, after)) = rest.split_at_checked(len as usize) else { break };
        if kind == ENHANCED_PACKET {
            packets.push(packet(&block[8..]).expect("a block that was written whole"));
        }
        rest = after;
    }
    packets
}

/// Parses a packet's block after its type and length.
fn packet(body: &[u8]) -> Option<Captured> {
    let at_ns = u64::from(long(body, 4)?) << 32 | u64::from(long(body, 8)?);
    let kept = long(body, 12)? as usize;
    let bytes = body.get(20..20 + kept)?.to_vec();
    let mut options = body.get(20 + kept.next_multiple_of(4)..)?;
    let mut direction = None;
    while let Some(head) = long(options, 0).filter(|&head| head >> 16 != 0) {
        let (code, len) = ((head >> 16) as u16, (head & 0xffff) as usize);
        if code == OPTION_FLAGS {
            let outward = long(options, 4)? & 3 == 2;
            direction = Some(if outward { Direction::Out } else { Direction::In });
        }
        options = options.get(4 + len.next_multiple_of(4)..)?;
    }
    Some(Captured { at_ns, direction: direction?, bytes })
}
