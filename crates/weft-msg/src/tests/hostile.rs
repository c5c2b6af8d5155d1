//! A peer with correct verbs that violates every protocol above them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use weft_units::{Duration, Seed};
use weft_wire::{ChannelOffer, FrameHeader, FrameKind, RemoteBody, SequenceWord, U24};

use super::network::{Network, config};
use crate::verbs::{Verbs, Work};
use crate::*;

/// Makes a host SEND arbitrary bytes with arbitrary immediate data.
fn forge(network: &mut Network, host: usize, channel: ChannelId, word: SequenceWord, bytes: &[u8]) {
    let context = &mut network.hosts[host].context;
    let qp = context.qp_of(channel);
    let block = context.allocate(u32::try_from(bytes.len().max(1)).unwrap()).unwrap();
    context.bytes_mut(&block)[..bytes.len()].copy_from_slice(bytes);
    let slice = Slice { len: u32::try_from(bytes.len()).unwrap(), ..block.slice() };
    let work = Work::Send { from: &[slice], immediate: word.immediate() };
    context.verbs_mut().post_send(network.now, qp, u64::MAX, work, false).unwrap();
    // The memory stays allocated until the context ends, because no completion reports that it was sent.
}

fn frame(kind: FrameKind, length: u32, rest: &[u8]) -> Vec<u8> {
    let header = FrameHeader { kind, call: CallRole::OneWay, known: 0, length, trace: None };
    let mut bytes = alloc::vec![0; FrameHeader::LEN];
    header.emit(&mut bytes);
    bytes.extend_from_slice(rest);
    bytes
}

#[test]
fn every_invalid_frame_is_named_and_ends_only_its_channel() {
    // The client's NOP was number 0; the server sent nothing.
    let word = |seq, ack| SequenceWord { seq, ack };
    let small = frame(FrameKind::Small, 3, b"abc");
    let mut remote = [0; RemoteBody::LEN];
    RemoteBody { address: 0x1234, rkey: 99 }.emit(&mut remote);
    let invalid_frames: [(SequenceWord, Vec<u8>, &str); 9] = [
        (word(1, 1), small.clone(), "acknowledges frame 1; 0 were sent"),
        (word(5, 0), small.clone(), "has number 5, expected 1"),
        (word(0, 0), small, "has number 0, expected 1"),
        (word(1, 0), frame(FrameKind::Small, 4, b"abc"), "says 4 bytes and has 3"),
        (word(1, 0), frame(FrameKind::Small, u32::MAX, b""), "of 4294967295 bytes"),
        (word(1, 0), alloc::vec![1; 5], "truncated"),
        (word(1, 0), alloc::vec![77; 16], "unknown frame kind 77"),
        (word(1, 0), frame(FrameKind::Large, 5000, &remote[1..]), "truncated"),
        (word(1, 0), frame(FrameKind::Switch, 0, b""), "never attached"),
    ];
    let mut network = Network::new(3, 1, &config());
    let (good, _) = network.connect(2, 1);
    for (word, bytes, want) in invalid_frames {
        let (a, b) = network.connect(0, 1);
        network.run_for(Duration::from_millis(1));
        forge(&mut network, 0, a, word, &bytes);
        network.run_until(|network| network.closed(1, b).is_some());
        let reason = network.closed(1, b).unwrap().to_string();
        assert!(reason.contains(want), "{reason:?} should say {want:?}");
        network.hosts[0].context.abort(network.now, a);
    }
    network.send(2, good, b"still here");
    network.run_until(|network| !network.take_messages(1).is_empty());
    let now = network.now;
    network.hosts[0].context.shut_down(now);
    network.hosts[0].events.clear();
    network.check_no_leaks();
}

/// Announces a message of 50,000 bytes from host 0, in memory that is not registered.
fn announce_unregistered(network: &mut Network, channel: ChannelId) {
    let mut remote = [0; RemoteBody::LEN];
    RemoteBody { address: 0x1234, rkey: 99 }.emit(&mut remote);
    let announcement = frame(FrameKind::Large, 50_000, &remote);
    forge(network, 0, channel, SequenceWord { seq: 1, ack: 0 }, &announcement);
}

