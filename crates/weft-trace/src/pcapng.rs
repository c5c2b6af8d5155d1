//! The writer of packet captures in Wireshark's own format (draft-ietf-opsawg-pcapng): one section,
//! its interfaces, and packets with times in nanoseconds. Only the necessary blocks and options are
//! written, in network byte order, so that a capture is the same bytes on every machine.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_HARDWARE: u16 = 2;
const OPTION_APPLICATION: u16 = 4;
const OPTION_FLAGS: u16 = 2;

/// The first header of an interface's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header.
    Raw,
}

/// The direction of a packet, seen from its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The interface received the packet.
    In,
    /// The interface sent the packet.
    Out,
}

/// The number of an interface in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceId(u32);

/// One captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The interface that captured the packet.
    pub interface: InterfaceId,
    /// Capture time in nanoseconds since 1970, or since the start of the simulation.
    pub time_ns: u64,
    /// The packet's direction.
    pub direction: Direction,
    /// The captured bytes, headers first, as slices to be concatenated.
    pub bytes: &'a [&'a [u8]],
    /// Length of the whole packet in bytes, which may exceed the captured bytes.
    pub length: usize,
}

/// A writer of one capture.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    interfaces: u32,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a capture. `source` names the origin of the packets.
    ///
    /// # Errors
    /// Returns the error of `out`.
    pub fn new(out: W, source: &str) -> io::Result<Self> {
        let mut writer = Self { out, interfaces: 0, block: Vec::with_capacity(2048) };
        let block = writer.begin();
        block.extend(BYTE_ORDER.to_be_bytes());
        // Version 1.0; the section's length is not known.
        block.extend([0, 1, 0, 0]);
        block.extend(u64::MAX.to_be_bytes());
        option(block, OPTION_HARDWARE, source.as_bytes());
        option(block, OPTION_APPLICATION, concat!("weft ", env!("CARGO_PKG_VERSION")).as_bytes());
        writer.end(SECTION_HEADER)?;
        Ok(writer)
    }

    /// Adds an interface with snap length `snap` in bytes; zero means unlimited.
    ///
    /// # Errors
    /// Returns the file's error.
    pub fn interface(&mut self, name: &str, link: LinkType, snap: u32) -> io::Result<InterfaceId> {
        let number: u16 = match link {
            LinkType::Ethernet => 1,
            LinkType::Raw => 101,
        };
        let block = self.begin();
        block.extend(number.to_be_bytes());
        block.extend([0, 0]);
        block.extend(snap.to_be_bytes());
        option(block, OPTION_NAME, name.as_bytes());
        option(block, OPTION_TIME_RESOLUTION, &[9]);
        self.end(INTERFACE)?;
        self.interfaces += 1;
        Ok(InterfaceId(self.interfaces - 1))
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// Returns the file's error; the capture then ends before this packet.
    pub fn packet(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.packet_with(record, "")
    }

    /// Adds a packet with a comment.
    ///
    /// # Errors
    /// Returns the file's error, as [`packet`](Self::packet) does.
    pub fn packet_with(&mut self, record: &Record<'_>, comment: &str) -> io::Result<()> {
        let captured = record.bytes.iter().map(|piece| piece.len()).sum::<usize>();
        let block = self.begin();
        block.extend(record.interface.0.to_be_bytes());
        block.extend(record.time_ns.to_be_bytes());
        block.extend(length(captured));
        block.extend(length(record.length));
        record.bytes.iter().for_each(|piece| block.extend(*piece));
        pad(block, captured);
        let flags: u32 = match record.direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        if !comment.is_empty() {
            option(block, OPTION_COMMENT, comment.as_bytes());
        }
        option(block, OPTION_FLAGS, &flags.to_be_bytes());
        self.end(ENHANCED_PACKET)
    }

    /// Flushes the file.
    ///
    /// # Errors
    /// Returns the file's error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn begin(&mut self) -> &mut Vec<u8> {
        self.block.clear();
        // Room for type and length, which `end` fills in.
        self.block.extend([0; 8]);
        &mut self.block
    }

    /// Writes the block in one call: readers accept a truncated file up to its last whole packet.
    fn end(&mut self, kind: u32) -> io::Result<()> {
        // The option opt_endofopt.
        self.block.extend([0; 4]);
        let total = length(self.block.len() + 4);
        self.block[..4].copy_from_slice(&kind.to_be_bytes());
        self.block[4..8].copy_from_slice(&total);
        self.block.extend(total);
        self.out.write_all(&self.block)
    }
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("a packet is shorter than 4 GiB").to_be_bytes()
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A longer value is truncated to the longest that an option can hold.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    block.extend(code.to_be_bytes());
    block.extend(u16::try_from(value.len()).expect("truncated above").to_be_bytes());
    block.extend(value);
    pad(block, value.len());
}

fn pad(block: &mut Vec<u8>, length: usize) {
    block.extend(&[0; 3][..length.next_multiple_of(4) - length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Vec<u32> {
        assert_eq!(bytes.len() % 4, 0, "blocks are made of words");
        bytes.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
    }

    /// Returns each block's type and contents.
    fn blocks(file: &[u8]) -> Vec<(u32, Vec<u32>)> {
        let (words, mut blocks) = (words(file), Vec::new());
        let mut rest = words.as_slice();
        while let [kind, length, ..] = *rest {
            let (block, after) = rest.split_at(length as usize / 4);
            assert_eq!(block.last(), Some(&length), "a block begins and ends with its length");
            blocks.push((kind, block[2..block.len() - 1].to_vec()));
            rest = after;
        }
        blocks
    }

    #[test]
    fn a_packet_is_written_as_the_draft_has_it() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, "a test").unwrap();
        let interface = writer.interface("h0", LinkType::Raw, 64).unwrap();
        let bytes: &[&[u8]] = &[&[1, 2, 3, 4], &[5]];
        let time_ns = (7 << 32) + 9;
        let record = Record { interface, time_ns, direction: Direction::Out, bytes, length: 900 };
        writer.packet(&record).unwrap();
        writer.flush().unwrap();

        let blocks = blocks(&file);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE, ENHANCED_PACKET]);
        assert_eq!(blocks[0].1[..2], [BYTE_ORDER, 0x0001_0000]);
        // LINKTYPE_RAW, the snap length; name "h0", resolution 10^-9, the end.
        let h0 = u32::from_be_bytes(*b"h0\0\0");
        assert_eq!(blocks[1].1, [101 << 16, 64, 0x0002_0002, h0, 0x0009_0001, 9 << 24, 0]);
        // Interface, time, 5 of 900 bytes, padded; flags: outbound; the end.
        let packet = [0, 7, 9, 5, 900, 0x0102_0304, 0x0500_0000, 0x0002_0004, 2, 0];
        assert_eq!(blocks[2].1, packet);
    }

    #[test]
    fn a_full_disk_is_an_error() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut writer = Writer::new(Full(120), "a test").unwrap();
        let error =
            writer.interface("an interface with a long name", LinkType::Raw, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
