//! Requests, responses, and the components of their durations.

use weft_units::Duration;

use super::network::{Network, config};
use crate::*;

/// Answers every request received by a host with its reversed body.
fn answer(network: &mut Network, host: usize) {
    let now = network.now;
    for (channel, call, mut body) in network.take_messages(host) {
        let CallRole::Request(id) = call else { continue };
        body.reverse();
        let context = &mut network.hosts[host].context;
        context.respond(now, channel, id, Payload::Copy(&body)).unwrap();
    }
}

#[test]
fn every_request_gets_its_own_answer() {
    let (mut network, a, b) = Network::pair(&config());
    let mut asked = alloc::collections::BTreeMap::new();
    for number in 0..200_u32 {
        let len = if number % 10 == 0 { 20_000 } else { 8 };
        let mut body = alloc::vec![0; len];
        body[..4].copy_from_slice(&number.to_be_bytes());
        let context = &mut network.hosts[0].context;
        let id = context.request(network.now, a, Payload::Copy(&body)).unwrap();
        body.reverse();
        asked.insert(id, body);
    }
    network.run_until(|network| {
        answer(network, 1);
        for (_, call, body) in network.take_messages(0) {
            let CallRole::Response(id) = call else { panic!("{call:?}") };
            assert_eq!(asked.remove(&id), Some(body));
        }
        asked.is_empty()
    });
    let context = &mut network.hosts[1].context;
    let error = context.respond(network.now, b, 1, Payload::Copy(b"again")).unwrap_err();
    assert_eq!(error, SendError::NoRequest { id: 1 });
    network.check_no_leaks();
}

#[test]
fn a_traced_call_reports_its_components() {
    let traced = Config { trace_every: 1, ..config() };
    let (mut network, a, _) = Network::pair(&traced);
    // The first calls wait for the queue pairs' connections; later ones determine the clock offset.
    let mut id = 0;
    for _ in 0..20 {
        let context = &mut network.hosts[0].context;
        id = context.request(network.now, a, Payload::Copy(b"what time is it?")).unwrap();
        network.run_until(|network| {
            answer(network, 1);
            !network.take_messages(0).is_empty()
        });
    }
    network.hosts[0].events.clear();
    let context = &mut network.hosts[0].context;
    id += context.request(network.now, a, Payload::Copy(b"how long?")).unwrap() - id;
    let came = |network: &Network| {
        network.hosts[1].events.iter().any(|event| matches!(event, Event::Message { .. }))
    };
    network.run_until(|network| came(network));
    network.run_for(Duration::from_millis(3));
    answer(&mut network, 1);
    let mut time = None;
    network.run_until(|network| {
        time = network.hosts[0].events.iter().find_map(|event| match event {
            Event::Traced { id: of, time, .. } if *of == id => Some(*time),
            _ => None,
        });
        time.is_some()
    });
    let time = time.unwrap();
    assert!((3.0..3.1).contains(&(time.peer.as_micros_f64() / 1000.0)), "{time:?}");
    for way in [time.request, time.response] {
        assert!((5.0..60.0).contains(&way.as_micros_f64()), "{time:?}");
    }
    assert!(time.offset.abs() < 10_000, "one clock, ways that differ by the jitter: {time:?}");
    let context = &network.hosts[0].context;
    let traced = context.traced();
    let peers: u32 = traced.peer.counts().iter().sum();
    assert!(peers > 0 && traced.peer.sum() >= time.peer, "{traced:?}");
    assert_eq!(context.clock(network.now, a).unwrap().offset, time.offset);
    assert_eq!(context.clock(network.now + Duration::from_secs(200), a), None, "too old");
    network.check_no_leaks();
}

#[test]
fn tracing_counts_requests_whatever_is_sent_between_them() {
    let half = Config { trace_every: 2, ..config() };
    for one_way_first in [true, false] {
        let (mut network, a, _) = Network::pair(&half);
        for _ in 0..20 {
            if one_way_first {
                network.send(0, a, b"between");
            }
            let context = &mut network.hosts[0].context;
            context.request(network.now, a, Payload::Copy(b"?")).unwrap();
            if !one_way_first {
                network.send(0, a, b"between");
            }
            network.run_until(|network| {
                answer(network, 1);
                !network.take_messages(0).is_empty()
            });
        }
        let events = &network.hosts[0].events;
        let traced = events.iter().filter(|event| matches!(event, Event::Traced { .. })).count();
        assert_eq!(traced, 10, "of 20 requests");
        network.take_messages(1);
        network.check_no_leaks();
    }
}

#[test]
fn slow_calls_and_slow_owners_are_reported() {
    let quick = Config {
        slow_threshold: Duration::from_millis(1),
        polling_warn: Duration::from_millis(2),
        ..config()
    };
    let (mut network, a, _) = Network::pair(&quick);
    network.run_for(Duration::from_millis(1));
    let context = &mut network.hosts[0].context;
    let id = context.request(network.now, a, Payload::Copy(b"?")).unwrap();
    network.hosts[1].stuck = true;
    network.run_for(Duration::from_millis(5));
    network.hosts[1].stuck = false;
    network.run_until(|network| {
        answer(network, 1);
        network.hosts[0].context.stats().slow_calls > 0
    });
    let slow = |event: &Event| matches!(event, Event::Slow(Slow::Call { id: of, .. }) if *of == id);
    assert!(network.hosts[0].events.iter().any(slow));
    let gap = |event: &Event| matches!(event, Event::Slow(Slow::Poll { .. }));
    assert!(network.hosts[1].events.iter().any(gap));
    network.take_messages(0);
    network.check_no_leaks();
}

#[test]
fn an_owner_that_answers_nothing_blocks_its_peer_within_a_limit() {
    let config = Config { unanswered: 20, backlog: 1000, ..config() };
    let (mut network, a, b) = Network::pair(&config);
    for _ in 0..200 {
        network.hosts[0].context.request(network.now, a, Payload::Copy(b"why")).unwrap();
    }
    network.run_for(Duration::from_millis(100));
    let asked = |network: &mut Network| -> Vec<u64> {
        let messages = network.take_messages(1).into_iter();
        messages.filter_map(|(_, call, _)| call.request()).collect()
    };
    let mut ids = asked(&mut network);
    let status = network.hosts[1].context.status(b).unwrap();
    assert!(ids.len() <= 20 + usize::from(config.depth), "{} requests", ids.len());
    assert_eq!(status.to_answer as usize, ids.len());
    let reported = |event: &Event| matches!(event, Event::Slow(Slow::Answers { waiting: 21, .. }));
    assert_eq!(network.hosts[1].events.iter().filter(|event| reported(event)).count(), 1);
    // After responses or declined requests, the remaining requests arrive.
    let mut finished = 0;
    network.run_until(|network| {
        ids.extend(asked(network));
        for id in core::mem::take(&mut ids) {
            let (now, context) = (network.now, &mut network.hosts[1].context);
            if finished % 2 == 0 {
                context.decline(now, b, id);
            } else {
                context.respond(now, b, id, Payload::Copy(b"because")).unwrap();
            }
            finished += 1;
        }
        finished == 200
    });
    assert_eq!(network.closed(0, a), None);
    network.run_for(Duration::from_millis(5));
    assert_eq!(network.take_messages(0).len(), 100);
    network.check_no_leaks();
}