#[test]
fn a_body_in_unregistered_memory_ends_its_channel() {
    let (mut network, a, b) = Network::pair(&config());
    network.run_for(Duration::from_millis(1));
    announce_unregistered(&mut network, a);
    network.run_until(|network| network.closed(1, b).is_some());
    // The sender's context resets its queue pair, often before the NAK is sent.
    assert!(matches!(network.closed(1, b), Some(CloseReason::PeerUnreachable(_))));
    assert_eq!(network.hosts[1].context.memory().used, 0);
}

#[test]
fn more_frames_than_the_window_break_only_the_senders_channel() {
    let mut network = Network::new(3, 1, &config());
    let (good, _) = network.connect(2, 1);
    let (a, b) = network.connect(0, 1);
    network.run_for(Duration::from_millis(1));
    network.hosts[1].stuck = true;
    let small = frame(FrameKind::Small, 3, b"abc");
    for seq in 1..40 {
        let word = SequenceWord { seq, ack: 0 };
        forge(&mut network, 0, a, word, &small);
    }
    network.run_for(Duration::from_millis(50));
    network.hosts[1].stuck = false;
    network.run_until(|network| network.closed(0, a).is_some() || network.closed(1, b).is_some());
    network.send(2, good, b"still here");
    network.run_until(|network| !network.take_messages(1).iter().all(|(id, ..)| *id == b));
}

/// Encodes a frame for a stream.
fn streamed(word: SequenceWord, frame: &[u8]) -> Vec<u8> {
    let len = u32::try_from(frame.len()).unwrap().to_be_bytes();
    [&len, &word.immediate().to_be_bytes(), frame].concat()
}

#[test]
fn a_retransmission_of_a_frame_never_sent_ends_its_channel() {
    let small = frame(FrameKind::Small, 3, b"abc");
    // One frame's number precedes the first number; the other frame is a retransmission although no queue pair broke.
    for (failed_over, seq) in [(true, 0x9000), (false, 0)] {
        let (mut network, _, b) = Network::pair(&config());
        network.run_for(Duration::from_millis(1));
        let now = network.now;
        let context = &mut network.hosts[1].context;
        context.attach_stream(b);
        if failed_over {
            context.handle_stream(now, b, &[0xff; 8]);
        } else {
            context.switch(now, b, Carrier::Stream).unwrap();
            let word = SequenceWord { seq: 1, ack: 0 };
            let a = network.hosts[0].context.channels().next().unwrap();
            forge(&mut network, 0, a, word, &frame(FrameKind::Switch, 0, b""));
            network.run_for(Duration::from_millis(1));
        }
        let now = network.now;
        let word = SequenceWord { seq, ack: 0 };
        network.hosts[1].context.handle_stream(now, b, &streamed(word, &small));
        network.run_for(Duration::from_micros(1));
        let reason = network.closed(1, b).expect("it ends").to_string();
        assert!(reason.contains("expected"), "{reason}");
    }
}

/// Carries the stream of host 0 to host 1, without the frame of this number, and the other way back whole.
fn carry_without(network: &mut Network, ends: [ChannelId; 2], lost: u16, input: &mut Vec<u8>) {
    let now = network.now;
    let mut buffer = alloc::vec![0; 1 << 20];
    let [one, other] = &mut network.hosts[..] else { unreachable!("a pair") };
    let len = other.context.poll_stream(ends[1], &mut buffer);
    if len > 0 {
        one.context.handle_stream(now, ends[0], &buffer[..len]);
    }
    let len = one.context.poll_stream(ends[0], &mut buffer);
    input.extend_from_slice(&buffer[..len]);
    while let Some((prefix, rest)) = input.split_first_chunk::<8>() {
        let number = |at: usize| u32::from_be_bytes(prefix[at..at + 4].try_into().unwrap());
        // A mark has no frame.
        let len = if number(0) == u32::MAX { 0 } else { number(0) as usize };
        if rest.len() < len {
            return;
        }
        let frame: Vec<u8> = input.drain(..8 + len).collect();
        let seq = SequenceWord::from_immediate(u32::from_be_bytes(frame[4..8].try_into().unwrap()));
        if len == 0 || seq.seq != lost {
            other.context.handle_stream(now, ends[1], &frame);
        }
    }
}

