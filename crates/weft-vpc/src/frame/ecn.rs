//! The ECN congestion mark in a tenant's packet (RFC 3168).

use core::ops::Range;

use weft_wire::{Ecn, EtherType, U2, checksum};

/// Lengths of an Ethernet header and of a tag (IEEE 802.1Q), bytes.
const ETHERNET: usize = 14;
const TAG: usize = 4;
/// Length of an IPv4 header without options, bytes, and the offset of its checksum.
const V4: usize = 20;
const V4_CHECKSUM: usize = 10;

/// Sets CE (congestion experienced) in the IPv4 or IPv6 packet of the frame that begins with `frame`, if the packet
/// is ECN-capable. Returns the range of changed bytes; `None` if nothing changed because the frame has another
/// protocol, is not ECN-capable, is marked already or is truncated.
pub(crate) fn mark(frame: &mut [u8]) -> Option<Range<usize>> {
    let tagged = frame.get(12..14)? == EtherType::VLAN.0.to_be_bytes();
    let ip = ETHERNET + if tagged { TAG } else { 0 };
    let kind = EtherType(u16::from_be_bytes(frame.get(ip - 2..ip)?.try_into().ok()?));
    match kind {
        EtherType::IPV4 => {
            let header = frame.get_mut(ip..ip + V4)?;
            let word = u16::from_be_bytes([header[0], header[1]]);
            header[1] = marked(header[1], 0)?;
            let new = u16::from_be_bytes([header[0], header[1]]);
            let old = u16::from_be_bytes([header[V4_CHECKSUM], header[V4_CHECKSUM + 1]]);
            let checksum = checksum::update(old, word, new).to_be_bytes();
            header[V4_CHECKSUM..V4_CHECKSUM + 2].copy_from_slice(&checksum);
            Some(ip..ip + V4)
        }
        EtherType::IPV6 => {
            // The traffic class spans the first two bytes; its low two bits are bits 4 and 5 of the second.
            let second = frame.get_mut(ip + 1)?;
            *second = marked(*second, 4)?;
            Some(ip + 1..ip + 2)
        }
        _ => None,
    }
}

/// Returns `byte` with CE in the two bits from `shift` on; `None` if they are Not-ECT or CE.
fn marked(byte: u8, shift: u8) -> Option<u8> {
    let ecn = Ecn::from_number(U2::truncate(u32::from(byte >> shift)));
    let capable = matches!(ecn, Ecn::Capable0 | Ecn::Capable1);
    capable.then_some(byte | 0b11 << shift)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use weft_wire::MacAddr;
    use weft_wire::checksum::Checksum;

    use super::*;
    use crate::example::{between, v4, v4_packet, v6_packet};
    use crate::protocol;

    fn ethernet(kind: EtherType, packet: &[u8]) -> Vec<u8> {
        let (from, to) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        between(from, to, kind, packet)
    }

    fn v4_frame(ecn: Ecn) -> Vec<u8> {
        let header = v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol::UDP, 8);
        ethernet(EtherType::IPV4, &v4_packet(weft_wire::Ipv4Header { ecn, ..header }, &[7; 8]))
    }

    #[test]
    fn an_ecn_capable_v4_packet_is_marked_and_its_checksum_holds() {
        for ecn in [Ecn::Capable0, Ecn::Capable1] {
            let mut frame = v4_frame(ecn);
            assert_eq!(mark(&mut frame), Some(14..34));
            assert_eq!(frame, v4_frame(Ecn::CongestionExperienced));
            assert_eq!(Checksum::new().with(&frame[14..34]).finish(), 0);
        }
    }

    #[test]
    fn frames_that_are_not_capable_marked_or_truncated_stay_unchanged() {
        for ecn in [Ecn::NotCapable, Ecn::CongestionExperienced] {
            let mut frame = v4_frame(ecn);
            assert_eq!((mark(&mut frame), frame), (None, v4_frame(ecn)));
        }
        let frame = v4_frame(Ecn::Capable0);
        for len in 0..34 {
            let mut cut = frame[..len].to_vec();
            assert_eq!(mark(&mut cut), None);
            assert_eq!(cut, frame[..len]);
        }
        assert_eq!(mark(&mut ethernet(EtherType::ARP, &[0xff; 28])), None);
    }

    #[test]
    fn a_v6_packet_and_one_behind_a_tag_are_marked() {
        let packet = v6_packet("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap(), 17, &[7; 8]);
        let mut frame = ethernet(EtherType::IPV6, &packet);
        assert_eq!(mark(&mut frame), None);
        frame[15] = 0x2a;
        assert_eq!((mark(&mut frame), frame[14], frame[15]), (Some(15..16), 0x60, 0x3a));

        let mut tagged = v4_frame(Ecn::Capable0);
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(mark(&mut tagged), Some(18..38));
        tagged.drain(12..16);
        assert_eq!(tagged, v4_frame(Ecn::CongestionExperienced));
    }
}
