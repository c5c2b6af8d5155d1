//! Messages arrive complete and once, and free all resources.

use alloc::vec;
use alloc::vec::Vec;

use weft_units::Duration;

use super::network::{Network, config};
use crate::*;

#[test]
fn messages_of_every_length_arrive_once_both_ways() {
    let (mut network, a, b) = Network::pair(&config());
    let lens = [0, 1, 100, 4095, 4096, 4097, 65_536, 65_537, 1_000_000];
    let body = |len: usize, salt: usize| -> Vec<u8> {
        (0..len).map(|at| u8::try_from((at * 7 + salt) % 251).unwrap()).collect()
    };
    for &len in &lens {
        network.send(0, a, &body(len, 1));
        network.hosts[1].context.send(network.now, b, Payload::Copy(&body(len, 2))).unwrap();
    }
    let mut came = [vec![], vec![]];
    network.run_until(|network| {
        for (host, came) in came.iter_mut().enumerate() {
            came.extend(network.take_messages(host).into_iter().map(|(_, _, body)| body));
        }
        came.iter().all(|came| came.len() == lens.len())
    });
    for (came, salt) in came.iter_mut().zip([2, 1]) {
        // Messages that are fetched may be overtaken (section IV.D).
        came.sort_by_key(Vec::len);
        let want: Vec<_> = lens.iter().map(|&len| body(len, salt)).collect();
        assert_eq!(*came, want);
    }
    network.check_no_leaks();
}

#[test]
fn lent_memory_is_sent_without_a_copy_and_its_delivery_is_reported() {
    let (mut network, a, _) = Network::pair(&config());
    for len in [100, 4096, 300_000] {
        let context = &mut network.hosts[0].context;
        let block = context.allocate(len).unwrap();
        let used = context.memory().used;
        context.bytes_mut(&block)[..len as usize].fill(7);
        let lent = Slice { len, ..block.slice() };
        let number = context.send(network.now, a, Payload::Lent(lent)).unwrap();
        assert!(context.memory().used < used + 5000, "a frame's head at most");
        let delivered = Event::Delivered { channel: a, number };
        network.run_until(|network| network.hosts[0].events.contains(&delivered));
        let messages = network.take_messages(1);
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].2, vec![7; len as usize]);
        network.hosts[0].context.free(network.now, block);
    }
    network.check_no_leaks();
}

#[test]
fn the_delivery_of_lent_memory_is_reported_before_the_end_of_its_channel() {
    let (mut network, a, _) = Network::pair(&config());
    network.run_for(Duration::from_millis(5));
    let context = &mut network.hosts[0].context;
    let block = context.allocate(100).unwrap();
    let lent = Slice { len: 100, ..block.slice() };
    let number = context.send(network.now, a, Payload::Lent(lent)).unwrap();
    // The acknowledgement arrives, and the owner aborts the channel between the two halves of its next poll.
    network.hosts[0].stuck = true;
    network.run_for(Duration::from_millis(5));
    let context = &mut network.hosts[0].context;
    context.ingest(network.now);
    assert_eq!(context.status(a).unwrap().in_flight, 0);
    context.abort(network.now, a);
    let events: Vec<_> = core::iter::from_fn(|| context.poll_event()).collect();
    let closed = Event::Closed { channel: a, reason: CloseReason::Aborted };
    assert_eq!(events, [Event::Delivered { channel: a, number }, closed]);
    context.free(network.now, block);
    network.check_no_leaks();
}

#[test]
fn a_message_without_memory_for_its_body_leaves_none_in_use() {
    let config = Config { memory_region: 64 << 10, memory_limit: 1 << 20, ..config() };
    let (mut network, a, _) = Network::pair(&config);
    network.run_for(Duration::from_millis(5));
    let context = &mut network.hosts[0].context;
    let blocks: Vec<_> = core::iter::from_fn(|| context.allocate(100_000).ok()).collect();
    let used = context.memory().used;
    let refused = context.send(network.now, a, Payload::Copy(&[0; 100_000]));
    assert!(matches!(refused, Err(SendError::Memory(_))), "{refused:?}");
    assert_eq!(context.memory().used, used);
    blocks.into_iter().for_each(|block| context.free(network.now, block));
    network.check_no_leaks();
}

