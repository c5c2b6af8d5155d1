//! Captures of a tenant's port for Wireshark: the first bytes of each frame, before the
//! tenant's frames are split and after those for the tenant are whole.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use weft_trace::pcapng::{Direction, InterfaceId, LinkType, Record, Writer};
use weft_udp::Clock;
use weft_vpc::{Frame, Slot};
use weft_wire::VirtioNetHeader;

/// An open capture file.
#[derive(Debug)]
pub(crate) struct Capture {
    file: PathBuf,
    writer: Writer<BufWriter<File>>,
    interface: InterfaceId,
    /// The lengths of frames that are arriving for the tenant.
    arriving: BTreeMap<Slot, u32>,
}

impl Capture {
    /// Creates the file, which must not exist: an older capture is not overwritten by mistake.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn create(file: &Path, port: &str) -> io::Result<Self> {
        let out = OpenOptions::new().write(true).create_new(true).open(file)?;
        let mut writer = Writer::new(BufWriter::new(out), "weft vpc")?;
        let snap = u32::try_from(Frame::MIN_PARSE_BYTES).expect("a few bytes");
        let interface = writer.interface(port, LinkType::Ethernet, snap)?;
        writer.flush()?;
        Ok(Self { file: file.into(), writer, interface, arriving: BTreeMap::new() })
    }

    /// Records that a frame of `len` bytes for the tenant is assembled in `slot`.
    pub(crate) fn start_frame(&mut self, slot: Slot, len: u32) {
        self.arriving.insert(slot, len);
    }

    /// Forgets a frame that is whole or dropped. Returns its length in bytes if its start was recorded.
    pub(crate) fn end_frame(&mut self, slot: Slot) -> Option<u32> {
        self.arriving.remove(&slot)
    }

    /// Writes a frame of `len` bytes, virtio-net header included, that begins with `head`,
    /// as the tenant sees it.
    ///
    /// # Errors
    /// The system's error, such as a full disk.
    pub(crate) fn record(&mut self, direction: Direction, head: &[u8], len: u32) -> io::Result<()> {
        let ethernet = head.get(VirtioNetHeader::LEN..).unwrap_or_default();
        let record = Record {
            interface: self.interface,
            time_ns: Clock.wall(),
            direction,
            bytes: &[ethernet],
            length: (len as usize).saturating_sub(VirtioNetHeader::LEN),
        };
        self.writer.packet(&record)
    }

    /// Writes the buffered records to the file.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}
