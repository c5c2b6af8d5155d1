//! The protocol, step by step. Cables take 1 us, so the round trip between leaves is 4 us, and replies are due after 8
//! us.

use weft_topo::NodeId;

use super::tag::{Header, Mark};
use super::*;
use crate::packet::Hop;
use crate::switch::Kind;
use crate::switch::bench::{Bench, micros};

const TO: NodeId = NodeId(16);

/// A flow from host 0 to host 16.
struct TestFlow {
    bench: Bench,
}

impl TestFlow {
    fn new() -> Self {
        Self { bench: Bench::new(Kind::ConWeave) }
    }

    /// Sends a data packet over its first leaf and the spine; returns it before the last leaf.
    fn send(&mut self, at: u64) -> Hop {
        let hop = self.bench.packet(0, TO.0, 7);
        let hop = self.bench.step(micros(at), hop);
        self.bench.step(micros(at + 1), hop)
    }

    fn header(&self, hop: Hop) -> Header {
        match self.bench.labels.get(hop.packet()) {
            Label::ConWeave(Tag::Data(header)) => header,
            other => panic!("no header but {other:?}"),
        }
    }

    /// Sends a packet that does not reach the last leaf; returns the mark of its header.
    fn mark(&mut self, at: u64) -> Mark {
        let hop = self.send(at);
        self.header(hop).mark
    }

    /// Delivers it to the last leaf; returns that leaf's commands.
    fn arrive(&mut self, at: u64, hop: Hop) -> Vec<Command> {
        assert_eq!(self.bench.service(micros(at), hop), Fate::Hold);
        self.bench.commands.drain(..).collect()
    }

    /// Delivers a packet that the last leaf emitted to the first leaf.
    fn on_label(&mut self, at: u64, command: Command) {
        let hop = self.bench.emitted(command);
        assert_eq!(self.bench.service(micros(at), hop), Fate::Take);
    }

    /// Delivers the last leaf's notification of ECN marks on the path by this uplink.
    fn notify(&mut self, at: u64, uplink: LinkId) {
        let label = Label::ConWeave(Tag::Notify { uplink });
        self.on_label(at, Command::Emit { source: TO, destination: NodeId(0), port: 7, label });
    }

    /// Fires the timer of a wake-up command, which must be due at `at`; returns the leaf's commands.
    fn timer(&mut self, at: u64, command: Command) -> Vec<Command> {
        let Command::Wake { at: due, token } = command else { panic!("{command:?} is no timer") };
        assert_eq!(due, micros(at));
        let leaf = self.bench.leaf_of(TO.0);
        self.bench.timer(due, leaf, token);
        self.bench.commands.drain(..).collect()
    }
}

fn is_reply(command: Command, clear: bool) -> bool {
    matches!(command, Command::Emit { label: Label::ConWeave(Tag::Reply { is_clear, .. }), .. } if is_clear == clear)
}

#[test]
fn a_reply_in_time_begins_the_next_epoch_on_the_same_path() {
    let mut flow = TestFlow::new();
    let first = flow.send(0);
    let commands = flow.arrive(2, first);
    assert!(is_reply(commands[0], false), "{commands:?}");
    assert_eq!(commands[1..], [Command::Send(first)]);
    let second = flow.send(1);
    flow.on_label(4, commands[0]);
    let third = flow.send(5);
    let headers = [first, second, third].map(|hop| flow.header(hop));
    assert_eq!(headers.map(|header| header.mark), [Mark::Request, Mark::None, Mark::Request]);
    assert_eq!(headers.map(|header| header.epoch), [micros(0), micros(0), micros(5)]);
    assert!(headers.iter().all(|header| header.uplink == headers[0].uplink));
}

/// Returns the packets of a flow whose first packet got no reply: that packet, the TAIL, and a rerouted one.
fn reroute(flow: &mut TestFlow) -> [Hop; 3] {
    let first = flow.send(0);
    let uplink = flow.header(first).uplink;
    flow.notify(8, uplink);
    assert_eq!(flow.mark(8), Mark::None, "8 us are in time");
    let (tail, rerouted) = (flow.send(9), flow.send(10));
    let [old, last, new] = [first, tail, rerouted].map(|hop| flow.header(hop));
    assert_eq!((last.mark, last.is_rerouted, last.uplink), (Mark::Tail, false, old.uplink));
    assert_eq!((new.mark, new.is_rerouted, new.tail_at), (Mark::None, true, micros(9)));
    assert_ne!(new.uplink, old.uplink);
    [first, tail, rerouted]
}