#[test]
fn messages_beyond_a_limit_are_refused_with_the_limit() {
    let small = Config { longest: 10_000, ..config() };
    let (mut network, a, _) = Network::pair(&small);
    let context = &mut network.hosts[0].context;
    let error = context.send(network.now, a, Payload::Copy(&[0; 10_001])).unwrap_err();
    assert_eq!(error, SendError::TooLong { got: 10_001, max: 10_000 });
    context.set("backlog", "2").unwrap();
    let errors: Vec<_> =
        (0..20).filter_map(|_| context.send(network.now, a, Payload::Copy(b"x")).err()).collect();
    assert_eq!(errors[0], SendError::Full { waiting: 2 });
    assert_eq!(errors.len(), 20 - 7 - 2 + 1, "the window, less a NOP's place and the first NOP");
    network.check_no_leaks();
}

#[test]
fn a_filter_drops_delays_and_corrupts_matching_messages() {
    let (mut network, a, _) = Network::pair(&config());
    let context = &mut network.hosts[0].context;
    context.set_filter(&["out corrupt".parse().unwrap()]);
    network.send(0, a, &[0; 64]);
    network.hosts[0].context.set_filter(&["out drop".parse().unwrap()]);
    network.send(0, a, b"lost");
    network.hosts[0].context.set_filter(&["out delay 20ms".parse().unwrap()]);
    network.send(0, a, b"late");
    network.hosts[0].context.set_filter(&[]);
    network.send(0, a, b"last");
    network.run_for(Duration::from_millis(10));
    let bodies = |network: &mut Network| -> Vec<Vec<u8>> {
        network.take_messages(1).into_iter().map(|(_, _, body)| body).collect()
    };
    let on_time = bodies(&mut network);
    assert_eq!(on_time.len(), 2);
    assert_eq!(on_time[0].iter().map(|byte| byte.count_ones()).sum::<u32>(), 1, "one bit");
    assert_eq!(on_time[1], b"last");
    network.run_for(Duration::from_millis(20));
    assert_eq!(bodies(&mut network), [b"late"]);
    assert_eq!(network.hosts[0].context.stats().filtered, 3);
    let context = &mut network.hosts[0].context;
    context.set("filter", "out drop 1/2; in delay 1ms").unwrap();
    let filter = |context: &Context<Rnic>| context.parameters().pop().unwrap().value;
    assert_eq!(filter(context), "out drop 1/2; in delay 1ms");
    assert!(matches!(context.set("filter", "out dorp"), Err(ConfigError::Filter(_))));
    context.set("filter", "none").unwrap();
    assert_eq!(filter(context), "none");
    network.check_no_leaks();
}

#[test]
fn lent_memory_is_free_again_after_every_fault_of_a_filter() {
    let (mut network, a, _) = Network::pair(&config());
    let block = network.hosts[0].context.allocate(9000).unwrap();
    for (rule, arrive) in [("out corrupt", 1), ("out drop", 0), ("out delay 1ms", 1)] {
        let (now, context) = (network.now, &mut network.hosts[0].context);
        context.set_filter(&[rule.parse().unwrap()]);
        let number = context.send(now, a, Payload::Lent(block.slice())).unwrap();
        network.run_for(Duration::from_millis(5));
        let freed = Event::Delivered { channel: a, number };
        assert_eq!(
            network.hosts[0].events.iter().filter(|event| **event == freed).count(),
            1,
            "{rule}"
        );
        assert_eq!(network.take_messages(1).len(), arrive, "{rule}");
    }
    let now = network.now;
    network.hosts[0].context.free(now, block);
    network.check_no_leaks();
}

#[test]
fn an_answer_between_the_halves_of_a_poll_has_its_deadline_after_the_second() {
    let (mut network, a, _) = Network::pair(&config());
    network.run_for(Duration::from_millis(5));
    network.send(0, a, b"question");
    // Its device receives the message, and the test polls in its place.
    network.hosts[1].stuck = true;
    network.run_for(Duration::from_millis(1));
    let (now, context) = (network.now, &mut network.hosts[1].context);
    context.ingest(now);
    let Some(Event::Message { channel, message }) = context.poll_event() else {
        panic!("no message");
    };
    context.send(now, channel, Payload::Copy(b"answer")).unwrap();
    context.release(now, message);
    context.service(now);
    let stuck_at = now + context.config().deadlock_after;
    assert!(context.poll_timeout().is_some_and(|at| at <= stuck_at), "the answer may get stuck");
    network.hosts[1].stuck = false;
    network.run_until(|network| !network.take_messages(0).is_empty());
    network.check_no_leaks();
}