#[test]
fn a_large_message_that_is_not_retransmitted_ends_its_channel_at_the_way_back() {
    // The first is being read when the queue pair breaks, the ninth waits. Either end may begin the way back.
    let mut beginners = BTreeSet::new();
    for (seed, lost) in (0..6).flat_map(|seed| [(seed, 1), (seed, 9)]) {
        let config =
            Config { depth: 16, rdma_retry: Duration::from_millis(5), reads: 8, ..config() };
        let mut network = Network::new(2, seed, &config);
        let (a, b) = network.connect(0, 1);
        network.hosts[0].context.attach_stream(a);
        network.hosts[1].context.attach_stream(b);
        network.run_for(Duration::from_millis(2));
        network.hosts[1].stuck = true;
        for message in 1..10 {
            network.send(0, a, &[message; 5000]);
        }
        network.run_for(Duration::from_millis(1));
        network.no_rdma.insert(0);
        network.hosts[1].stuck = false;
        network.run_for(Duration::from_micros(1));
        let token = |host: usize, id| network.hosts[host].context.peer_token(id);
        beginners.insert(token(0, a) < token(1, b));
        let status = |network: &Network, host: usize, id| network.hosts[host].context.status(id);
        assert_eq!(status(&network, 1, b).unwrap().fetching, 9);
        let mut input = Vec::new();
        for _ in 0..20_000 {
            network.run_for(Duration::from_micros(100));
            carry_without(&mut network, [a, b], lost, &mut input);
            let Some(one) = status(&network, 0, a) else { break };
            let Some(other) = status(&network, 1, b) else { break };
            if [one.carrier, other.carrier] == [Carrier::Stream; 2] {
                network.no_rdma.clear();
            } else if network.no_rdma.is_empty() && one.carrier == Carrier::Rdma {
                let now = network.now;
                _ = network.hosts[0].context.send(now, a, Payload::Copy(&[77; 5000]));
            }
        }
        network.run_for(Duration::from_micros(1));
        for (_, _, body) in network.take_messages(1) {
            let is_defined = body[0] > 0 && body.iter().all(|&byte| byte == body[0]);
            assert!(is_defined, "seed {seed}: undefined bytes");
            assert_ne!(u16::from(body[0]), lost, "seed {seed}: it was lost");
        }
        let reason = network.closed(1, b).expect("it ends").to_string();
        assert!(reason.contains("a way back to RDMA before"), "seed {seed}: {reason}");
        let now = network.now;
        network.hosts[1].context.shut_down(now);
        assert_eq!(network.hosts[1].context.memory(), MemoryUse::default());
    }
    assert_eq!(beginners.len(), 2);
}

#[test]
fn a_retransmission_of_another_length_than_announced_ends_its_channel() {
    let (mut network, a, b) = Network::pair(&config());
    network.run_for(Duration::from_millis(1));
    announce_unregistered(&mut network, a);
    network.run_until(|network| network.hosts[1].context.status(b).unwrap().fetching == 1);
    let now = network.now;
    let context = &mut network.hosts[1].context;
    context.attach_stream(b);
    context.handle_stream(now, b, &[0xff; 8]);
    let small = frame(FrameKind::Small, 3, b"abc");
    context.handle_stream(now, b, &streamed(SequenceWord { seq: 1, ack: 0 }, &small));
    network.run_for(Duration::from_micros(1));
    let reason = network.closed(1, b).expect("it ends").to_string();
    assert!(reason.contains("says 50000 bytes and has 3"), "{reason}");
    assert_eq!(network.hosts[1].context.memory().used, 0);
}

