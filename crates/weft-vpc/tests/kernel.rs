//! Super-frames cut here and by Linux have the same bytes. They enter a TAP, cross a bridge, and leave by
//! another TAP that takes no offload, so that the kernel cuts them and fills in their checksums.
#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "real interfaces live in real time")]

use std::time::{Duration, Instant};

use weft_units::{Rng, Seed};
use weft_vpc::offload::{Segments, complete};
use weft_vpc::{Frame, Offload, TcpFlags, protocol};
use weft_wire::{EtherType, GsoType, Ipv4Options, VirtioNetHeader};

// The frames of the unit tests.
#[path = "../src/example.rs"]
#[allow(dead_code, reason = "only some kinds of frame are needed here")]
mod example;
mod tap;

use example::{ALICE, ethernet, tcp_numbered, udp, v4, v4_packet, v6_packet};
use tap::{Tap, ip, leave_network};

/// The time limit for the kernel on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

fn two_taps_and_a_bridge() -> std::io::Result<[Tap; 2]> {
    leave_network()?;
    let taps = [Tap::open("from")?, Tap::open("to")?];
    ip("link add bridge type bridge mcast_snooping 0")?;
    for name in ["from", "to", "bridge"] {
        ip(&format!("link set {name} addrgenmode none"))?;
        if name != "bridge" {
            ip(&format!("link set {name} master bridge"))?;
        }
        ip(&format!("link set {name} up"))?;
    }
    Ok(taps)
}

fn bytes(len: usize, rng: &mut Rng) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64().to_le_bytes()[7]).collect()
}

/// Returns a frame from Alice with its virtio-net header.
fn super_frame(rng: &mut Rng) -> (VirtioNetHeader, Vec<u8>) {
    let datagrams = rng.chance(1, 3);
    let payload = bytes(rng.index(20_000), rng);
    let (protocol, segment) = match datagrams {
        true => (protocol::UDP, udp(5000, 53, &payload)),
        false => {
            // A super-frame has no SYN and no RST.
            let flags = TcpFlags(rng.next_u64().to_le_bytes()[0] & 0xf9);
            let numbers = (rng.next_u32(), rng.next_u32());
            let options = bytes(4 * rng.index(11), rng);
            (protocol::TCP, tcp_numbered((40_000, 80), flags, numbers, &options, &payload))
        }
    };
    let is_v4 = rng.chance(1, 2);
    let mut frame = match is_v4 {
        true => {
            let ends = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
            let mut header = v4(ends.0, ends.1, protocol, segment.len());
            header.identification = u16::try_from(rng.below(1 << 16)).unwrap();
            header.dont_fragment = rng.chance(1, 2);
            if rng.chance(1, 4) {
                header.options = Ipv4Options::new(&[1, 1, 1, 0]).unwrap();
            }
            ethernet(EtherType::IPV4, &v4_packet(header, &segment))
        }
        false => {
            let ends = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
            let packet = match rng.chance(1, 4) {
                // A destination options header of padding.
                true => v6_packet(
                    ends.0,
                    ends.1,
                    60,
                    &[&[protocol, 0, 1, 4, 0, 0, 0, 0], &segment[..]].concat(),
                ),
                false => v6_packet(ends.0, ends.1, protocol, &segment),
            };
            ethernet(EtherType::IPV6, &packet)
        }
    };
    if rng.chance(1, 4) {
        frame.splice(12..12, [0x81, 0, 0, 42]);
    }
    let parsed = Frame::parse(&frame, frame.len()).unwrap();
    let csum_start = parsed.ip().unwrap().transport_offset;
    let header_len = u16::try_from(frame.len() - payload.len()).unwrap();
    let min_size = u64::try_from(payload.len().div_ceil(128)).unwrap();
    let size = u16::try_from(min_size.max(100) + rng.below(1300)).unwrap();
    // The packet is as a guest sends it: whole if it fits, and with the pseudo header's sum.
    let cut = payload.len() > usize::from(size);
    let kind = match (datagrams, is_v4) {
        _ if !cut => GsoType::None,
        (true, _) => GsoType::Udp,
        (false, true) => GsoType::TcpV4,
        (false, false) => GsoType::TcpV6,
    };
    let header = VirtioNetHeader {
        needs_csum: true,
        gso_type: kind,
        hdr_len: if cut { header_len } else { 0 },
        gso_size: if cut { size.min(1448) } else { 0 },
        csum_start,
        csum_offset: if datagrams { 6 } else { 16 },
        ..VirtioNetHeader::default()
    };
    begin_checksum(&mut frame, &header);
    (header, frame)
}

