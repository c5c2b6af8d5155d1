//! Changes from RDMA to TCP and back under load, with a filter that delays and drops (X-RDMA, section VI.C).

use std::collections::{BTreeMap, BTreeSet};

use weft_units::{Rng, Seed};
use weft_xrdma::{CallRole, Carrier, ChannelId, Event, Node, Options, Payload};

use crate::alone;
use crate::end::{End, repetitions};

/// Numbered requests, and their responses.
#[derive(Default)]
struct Load {
    asked: BTreeMap<u64, Vec<u8>>,
    answered: BTreeSet<u64>,
}

impl Load {
    fn ask(&mut self, node: &mut Node, channel: ChannelId, rng: &mut Rng) {
        let len = if rng.chance(1, 20) { 70_000 } else { 8 + rng.index(500) };
        let mut body = vec![0xab; len];
        body[..8].copy_from_slice(&(self.asked.len() as u64).to_be_bytes());
        let now = node.now();
        let id = node.context().request(now, channel, Payload::Copy(&body)).expect("it is taken");
        self.asked.insert(id, body);
    }

    fn take(&mut self, node: &mut Node) {
        while let Some(event) = node.poll_event() {
            match event {
                Event::Channel(weft_msg::Event::Message { message, .. }) => {
                    let CallRole::Response(id) = message.call else { panic!("{message:?}") };
                    assert_eq!(node.context().body(&message), self.asked[&id], "of {id}");
                    assert!(self.answered.insert(id), "{id} came twice");
                    let now = node.now();
                    node.context().release(now, message);
                }
                Event::Channel(weft_msg::Event::Closed { reason, .. }) => panic!("{reason}"),
                _ => {}
            }
        }
    }
}

/// Sends thousands of requests while the carrier changes: each is answered once, except those that `rules` drop.
fn there_and_back(rules: &[&str], dropped: impl Fn(&mut Node) -> u64) {
    let _alone = alone();
    let end = End::start(&[]);
    let mut node = Node::new(Options { streams: true, ..Options::default() }).expect("a device");
    let channel = node.connect_and_wait(end.at).expect("it is taken");
    let rules: Vec<_> = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
    node.context().set_filter(&rules);
    let (mut load, mut rng) = (Load::default(), Seed(7).child("carriers", 0).rng());
    let count = repetitions(3600) as u64;
    for number in 0..count {
        if number % 60 == 0 {
            let to = if number % 120 == 0 { Carrier::Stream } else { Carrier::Rdma };
            let now = node.now();
            node.context().switch(now, channel, to).expect("both are there");
        }
        load.ask(&mut node, channel, &mut rng);
        node.poll();
        load.take(&mut node);
        // Full windows, and the same number of requests that wait for them.
        while load.asked.len() as u64 - load.answered.len() as u64 - dropped(&mut node) > 64 {
            node.wait(None);
            load.take(&mut node);
        }
    }
    let until = node.now() + weft_units::Duration::from_secs(20);
    while (load.asked.len() - load.answered.len()) as u64 > dropped(&mut node) {
        assert!(node.now() < until, "{} of {}", load.answered.len(), load.asked.len());
        node.wait(Some(weft_units::Duration::from_millis(10)));
        load.take(&mut node);
    }
    let status = node.context().status(channel).expect("it is open");
    assert!(status.stats.switches >= count / 150, "{} changes of carrier", status.stats.switches);
    assert_eq!(status.carrier, Carrier::Rdma, "it was asked to go back");
    assert_eq!((load.asked.len() - load.answered.len()) as u64, dropped(&mut node));
}

#[test]
fn between_rdma_and_tcp_under_load_nothing_is_lost_or_duplicated() {
    there_and_back(&[], |_| 0);
}

#[test]
fn messages_that_a_filter_delays_are_not_lost_or_duplicated() {
    there_and_back(&["out delay 2ms 1/50 requests", "in delay 1ms 1/20 responses"], |_| 0);
}

#[test]
fn a_filter_loses_only_the_messages_that_it_drops() {
    there_and_back(&["out drop 1/50 requests"], |node| node.context().stats().filtered);
}