#[test]
fn an_offer_on_the_stream_while_rdma_works_is_ignored() {
    let (mut network, a, b) = Network::pair(&config());
    network.run_for(Duration::from_millis(1));
    network.hosts[1].context.attach_stream(b);
    forge(&mut network, 0, a, SequenceWord { seq: 1, ack: 0 }, &frame(FrameKind::Switch, 0, b""));
    network.run_until(|network| {
        network.hosts[1].context.status(b).unwrap().carrier == Carrier::Stream
    });
    let offer = ChannelOffer {
        qp: U24::truncate(1),
        psn: U24::truncate(1),
        gid: core::net::Ipv6Addr::LOCALHOST,
        depth: 8,
        ack_frames: 4,
        small: 4096,
        longest: 1 << 20,
        token: 1,
        attempt: 1,
        shared: false,
    };
    let frames = [
        frame(FrameKind::Offer, u32::try_from(ChannelOffer::LEN).unwrap(), &offer.emit()),
        frame(FrameKind::Small, 3, b"abc"),
    ];
    for (frame, seq) in frames.iter().zip(2..) {
        let now = network.now;
        let bytes = streamed(SequenceWord { seq, ack: 0 }, frame);
        network.hosts[1].context.handle_stream(now, b, &bytes);
    }
    network.run_for(Duration::from_micros(1));
    assert_eq!(network.closed(1, b), None);
    assert_eq!(network.take_messages(1).len(), 1);
    assert_eq!(network.hosts[1].context.stats().qps_created, 1);
}

#[test]
fn a_frame_acknowledged_before_it_is_written_keeps_its_bytes() {
    let (mut network, _, b) = Network::pair(&config());
    network.run_for(Duration::from_millis(1));
    let now = network.now;
    let context = &mut network.hosts[1].context;
    context.attach_stream(b);
    context.handle_stream(now, b, &[0xff; 8]);
    context.send(now, b, Payload::Copy(&[7; 100_000])).unwrap();
    // The peer acknowledges the message, and its memory is freed.
    context.handle_stream(now, b, &streamed(SequenceWord { seq: 1, ack: 1 }, &[]));
    context.poll(now + context.config().memory_keep);
    let mut out = alloc::vec![0; 200_000];
    let len = context.poll_stream(b, &mut out);
    let sent = out[..len].iter().filter(|&&byte| byte == 7).count();
    assert!(sent >= 100_000, "{sent} of its bytes");
}

#[test]
fn bytes_of_any_kind_on_queue_pair_and_stream_never_panic() {
    for seed in 0..300 {
        let mut rng = Seed(seed).child("hostile", 0).rng();
        let mut network = Network::new(2, seed, &config());
        let (a, b) = network.connect(0, 1);
        network.run_for(Duration::from_millis(1));
        if rng.chance(1, 2) {
            network.hosts[1].context.attach_stream(b);
        }
        for at in 0..20_u16 {
            let len = rng.index(80);
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u32().to_be_bytes()[0]).collect();
            if rng.chance(3, 4) && len > FrameHeader::LEN {
                bytes[0] = 1 + rng.next_u32().to_be_bytes()[0] % 6;
                bytes[1] &= 0xe0;
                let rest = u32::try_from(len - FrameHeader::LEN).unwrap();
                bytes[4..8].copy_from_slice(&rest.to_be_bytes());
            }
            let guess = SequenceWord { seq: 1 + at, ack: u16::from(rng.chance(1, 9)) };
            if rng.chance(1, 3) {
                let mut framed = u32::try_from(len).unwrap().to_be_bytes().to_vec();
                if rng.chance(1, 10) {
                    framed.fill(0xff);
                }
                framed.extend_from_slice(&guess.immediate().to_be_bytes());
                framed.extend_from_slice(&bytes);
                let now = network.now;
                network.hosts[1].context.handle_stream(now, b, &framed);
            } else if network.closed(0, a).is_none() {
                forge(&mut network, 0, a, guess, &bytes);
            }
            network.run_for(Duration::from_micros(100));
            network.take_messages(1);
        }
        let now = network.now;
        network.hosts[1].context.shut_down(now);
        assert_eq!(network.hosts[1].context.memory(), MemoryUse::default());
    }
}