/// Writes the sum of the pseudo header where a guest writes it: the part of the checksum that does not come from
/// the covered bytes.
fn begin_checksum(frame: &mut [u8], header: &VirtioNetHeader) {
    let parsed = Frame::parse(frame, frame.len()).unwrap();
    let ip = parsed.ip().unwrap();
    let (source, destination) = (ip.source, ip.destination);
    let pseudo = match (source, destination) {
        (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) => {
            weft_wire::checksum::PseudoHeader::V4 { source, destination }
        }
        (std::net::IpAddr::V6(source), std::net::IpAddr::V6(destination)) => {
            weft_wire::checksum::PseudoHeader::V6 { source, destination }
        }
        _ => unreachable!("a packet is of one version"),
    };
    let sum = weft_wire::checksum::Checksum::new().with_pseudo_header(
        pseudo,
        ip.protocol,
        ip.transport_len.into(),
    );
    let at = usize::from(header.csum_start + header.csum_offset);
    frame[at..at + 2].copy_from_slice(&(!sum.finish()).to_be_bytes());
}

/// Returns the frames that our code cuts a frame into.
fn cut_here(header: &VirtioNetHeader, frame: &[u8]) -> Vec<Vec<u8>> {
    let parsed = Frame::parse(frame, frame.len()).unwrap();
    let offload = Offload::check(header, &parsed).unwrap();
    let Some(segmentation) = offload.segmentation else {
        let mut whole = frame.to_vec();
        complete(&mut whole, offload.checksum.unwrap());
        return vec![whole];
    };
    let mut segments = Segments::new(frame, &parsed, segmentation);
    let mut out = vec![0; segments.longest()];
    std::iter::from_fn(|| segments.write_next(&mut out).map(|len| out[..len].to_vec())).collect()
}

/// Reads the next `count` frames from Alice.
fn read_from_alice(tap: &mut Tap, count: usize) -> Vec<Vec<u8>> {
    let (mut frames, deadline) = (Vec::new(), Instant::now() + TIMEOUT);
    while frames.len() < count && Instant::now() < deadline {
        match tap.read().unwrap() {
            Some(frame) if frame[18..24] == ALICE.0 => frames.push(frame),
            Some(_) => {}
            None => weft_testkit::pause(),
        }
    }
    frames
}

#[test]
fn linux_makes_the_same_segments() {
    let [mut from, mut to] = match two_taps_and_a_bridge() {
        Ok(taps) => taps,
        Err(error) => {
            let reason = format!("no TAP and bridge of one's own ({error}; run as root)");
            return weft_testkit::skip("segments of Linux", &reason);
        }
    };
    let mut cut = 0;
    for index in 0..300 {
        let mut rng = Seed(11).child("kernel", index).rng();
        let (header, frame) = super_frame(&mut rng);
        let own_segments = cut_here(&header, &frame);
        let mut bytes = vec![0; VirtioNetHeader::LEN];
        header.emit(&mut bytes);
        bytes.extend_from_slice(&frame);
        from.write(&bytes).unwrap_or_else(|error| panic!("{index}: {header:?}: {error}"));
        let kernel_segments = read_from_alice(&mut to, own_segments.len());
        assert_eq!(kernel_segments.len(), own_segments.len(), "{index}: {header:?}");
        for (number, (own, kernel)) in own_segments.iter().zip(&kernel_segments).enumerate() {
            let (left, bytes) = VirtioNetHeader::parse(kernel).unwrap();
            assert!(!left.needs_csum && left.gso_type == GsoType::None, "{left:?}");
            assert_eq!(bytes, own, "segment {number} of frame {index}: {header:?}");
        }
        cut += usize::from(own_segments.len() > 1);
    }
    assert!(cut > 100, "only {cut} frames were cut");
}
