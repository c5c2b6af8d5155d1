//! The cost of streams that carry nothing (X-RDMA's Mock, section VI.C): the time of a poll and of a call with a stream for
//! each of a thousand channels, beside that without streams.

use weft_units::Duration;
use weft_xrdma::{ChannelId, Config, Node, Options, Payload};

use crate::end::{End, connect};
use crate::figures::{median, spread};

/// Number of channels of each node.
const CHANNELS: usize = 1000;
/// Number of polls in a round, and of calls.
const POLLS: u32 = 20_000;
const CALLS: u32 = 2_000;

/// A node with its channels.
struct Contender {
    name: &'static str,
    node: Node,
    channels: Vec<ChannelId>,
    polls: Vec<f64>,
    calls: Vec<f64>,
}

impl Contender {
    fn new(name: &'static str, streams: bool, end: &End) -> Self {
        let config = Config { depth: 4, ack_every: 2, ..Config::default() };
        let options = Options { config, streams, ..Options::default() };
        let mut node = Node::new(options).expect("a device");
        let channels = connect(&mut node, end, CHANNELS);
        Self { name, node, channels, polls: Vec::new(), calls: Vec::new() }
    }

    /// Measures a round: polls without an event, and calls on one channel after the other.
    fn round(&mut self) {
        let nanos = |time: Duration, count: u32| time.as_nanos() as f64 / f64::from(count);
        let start = self.node.now();
        (0..POLLS).for_each(|_| self.node.poll());
        self.polls.push(nanos(self.node.now().since(start), POLLS));
        while self.node.poll_event().is_some() {}
        let start = self.node.now();
        for at in 0..CALLS as usize {
            let channel = self.channels[at % CHANNELS];
            let answer =
                self.node.call(channel, Payload::Copy(&[7; 64]), None).expect("it answers");
            let now = self.node.now();
            self.node.context().release(now, answer);
        }
        self.calls.push(nanos(self.node.now().since(start), CALLS));
    }
}

pub(crate) fn measure(rounds: usize) {
    println!("\npolls and calls of 64 bytes with {CHANNELS} channels, ns: median, least to most");
    let end = End::start(&["depth=4", "ack_every=2", "memory_limit=2GiB"]);
    let mut contenders = [("without streams", false), ("with streams", true)]
        .map(|(name, streams)| Contender::new(name, streams, &end));
    for _ in 0..rounds {
        contenders.iter_mut().for_each(Contender::round);
    }
    for Contender { name, polls, calls, .. } in &contenders {
        println!("{name:>16} {} {}", spread(polls), spread(calls));
    }
    let [without, with] = &contenders;
    let ratio = |of: fn(&Contender) -> &[f64]| median(of(with)) / median(of(without));
    let (polls, calls) = (ratio(|it| &it.polls), ratio(|it| &it.calls));
    println!("{:>16} polls {polls:.2}, calls {calls:.2} of those without", "with streams");
}