#[test]
fn packets_that_overtake_the_tail_wait_for_it() {
    let mut flow = TestFlow::new();
    let [first, tail, rerouted] = reroute(&mut flow);
    flow.arrive(2, first);
    let another = flow.send(11);
    assert!(matches!(flow.arrive(12, rerouted)[..], [Command::Wake { .. }]));
    assert_eq!(flow.arrive(13, another), []);
    let commands = flow.arrive(14, tail);
    assert!(is_reply(commands[0], true), "{commands:?}");
    assert_eq!(commands[1..], [tail, rerouted, another].map(Command::Send));
    // CLEAR ends the reroute: the flow stays on its new path.
    flow.on_label(16, commands[0]);
    let next = flow.send(17);
    assert_eq!(flow.header(next).mark, Mark::Request);
    assert_eq!(flow.header(next).uplink, flow.header(rerouted).uplink);
}

#[test]
fn a_missing_tail_is_awaited_until_it_is_overdue() {
    let mut flow = TestFlow::new();
    let [first, _, rerouted] = reroute(&mut flow);
    flow.arrive(2, first);
    let commands = flow.arrive(12, rerouted);
    // It was sent 9 us after the packet that arrived at 2 us; 16 us are added.
    assert_eq!(flow.timer(27, commands[0]), [Command::Send(rerouted)]);
    let later = flow.send(28);
    assert_eq!(flow.arrive(30, later), [Command::Send(later)]);
}

#[test]
fn packets_of_the_old_path_postpone_the_release() {
    let mut flow = TestFlow::new();
    let [first, _, rerouted] = reroute(&mut flow);
    let commands = flow.arrive(12, rerouted);
    assert_eq!(commands, [Command::Wake { at: micros(12 + 200 + 16), token: token(&commands) }]);
    // The packet took 18 us; the TAIL of 9 us is expected to take as long.
    let commands = flow.arrive(18, first);
    let wake = *commands.last().unwrap();
    assert_eq!(flow.timer(18 + 9 + 16, wake), [Command::Send(rerouted)]);
}

fn token(commands: &[Command]) -> u64 {
    let [Command::Wake { token, .. }] = commands else { panic!("{commands:?}") };
    *token
}

#[test]
fn nothing_overtakes_into_the_next_epoch() {
    let mut flow = TestFlow::new();
    let [_, _, rerouted] = reroute(&mut flow);
    flow.arrive(12, rerouted);
    // The first leaf ends the epoch of an idle flow while the last leaf holds its last packet.
    let next = flow.send(311);
    assert_eq!(flow.header(next).mark, Mark::Request);
    let commands = flow.arrive(313, next);
    assert_eq!(commands[0], Command::Send(rerouted));
    assert_eq!(commands.last(), Some(&Command::Send(next)));
}

#[test]
fn no_flow_moves_to_the_path_of_a_marked_packet_for_16_us() {
    let mut flow = TestFlow::new();
    let hop = flow.send(0);
    let commands = flow.arrive(2, hop.marked());
    let uplink = flow.header(hop).uplink;
    let notify = Tag::Notify { uplink };
    assert!(
        matches!(commands[0], Command::Emit { label: Label::ConWeave(tag), .. } if tag == notify)
    );
    flow.on_label(4, commands[0]);
    let uses = |flow: &mut TestFlow, at, first: u16| {
        let uplinks = (first..first + 800).map(|port| flow.bench.send(micros(at), 1, 17, port));
        uplinks.filter(|&chosen| chosen == uplink).count()
    };
    // If both draws are this path, a third follows, which is this path once in 512.
    assert!(uses(&mut flow, 19, 0) < 10);
    assert!((70..130).contains(&uses(&mut flow, 20, 1000)));
}

#[test]
fn a_late_reply_and_one_of_another_epoch_change_nothing() {
    let mut flow = TestFlow::new();
    let first = flow.send(0);
    let commands = flow.arrive(2, first);
    flow.on_label(8, commands[0]);
    assert_eq!(flow.mark(9), Mark::Tail, "due before 8 us");
    flow.on_label(10, commands[0]);
    assert_eq!(flow.mark(11), Mark::None);
}
