//! What passes a tenant's port, written down for Wireshark: of each frame the first bytes, before the
//! tenant's frames are taken apart and after those for the tenant were put together.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use weft_agent::Clock;
use weft_trace::pcapng::{Direction, InterfaceId, LinkType, Record, Writer};
use weft_vpc::{Frame, Slot};
use weft_wire::VirtioNetHeader;

/// A capture that is being written.
#[derive(Debug)]
pub(crate) struct Capture {
    file: PathBuf,
    writer: Writer<BufWriter<File>>,
    interface: InterfaceId,
    /// Frames on their way to the tenant, and their lengths.
    arriving: BTreeMap<Slot, u32>,
}

impl Capture {
    /// Begins a file, which must not exist: a capture of yesterday is not overwritten by mistake.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn create(file: &Path, port: &str) -> io::Result<Self> {
        let out = OpenOptions::new().write(true).create_new(true).open(file)?;
        let mut writer = Writer::new(BufWriter::new(out), "weft vpc")?;
        let snap = u32::try_from(Frame::LOOK_AHEAD).expect("a few bytes");
        let interface = writer.interface(port, LinkType::Ethernet, snap)?;
        writer.flush()?;
        Ok(Self { file: file.into(), writer, interface, arriving: BTreeMap::new() })
    }

    /// A frame of `len` bytes for the tenant is gathered in `slot`.
    pub(crate) fn begins(&mut self, slot: Slot, len: u32) {
        self.arriving.insert(slot, len);
    }

    /// It is whole, or given up: its length, where its beginning was seen.
    pub(crate) fn ends(&mut self, slot: Slot) -> Option<u32> {
        self.arriving.remove(&slot)
    }

    /// Writes a frame of `len` bytes with its virtio-net header down, of which `head` is the beginning,
    /// as the tenant sees it.
    ///
    /// # Errors
    /// What the system says: the disk is full.
    pub(crate) fn note(&mut self, direction: Direction, head: &[u8], len: u32) -> io::Result<()> {
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

    /// # Errors
    /// What the system says.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}
