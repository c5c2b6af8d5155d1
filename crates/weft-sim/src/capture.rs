//! A capture of the packets that hosts sent and received, as a file for Wireshark: the bytes that the agent would have
//! put on a wire, without payloads, at simulated times.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;

use weft_topo::NodeId;
use weft_trace::Datagram;
use weft_trace::pcapng::{Direction, InterfaceId, LinkType, Record, Writer};
use weft_wire::{Ecn, Packet};

use crate::nic;
use crate::packet::{Hop, Integrity, PacketSlot};
use crate::time::SimTime;

/// TTL of packets that leave a host, as the agent's.
const HOP_LIMIT: u8 = 64;

/// One packet, as one host sent or received it.
#[derive(Clone, Copy, Debug)]
struct CapturedPacket {
    at: SimTime,
    host: NodeId,
    direction: Direction,
    to: SocketAddr,
    marked: bool,
    switches: u8,
    slot: PacketSlot,
}

/// The packets of a run, up to a number of them.
#[derive(Debug)]
pub struct Capture {
    packets: Vec<CapturedPacket>,
    limit: usize,
    skipped: u64,
}

impl Capture {
    /// Returns an empty capture. It keeps the first `limit` packets in memory, about 150 bytes each.
    pub fn new(limit: usize) -> Self {
        Self { packets: Vec::new(), limit, skipped: 0 }
    }

    /// Returns the number of packets kept.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns `true` if no packet was captured.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the number of packets that were not kept because the limit was reached.
    pub fn packets_skipped(&self) -> u64 {
        self.skipped
    }

    pub(crate) fn sent(&mut self, at: SimTime, host: NodeId, to: SocketAddr, slot: &PacketSlot) {
        let (direction, slot) = (Direction::Out, *slot);
        self.keep(CapturedPacket { at, host, direction, to, marked: false, switches: 0, slot });
    }

    pub(crate) fn received(&mut self, at: SimTime, hop: Hop, slot: &PacketSlot) {
        let marked = hop.ecn() == crate::packet::Ecn::CongestionExperienced;
        self.keep(CapturedPacket {
            at,
            host: hop.node(),
            direction: Direction::In,
            to: nic::address(hop.node()),
            marked,
            switches: hop.switches(),
            slot: *slot,
        });
    }

    fn keep(&mut self, packet: CapturedPacket) {
        if self.packets.len() < self.limit {
            self.packets.push(packet);
        } else {
            self.skipped += 1;
        }
    }

    /// Writes the file, in order of time; every host is an interface.
    ///
    /// # Errors
    /// An error of `out`.
    pub fn write(mut self, out: impl Write, scenario: &str) -> io::Result<()> {
        // Nodes are served one after another, so packets are not recorded in order of time.
        self.packets.sort_by_key(|packet| packet.at);
        let mut writer = Writer::new(out, &format!("simulation of {scenario}"))?;
        let mut interfaces = BTreeMap::new();
        for packet in &self.packets {
            let interface = match interfaces.get(&packet.host) {
                Some(&interface) => interface,
                None => {
                    let name = format!("h{}", packet.host.0);
                    let interface = writer.interface(&name, LinkType::Raw, 0)?;
                    interfaces.insert(packet.host, interface);
                    interface
                }
            };
            packet.write(&mut writer, interface)?;
        }
        writer.flush()
    }
}

impl CapturedPacket {
    fn write(&self, writer: &mut Writer<impl Write>, interface: InterfaceId) -> io::Result<()> {
        let PacketSlot { source, source_port, payload_len, integrity, ref packet } = self.slot;
        let headers = u16::try_from(packet.len()).expect("headers are short");
        let datagram = Datagram {
            source: nic::address_on(source, source_port),
            destination: self.to,
            ecn: if self.marked { Ecn::CongestionExperienced } else { Ecn::Capable0 },
            hop_limit: HOP_LIMIT.saturating_sub(self.switches),
            payload_len: headers + payload_len,
        };
        let mut bytes = [0; Datagram::MAX_LEN + Packet::MAX_LEN];
        let ip = datagram.emit(&mut bytes);
        let len = ip + packet.emit(&mut bytes[ip..]);
        let record = Record {
            interface,
            time_ns: self.at.as_picos() / 1000,
            direction: self.direction,
            bytes: &[&bytes[..len]],
            length: len + usize::from(payload_len),
        };
        let comment = match integrity {
            Integrity::Sound => "",
            Integrity::Trimmed(_) => "cut to its headers by a switch",
            Integrity::BadChecksum => "bits flipped on the way: the UDP checksum does not match",
            Integrity::Malformed => "bits flipped on the way, unnoticed: the headers do not parse",
        };
        writer.packet_with(&record, comment)
    }
}
