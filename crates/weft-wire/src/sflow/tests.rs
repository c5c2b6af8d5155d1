use core::net::{IpAddr, Ipv6Addr};
use std::vec::Vec;

use super::*;
use crate::Ecn;

/// Returns a datagram assembled by hand from the standard's XDR: an IPv4 agent, one expanded flow sample with
/// an extended-router record before the raw header, one sample of another enterprise, one counter sample with a
/// record of another enterprise and one of the queues' marks.
fn by_hand() -> Vec<u8> {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut frame = [0; 42];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    // IPv4, CE, UDP, 10.1.0.2 to 10.2.0.2, ports 50000 and 4791.
    frame[14..16].copy_from_slice(&[0x45, 0x03]);
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 1, 0, 2, 10, 2, 0, 2]);
    frame[34..38].copy_from_slice(&[0xc3, 0x50, 0x12, 0xb7]);
    let raw = [words(&[1, 60, ETHERNET, 1518, 4, 42]), frame.to_vec(), vec![0; 2]].concat();
    let router = words(&[1002, 16, 1, 0x0a00_0001, 24, 24]);
    let flow = [words(&[7, 0, 3, 400, 8000, 2, 0, 3, 0, 0, 2]), router, raw].concat();
    let mut counters = words(&[9, 5, 3, 1, 88, 5, 6]);
    counters.extend_from_slice(&100_000_000_000_u64.to_be_bytes());
    counters.extend_from_slice(&words(&[
        1, 3, 0, 1_000_000, 1, 2, 3, 4, 5, 6, 1, 2, 7, 8, 9, 10, 11, 0,
    ]));
    counters.extend_from_slice(&words(&[4413 << 12 | 1, 8, 77, 78]));
    counters.extend_from_slice(&words(&[0xffff_f001, 4, 0x8000_0003]));
    let sample = |format: u32, body: &[u8]| {
        [words(&[format, u32::try_from(body.len()).unwrap()]), body.to_vec()].concat()
    };
    [
        words(&[5, 1, 0x0a00_0009, 1, 77, 60_000, 3]),
        sample(3, &flow),
        sample(4413 << 12 | 1, &[0; 4]),
        sample(2, &counters),
    ]
    .concat()
}

