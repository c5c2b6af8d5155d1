//! The resources that a node uses: descriptors and memory of every kind, and no additional memory while it does not
//! poll (X-RDMA, section VII.C). `rnr_retry` is 0: one SEND without a receive request would break its channel.

use std::io::{Read, Write};

use weft_units::Duration;
use weft_xrdma::{DeviceOptions, Node, Options, Pages, Payload};

use crate::end::{End, ask, close, connect, node, repetitions};
use crate::{alone, reasons};

const SENDERS: usize = 300;
const MESSAGES: usize = 100;

#[test]
fn a_receiver_that_stops_polling_loses_nothing_and_takes_no_more_memory() {
    let _alone = alone();
    let end = End::start(&[]);
    let mut node = node(&[""; 0]);
    let control = node.connect_and_wait(end.at).unwrap();
    let senders = connect(&mut node, &end, SENDERS);
    let before = ask(&mut node, control, "stop=1000");
    let messages = repetitions(MESSAGES);
    for number in 0..messages {
        for &channel in &senders {
            let now = node.now();
            let sent = node.context().send(now, channel, Payload::Copy(&number.to_be_bytes()));
            sent.unwrap_or_else(|error| panic!("{error}: {:?}", reasons(&mut node)));
        }
        node.poll();
    }
    let mut vitals = ask(&mut node, control, "");
    let most = vitals.most;
    while vitals.came < (SENDERS * messages) as u64 {
        assert_eq!(reasons(&mut node), []);
        vitals = ask(&mut node, control, "");
    }
    assert_eq!(vitals.came, (SENDERS * messages) as u64);
    // One more region is allowed, because the last one may be full.
    let allowed = before.registered + node.context().config().memory_region;
    assert!(most <= allowed, "{most} bytes registered, before {}", before.registered);
}

#[test]
fn channels_that_share_receive_requests_take_less_memory_and_lose_nothing() {
    let _alone = alone();
    const CHANNELS: usize = 50;
    let registered = ["srq=0", "srq=64"].map(|srq| {
        let parameters = [srq, "memory_region=64KiB"];
        let end = End::start(&parameters);
        let mut node = node(&parameters);
        let control = node.connect_and_wait(end.at).unwrap();
        let all = connect(&mut node, &end, CHANNELS);
        let idle = ask(&mut node, control, "").registered;
        let messages = repetitions(MESSAGES);
        for number in 0..messages {
            for &channel in &all {
                let now = node.now();
                let sent = node.context().send(now, channel, Payload::Copy(&number.to_be_bytes()));
                sent.unwrap_or_else(|error| panic!("{error}: {:?}", reasons(&mut node)));
            }
            node.poll();
        }
        while ask(&mut node, control, "").came < (CHANNELS * messages) as u64 {
            assert_eq!(reasons(&mut node), []);
        }
        idle
    });
    assert!(registered[1] * 10 < registered[0], "{registered:?} bytes");
}

#[test]
fn a_listener_without_descriptors_reports_it_pauses_and_accepts_channels_again() {
    let _alone = alone();
    let end = End::start(&[]);
    let mut node = node(&[""; 0]);
    let control = node.connect_and_wait(end.at).unwrap();
    ask(&mut node, control, "files=64");
    // Open silent connections until it has no descriptor for another.
    let mut idle = Vec::new();
    let mut vitals = ask(&mut node, control, "");
    while vitals.refused == 0 {
        idle.push(std::net::TcpStream::connect(end.at).unwrap());
        vitals = ask(&mut node, control, "");
    }
    assert!(idle.len() < 70, "{} connections", idle.len());
    let began = node.now();
    let mut last = vitals;
    while node.now().since(began) < Duration::from_millis(500) {
        last = ask(&mut node, control, "");
    }
    assert!(last.refused - vitals.refused <= 6, "it tries again every 100 ms: {last:?}");
    idle.clear();
    let another = node.connect_and_wait(end.at).expect("there are descriptors again");
    close(&mut node, &[another]);
}

/// The attacker: a host that connects and sends nothing, or only the beginning of a greeting.
#[test]
fn a_greeting_that_does_not_end_is_closed() {
    let _alone = alone();
    let end = End::start(&[]);
    let mut connections = [b"".as_slice(), b"C"].map(|begins| {
        let mut connection = std::net::TcpStream::connect(end.at).unwrap();
        connection.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        connection.write_all(begins).unwrap();
        connection
    });
    for connection in &mut connections {
        let closed = connection.read(&mut [0]).expect("it is closed within 5 s");
        assert_eq!(closed, 0, "it gets no answer");
    }
}

#[test]
fn messages_travel_in_memory_of_every_kind() {
    let _alone = alone();
    let end = End::start(&[]);
    for pages in [Pages::Anonymous, Pages::Huge, Pages::Malloc] {
        let device = DeviceOptions { pages, ..DeviceOptions::default() };
        let mut node = Node::new(Options { device, ..Options::default() }).unwrap();
        let channel = node.connect_and_wait(end.at).unwrap();
        for len in [10, 4096, 5_000_000] {
            let body = vec![b'a'; len];
            let answer = node.call(channel, Payload::Copy(&body), None).unwrap();
            assert_eq!(node.context().body(&answer), body, "{pages:?}");
            let now = node.now();
            node.context().release(now, answer);
        }
        close(&mut node, &[channel]);
    }
}
