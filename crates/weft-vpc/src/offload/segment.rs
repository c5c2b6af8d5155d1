//! The cut of super-frames into frames in wire form, bit for bit as Linux's generic segmentation
//! does it (`tcp_gso_segment`, `__udp_gso_segment`, `inet_gso_segment`).

use core::ops::Range;

use weft_wire::GsoType;
use weft_wire::checksum::{Checksum, PseudoHeader};

use super::Segmentation;
use super::checksum::{never_zero, pseudo_header, put};
use crate::{Frame, TcpFlags};

/// An iterator over the frames of a super-frame.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    super_frame: &'a [u8],
    segmentation: Segmentation,
    pseudo: PseudoHeader,
    protocol: u8,
    network_offset: usize,
    transport_offset: usize,
    /// The offset of the next segment's payload; `None` after the last segment.
    next: Option<usize>,
}

/// One frame of a super-frame: the written headers, then a range of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Length of the headers, bytes.
    pub header_len: usize,
    /// The range of the super-frame that follows them.
    pub payload: Range<usize>,
}

impl<'a> Segments<'a> {
    /// Creates the segments of `super_frame`.
    ///
    /// # Panics
    /// If the bytes are not the parsed frame, or the segmentation was not
    /// [checked](super::Offload::check) against it.
    pub fn new(super_frame: &'a [u8], frame: &Frame, segmentation: Segmentation) -> Self {
        assert_eq!(super_frame.len(), frame.len as usize, "these are not the parsed frame's bytes");
        let ip = frame.ip().expect("a checked super-frame is a packet");
        let header_len = usize::from(segmentation.header_len);
        let payload_len = usize::from(segmentation.payload_len);
        assert_eq!(header_len + payload_len, super_frame.len(), "checked against another frame");
        Self {
            super_frame,
            segmentation,
            pseudo: pseudo_header(ip),
            protocol: ip.protocol,
            network_offset: usize::from(frame.network_offset),
            transport_offset: usize::from(ip.transport_offset),
            next: Some(header_len),
        }
    }

    /// Returns the length of the longest frame, bytes.
    pub fn longest(&self) -> usize {
        let Segmentation { header_len, size, payload_len, .. } = self.segmentation;
        usize::from(header_len) + usize::from(size.min(payload_len))
    }

    /// Writes the next frame over the start of `out`. Returns its length in bytes, `None` after the last one.
    ///
    /// # Panics
    /// If `out` is shorter than the [longest](Self::longest) frame.
    pub fn write_next(&mut self, out: &mut [u8]) -> Option<usize> {
        let Segment { header_len, payload } = self.write_next_headers(out)?;
        let payload = &self.super_frame[payload];
        out[header_len..header_len + payload.len()].copy_from_slice(payload);
        Some(header_len + payload.len())
    }

    /// Writes only the headers of the next frame over the start of `out`, for a caller that gathers the payload
    /// from the super-frame itself. Returns `None` after the last frame.
    ///
    /// # Panics
    /// If `out` is shorter than the headers.
    pub fn write_next_headers(&mut self, out: &mut [u8]) -> Option<Segment> {
        let start = self.next?;
        let Segmentation { kind, header_len, size, .. } = self.segmentation;
        let header_len = usize::from(header_len);
        let end = self.super_frame.len().min(start + usize::from(size));
        let last = end == self.super_frame.len();
        self.next = (!last).then_some(end);

        let headers = &mut out[..header_len];
        headers.copy_from_slice(&self.super_frame[..header_len]);
        self.write_network(headers, start - header_len, end - start);
        let transport = &mut headers[self.transport_offset..];
        let transport_len = transport.len() + end - start;
        let checksum_at = match kind {
            GsoType::Udp => {
                let len = u16::try_from(transport_len).expect("shorter than the super-frame");
                transport[4..6].copy_from_slice(&len.to_be_bytes());
                6
            }
            _ => {
                write_tcp(transport, start - header_len, last);
                16
            }
        };
        put(transport, checksum_at, 0);
        let len = u32::try_from(transport_len).expect("shorter than the super-frame");
        let sum = Checksum::new()
            .with_pseudo_header(self.pseudo, self.protocol, len)
            .with(transport)
            .with(&self.super_frame[start..end]);
        put(transport, checksum_at, never_zero(sum.finish()));
        Some(Segment { header_len, payload: start..end })
    }

    /// Writes the length, and for IPv4 the identification and the checksum. Each packet has an identification of
    /// its own, as its sender would have assigned it.
    fn write_network(&self, headers: &mut [u8], before: usize, payload_len: usize) {
        let packet_len = headers.len() - self.network_offset + payload_len;
        let index = before / usize::from(self.segmentation.size);
        let network = &mut headers[self.network_offset..self.transport_offset];
        let narrow = |len| u16::try_from(len).expect("shorter than the super-frame");
        match self.pseudo {
            PseudoHeader::V4 { .. } => {
                network[2..4].copy_from_slice(&narrow(packet_len).to_be_bytes());
                let first = u16::from_be_bytes([network[4], network[5]]);
                let identification = first.wrapping_add(narrow(index));
                network[4..6].copy_from_slice(&identification.to_be_bytes());
                put(network, 10, 0);
                let checksum = Checksum::new().with(network).finish();
                put(network, 10, checksum);
            }
            PseudoHeader::V6 { .. } => {
                network[4..6].copy_from_slice(&narrow(packet_len - 40).to_be_bytes());
            }
        }
    }
}

/// Adds the earlier segments' payload to the sequence number. Only the first segment keeps CWR
/// (RFC 3168, section 6.1.2), only the last FIN and PSH.
fn write_tcp(header: &mut [u8], before: usize, last: bool) {
    let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let before = u32::try_from(before).expect("shorter than the super-frame");
    header[4..8].copy_from_slice(&sequence.wrapping_add(before).to_be_bytes());
    let mut flags = TcpFlags(header[13]);
    if before > 0 {
        flags = flags.without(TcpFlags::CWR);
    }
    if !last {
        flags = flags.without(TcpFlags::FIN.with(TcpFlags::PSH));
    }
    header[13] = flags.0;
}

#[cfg(test)]
mod tests;