#[test]
fn a_datagram_assembled_by_hand_is_parsed() {
    let bytes = by_hand();
    let datagram = Datagram::parse(&bytes).unwrap();
    assert_eq!(datagram.agent, IpAddr::from([10, 0, 0, 9]));
    assert_eq!((datagram.sub_agent, datagram.sequence, datagram.uptime_ms), (1, 77, 60_000));
    let samples: Vec<Sample<'_>> = datagram.samples.map(Result::unwrap).collect();
    let [
        Sample::Flow(flow),
        Sample::Other { enterprise: 4413, format: 1 },
        Sample::Counters(counters),
    ] = samples[..]
    else {
        panic!("{samples:?}");
    };
    assert_eq!((flow.sequence, flow.source), (7, Source::interface(3)));
    assert_eq!((flow.rate, flow.pool, flow.drops), (400, 8000, 2));
    assert_eq!((flow.input, flow.output), (Interface::Index(3), Interface::Unknown));
    let header = flow.header.unwrap();
    assert_eq!((header.protocol, header.frame_len, header.stripped), (ETHERNET, 1518, 4));
    let packet = SampledPacket::parse(&header).unwrap();
    let ends: (IpAddr, IpAddr) = ([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
    assert_eq!((packet.source, packet.destination), ends);
    assert_eq!((packet.protocol, packet.ports), (17, (50_000, 4791)));
    assert_eq!(packet.ecn, Ecn::CongestionExperienced);
    let counted = counters.interface().unwrap().unwrap();
    assert_eq!((counted.index, counted.speed, counted.is_up()), (5, 100_000_000_000, true));
    assert_eq!((counted.in_octets, counted.in_unknown), (1_000_000, 6));
    assert_eq!((counted.out_octets, counted.out_errors), (0x1_0000_0002, 11));
    assert_eq!(counters.queue_marks(), Ok(Some(QueueMarks { marked: 0x8000_0003 })));
}

#[test]
fn marks_that_are_cut_short_are_refused_and_the_counters_before_them_are_read() {
    let mut bytes = by_hand();
    // The record of marks is the last one; its length is before its only word.
    let length_at = bytes.len() - 8;
    bytes[length_at..][..4].copy_from_slice(&2_u32.to_be_bytes());
    let Some(Ok(Sample::Counters(counters))) = Datagram::parse(&bytes).unwrap().samples.nth(2)
    else {
        panic!("no counters");
    };
    assert_eq!(counters.interface().unwrap().unwrap().index, 5);
    assert_eq!(counters.queue_marks(), Err(SflowError::Truncated { needed: 4, got: 2 }));
}

#[test]
fn written_samples_are_read_unchanged() {
    let counters =
        IfCounters { index: 4, out_octets: u64::MAX, promiscuous: 1, ..IfCounters::default() };
    let marks = Some(QueueMarks { marked: u32::MAX });
    for (length, agent, marks) in
        [(0, [10, 0, 0, 1].into(), None), (61, IpAddr::from(Ipv6Addr::LOCALHOST), marks)]
    {
        let bytes = vec![0xa5; length];
        let header = RawHeader { protocol: ETHERNET, frame_len: 9000, stripped: 0, bytes: &bytes };
        let sample = FlowSample {
            sequence: 1,
            source: Source { kind: 0, index: 0x00ff_ffff },
            rate: 16,
            pool: u32::MAX,
            drops: 3,
            input: Interface::Several(5),
            output: Interface::Dropped(256),
            header: (length > 0).then_some(header),
        };
        let mut buffer = [0; 300];
        let mut writer = DatagramWriter::new(&mut buffer, agent, 2, 3, 4);
        assert!(writer.flow(&sample));
        assert!(writer.counters(8, Source::interface(4), &counters, marks));
        assert_eq!(writer.samples(), 2);
        let length = writer.finish();
        let datagram = Datagram::parse(&buffer[..length]).unwrap();
        assert_eq!((datagram.agent, datagram.sequence), (agent, 3));
        let mut samples = datagram.samples;
        assert_eq!(samples.next(), Some(Ok(Sample::Flow(sample))));
        let Some(Ok(Sample::Counters(counted))) = samples.next() else { panic!("no counters") };
        assert_eq!((counted.sequence, counted.interface()), (8, Ok(Some(counters))));
        assert_eq!(counted.queue_marks(), Ok(marks));
        assert_eq!(samples.next(), None);
    }
}

#[test]
fn a_sample_that_does_not_fit_is_not_written() {
    let mut buffer = [0; 150];
    let mut writer = DatagramWriter::new(&mut buffer, [10, 0, 0, 1].into(), 0, 1, 0);
    assert!(writer.counters(1, Source::interface(1), &IfCounters::default(), None));
    assert!(!writer.counters(2, Source::interface(2), &IfCounters::default(), None));
    let length = writer.finish();
    assert_eq!(Datagram::parse(&buffer[..length]).unwrap().samples.count(), 1);
}

#[test]
fn samples_after_a_malformed_one_are_parsed() {
    let mut bytes = by_hand();
    // The flow sample's rate; the sample's body begins after the datagram's 28 bytes and its own 8.
    bytes[28 + 8 + 12..][..4].fill(0);
    let samples: Vec<_> = Datagram::parse(&bytes).unwrap().samples.collect();
    assert_eq!(samples[0], Err(SflowError::ZeroRate));
    assert!(matches!(samples[2], Ok(Sample::Counters(_))), "{samples:?}");
}

#[test]
fn other_bytes_than_sflow_5_are_refused_with_the_reason() {
    let bytes = by_hand();
    let parse = |bytes: &[u8]| Datagram::parse(bytes).unwrap_err();
    assert_eq!(parse(&[]), SflowError::Truncated { needed: 4, got: 0 });
    let other = [&[0, 0, 0, 4], &bytes[4..]].concat();
    assert_eq!(parse(&other), SflowError::WrongVersion { got: 4 });
    let unknown_address = [&bytes[..4], &[0, 0, 0, 9], &bytes[8..]].concat();
    assert_eq!(parse(&unknown_address), SflowError::UnknownAddressType { got: 9 });
    let too_many = [&bytes[..24], &[0xff; 4]].concat();
    assert_eq!(parse(&too_many), SflowError::TooMany { announced: u32::MAX, got: 0 });
    // A datagram truncated at any byte gives an error or fewer samples, never a panic.
    for length in 0..bytes.len() {
        let cut = Datagram::parse(&bytes[..length]);
        assert!(
            cut.is_err() || cut.unwrap().samples.any(|sample| sample.is_err()),
            "cut at {length}"
        );
    }
}

#[test]
fn a_packet_is_found_behind_vlan_tags_and_fragments_have_no_ports() {
    let ipv4 = |fragment: u16| {
        let mut bytes = [0; 24];
        bytes[0] = 0x45;
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[9] = 6;
        bytes[20..].copy_from_slice(&[0, 80, 1, 0]);
        bytes
    };
    let raw = |protocol, bytes: &[u8]| {
        SampledPacket::parse(&RawHeader { protocol, frame_len: 64, stripped: 0, bytes })
    };
    let tagged = |tags: &[u8]| [&[0; 12], tags, &[0x08, 0x00], &ipv4(0x4000)].concat();
    assert_eq!(raw(ETHERNET, &tagged(&[])).unwrap().ports, (80, 256));
    assert_eq!(
        raw(ETHERNET, &tagged(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2])).unwrap().ports,
        (80, 256)
    );
    assert_eq!(raw(ETHERNET, &tagged(&[0x86, 0xdd])), None);
    assert_eq!(raw(IPV4, &ipv4(0x2000)).unwrap().ports, (0, 0));
    assert_eq!(raw(IPV4, &ipv4(0)[..22]), None);
    assert_eq!(raw(IPV6, &ipv4(0)), None);
}

#[test]
fn an_ipv6_packet_is_found_behind_its_extensions() {
    let ipv6 = |next: u8, rest: &[u8]| {
        let mut bytes = vec![0; 40];
        // Traffic class 0xb3 (expedited forwarding's upper bits, CE), flow label 0x12345.
        bytes[..4].copy_from_slice(&[0x6b, 0x31, 0x23, 0x45]);
        bytes[6] = next;
        bytes[8..40].copy_from_slice(&[[0xfd; 16], [0xfe; 16]].concat());
        [&bytes, rest].concat()
    };
    let raw = |protocol, bytes: &[u8]| {
        SampledPacket::parse(&RawHeader { protocol, frame_len: 64, stripped: 0, bytes })
    };
    let ports = [0xc0, 0, 0x12, 0xb7];
    let plain = raw(IPV6, &ipv6(17, &ports)).unwrap();
    assert_eq!((plain.source, plain.destination), ([0xfd; 16].into(), [0xfe; 16].into()));
    assert_eq!((plain.protocol, plain.ports), (17, (49_152, 4791)));
    assert_eq!((plain.flow_label, plain.ecn), (0x12345, Ecn::CongestionExperienced));
    let frame = [&[0; 12], &[0x86, 0xdd][..], &ipv6(17, &ports)].concat();
    assert_eq!(raw(ETHERNET, &frame), Some(plain));
    // Hop-by-hop options of 8 bytes, destination options of 16, then UDP.
    let behind = [&[60, 0, 0, 0, 0, 0, 0, 0][..], &[17, 1], &[0; 14], &ports].concat();
    assert_eq!(raw(IPV6, &ipv6(0, &behind)), Some(plain));
    let fragment = [&[17, 0, 0, 1, 0, 0, 0, 0][..], &ports].concat();
    let fragment = raw(IPV6, &ipv6(44, &fragment)).unwrap();
    assert_eq!((fragment.protocol, fragment.ports), (17, (0, 0)));
    // A packet truncated at any byte before the end of the ports gives `None`.
    let whole = ipv6(0, &behind);
    (0..whole.len()).for_each(|length| assert_eq!(raw(IPV6, &whole[..length]), None));
}
