//! The gateway of a tenant's network: the router between its subnets.
//!
//! Every host is the gateway, at the same Ethernet address, so that a packet takes no detour: the sender's host
//! finds the machine of the next hop and writes its address into the frame when the frame leaves. Tenants see a router
//! (RFC 1812): packets come from its address, with the hop limit one lower.

use core::net::IpAddr;

use weft_wire::{EtherType, EthernetHeader, MacAddr};

/// The Ethernet address of every gateway, administered locally.
pub const GATEWAY: MacAddr = MacAddr([0x02, 0x77, 0x65, 0x66, 0x74, 0x01]);

/// The next hop of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// The machine with the packet's own destination address: the prefix is a subnet of this network.
    Direct,
    /// The machine with this address, whatever the packet's destination.
    Via(IpAddr),
}

/// Forwards a frame for the gateway to the machine `to`: rewrites `ethernet`, the frame's beginning with the whole
/// IP header. Any other frame stays unchanged.
pub fn forward(ethernet: &mut [u8], to: MacAddr) {
    let Some((header, packet)) = ethernet.split_first_chunk_mut::<{ EthernetHeader::LEN }>() else {
        return;
    };
    if header[..6] != GATEWAY.0 {
        return;
    }
    header[..6].copy_from_slice(&to.0);
    header[6..12].copy_from_slice(&GATEWAY.0);
    match EtherType(u16::from_be_bytes([header[12], header[13]])) {
        EtherType::IPV4 => {
            let Some([.., hop_limit, _, c0, c1]) = packet.first_chunk_mut::<12>() else { return };
            *hop_limit = hop_limit.wrapping_sub(1);
            // The sum of the header's words is 0x0100 less, so its complement is that much more (RFC 1141).
            let (sum, carried) = u16::from_be_bytes([*c0, *c1]).overflowing_add(0x0100);
            [*c0, *c1] = (sum + u16::from(carried)).to_be_bytes();
        }
        EtherType::IPV6 => {
            if let Some(hop_limit) = packet.get_mut(7) {
                *hop_limit = hop_limit.wrapping_sub(1);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{ALICE, BOB, between, parsed, syn, v4, v4_packet, v6_packet};
    use crate::offload::verify;

    /// Returns a packet of each version with this hop limit, before and after the gateway.
    fn forwarded(hop_limit: u8, identification: u16) -> [(Vec<u8>, Vec<u8>); 2] {
        const EXPERIMENT: u8 = 253;
        let mut header = v4([10, 0, 0, 1].into(), [10, 1, 0, 2].into(), EXPERIMENT, 3);
        (header.ttl, header.identification) = (hop_limit, identification);
        let (one, two) = ("2001:db8::1".parse().unwrap(), "2001:db8:1::2".parse().unwrap());
        let mut v6 = v6_packet(one, two, EXPERIMENT, &[1, 2, 3]);
        v6[7] = hop_limit;
        let frames = [(EtherType::IPV4, v4_packet(header, &[1, 2, 3])), (EtherType::IPV6, v6)];
        frames.map(|(ethertype, packet)| {
            let before = between(ALICE, GATEWAY, ethertype, &packet);
            let mut after = before.clone();
            forward(&mut after, BOB);
            (before, after)
        })
    }

    #[test]
    fn the_gateway_forwards_a_packet_with_one_hop_less() {
        for hop_limit in [2, 64, 255] {
            // Checksums of all kinds, also with a carry.
            for identification in (0..=u16::MAX).step_by(97) {
                for (before, after) in forwarded(hop_limit, identification) {
                    let (was, is) = (parsed(&before), parsed(&after));
                    assert_eq!((is.source, is.destination), (GATEWAY, BOB));
                    let (was, is) = (was.ip().unwrap(), is.ip().unwrap());
                    assert_eq!((is.hop_limit, is.source), (hop_limit - 1, was.source));
                    verify(&after, &parsed(&after)).unwrap();
                }
            }
        }
    }

    #[test]
    fn frames_that_are_not_for_the_gateway_stay_unchanged() {
        let [v4, v6] = syn();
        for bytes in [v4, v6, between(BOB, MacAddr::BROADCAST, EtherType::ARP, &[0; 28])] {
            let mut after = bytes.clone();
            forward(&mut after, ALICE);
            assert_eq!(after, bytes);
        }
        // A truncated frame causes no panic.
        let whole = between(BOB, GATEWAY, EtherType::IPV4, &[0x45; 20]);
        for len in 0..whole.len() {
            forward(&mut whole[..len].to_vec(), ALICE);
        }
    }
}
