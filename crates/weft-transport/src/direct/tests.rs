//! Tests of two ends and the link between them.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_wire::SetupHeader;

use super::*;

const LINK: LinkId = LinkId(3);

struct Pair {
    ends: [Direct; 2],
    now: Instant,
    events: [Vec<Event>; 2],
    /// `true` if received payload is placed at once.
    places: bool,
    arrived: Vec<crate::Placement>,
}

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], if end == 0 { 20_480 } else { 20_481 }))
}

fn pair() -> Pair {
    pair_with_windows([4, 4])
}

fn pair_with_windows(windows: [u16; 2]) -> Pair {
    let now = Instant::from_nanos(1_000);
    let end = |end: usize| {
        let mut direct = Direct::new(DirectConfig {
            mtu: 1000,
            window: windows[end],
            receive_port: address(end).port(),
            peer_timeout: Duration::from_secs(2),
            message_queue: 100,
            max_connections: 2,
        });
        direct.link_up(now, LINK);
        direct
    };
    let events = [Vec::new(), Vec::new()];
    Pair { ends: [end(0), end(1)], now, events, places: true, arrived: Vec::new() }
}

impl Pair {
    /// Carries all packets both ways until neither end sends any.
    fn run(&mut self) {
        let mut packet = Packet::default();
        let mut quiet = 0;
        while quiet < 2 {
            for from in 0..2 {
                quiet += 1;
                while let Some(outgoing) = self.ends[from].poll_transmit_into(self.now, &mut packet)
                {
                    quiet = 0;
                    assert_eq!(outgoing.departure.to, address(1 - from));
                    self.carry(1 - from, &outgoing, &packet);
                }
                let events = &mut self.ends[from];
                self.events[from].extend(core::iter::from_fn(|| events.poll_event()));
            }
        }
    }

    fn carry(&mut self, to: usize, outgoing: &Outgoing, packet: &Packet) {
        let Outgoing { link, departure, acknowledged } = *outgoing;
        if let Some(acknowledged) = acknowledged {
            let _ =
                self.ends[to].handle_acknowledged(self.now, link, address(1 - to), acknowledged);
        }
        let _ = self.deliver(to, link, packet, departure.payload.map_or(0, |payload| payload.len));
    }

    fn deliver(&mut self, to: usize, link: LinkId, packet: &Packet, len: u16) -> Verdict {
        let from = address(1 - to);
        let verdict = self.ends[to].handle_packet(self.now, link, from, packet, len);
        if let Verdict::Place(placement) = verdict {
            self.arrived.push(placement);
            if self.places {
                self.ends[to].placed(placement.connection, placement.psn).unwrap();
            }
        }
        verdict
    }

    fn connect(&mut self) -> [ConnectionId; 2] {
        let requested = self.ends[0].connect(self.now, LINK, address(1), 77).unwrap();
        self.run();
        assert_eq!(self.events[0], [Event::Connected { connection: requested }]);
        let [Event::Accepted { connection, service: 77 }] = self.events[1][..] else {
            panic!("{:?}", self.events[1])
        };
        assert_eq!(self.ends[1].peer(connection).unwrap().address, address(0));
        self.events.iter_mut().for_each(Vec::clear);
        [requested, connection]
    }
}

fn message(token: u64, length: u32) -> Message {
    Message { token, opcode: 9, tag: 0, length }
}

#[test]
fn messages_arrive_in_pieces_in_order_and_are_sent_when_all_is_placed() {
    let mut pair = pair();
    let [connection, _] = pair.connect();
    for (token, length) in [(1, 10_500), (2, 0), (3, 1000)] {
        pair.ends[0].submit(connection, message(token, length)).unwrap();
    }
    pair.run();
    let sent: Vec<_> = [1, 2, 3].map(|token| Event::Acked { connection, token }).into();
    assert_eq!(pair.events[0], sent);
    let pieces: Vec<_> = pair.arrived.iter().map(|p| (p.message, p.offset, p.len)).collect();
    let mut expected: Vec<_> = (0..10).map(|piece| (0, piece * 1000, 1000)).collect();
    expected.extend([(0, 10_000, 500), (1, 0, 0), (2, 0, 1000)]);
    assert_eq!(pieces, expected);
}

#[test]
fn the_window_limits_packets_and_an_unplaced_one_holds_back_the_later_ones() {
    let mut pair = pair();
    let [connection, accepted] = pair.connect();
    pair.places = false;
    pair.ends[0].submit(connection, message(1, 9000)).unwrap();
    pair.run();
    assert_eq!(pair.arrived.len(), 4);
    for psn in [1, 3, 2] {
        pair.ends[1].placed(accepted, psn).unwrap();
        pair.run();
        assert_eq!(pair.arrived.len(), 4);
    }
    let twice = pair.ends[1].placed(accepted, 2);
    assert_eq!(twice, Err(PlacedError::NotWaiting { psn: 2 }));
    pair.places = true;
    pair.ends[1].placed(accepted, 0).unwrap();
    pair.run();
    assert_eq!(pair.arrived.len(), 9);
    assert_eq!(pair.events[0], [Event::Acked { connection, token: 1 }]);
}

#[test]
fn two_ends_agree_on_the_smaller_window() {
    for windows in [[8, 4], [4, 8]] {
        let mut pair = pair_with_windows(windows);
        let connections = pair.connect();
        pair.places = false;
        for (end, connection) in connections.into_iter().enumerate() {
            pair.ends[end].submit(connection, message(1, 9000)).unwrap();
        }
        pair.run();
        assert_eq!(pair.events, [[], []], "{windows:?}: nothing is closed");
        assert_eq!(pair.arrived.len(), 8, "{windows:?}: four at each end");
    }
}

#[test]
fn placed_packets_are_acknowledged_before_an_end_closes() {
    let mut pair = pair();
    let [connection, accepted] = pair.connect();
    pair.ends[0].submit(connection, message(1, 1000)).unwrap();
    let mut packet = Packet::default();
    let outgoing = pair.ends[0].poll_transmit_into(pair.now, &mut packet).unwrap();
    pair.carry(1, &outgoing, &packet);
    pair.ends[1].close(accepted);
    pair.run();
    let closed = Event::Closed { connection, reason: CloseReason::Peer };
    assert_eq!(pair.events[0], [Event::Acked { connection, token: 1 }, closed]);
}

#[test]
fn placed_packets_are_acknowledged_by_the_message_that_answers() {
    let mut pair = pair();
    let [there, _] = pair.connect();
    let back = pair.ends[1].connect(pair.now, LINK, address(0), 78).unwrap();
    pair.run();
    pair.events.iter_mut().for_each(Vec::clear);
    let mut packet = Packet::default();
    for _ in 0..3 {
        for (from, connection) in [(0, there), (1, back)] {
            pair.ends[from].submit(connection, message(1, 10)).unwrap();
            let outgoing = pair.ends[from].poll_transmit_into(pair.now, &mut packet).unwrap();
            assert!(!pair.ends[from].has_ready(), "one packet carries both");
            pair.carry(1 - from, &outgoing, &packet);
        }
    }
    let sent = |end: &mut Direct| core::iter::from_fn(|| end.poll_event()).count();
    assert_eq!(pair.ends.each_mut().map(sent), [3, 2], "all but the last");
    pair.run();
    assert_eq!(pair.events[1], [Event::Acked { connection: back, token: 1 }]);
}

#[test]
fn a_connection_ends_at_both_ends_and_late_packets_get_a_reset() {
    let mut pair = pair();
    let [connection, accepted] = pair.connect();
    pair.ends[1].close(accepted);
    pair.run();
    let reason = CloseReason::Local;
    assert_eq!(pair.events[1], [Event::Closed { connection: accepted, reason }]);
    let reason = CloseReason::Peer;
    assert_eq!(pair.events[0], [Event::Closed { connection, reason }]);
    let refused = pair.ends[0].submit(connection, message(1, 1));
    assert_eq!(refused, Err(SubmitError::UnknownConnection));
    let old = Packet::Ack(AckHeader { destination_cid: connection.0, ..AckHeader::default() });
    let verdict = pair.deliver(0, LINK, &old, 0);
    assert_eq!(verdict, Verdict::Dropped(DropReason::UnknownConnection));
    let mut answer = Packet::default();
    assert!(pair.ends[0].poll_transmit_into(pair.now, &mut answer).is_some());
    assert!(matches!(answer, Packet::Setup(SetupHeader { kind: SetupKind::Reset, .. })));
}

#[test]
fn a_peer_that_has_no_room_refuses() {
    let mut pair = pair();
    pair.connect();
    let other = Direct::new(DirectConfig { max_connections: 0, ..pair.ends[1].config });
    pair.ends[1] = other;
    pair.ends[1].link_up(pair.now, LINK);
    let connection = pair.ends[0].connect(pair.now, LINK, address(1), 1).unwrap();
    pair.run();
    let reason = CloseReason::Refused;
    assert_eq!(pair.events[0], [Event::Closed { connection, reason }]);
}

#[test]
fn a_silent_peer_that_owes_an_answer_is_closed_and_one_that_sends_is_not() {
    let mut pair = pair();
    let [connection, accepted] = pair.connect();
    pair.places = false;
    pair.ends[0].submit(connection, message(1, 10)).unwrap();
    pair.run();
    let second = Duration::from_secs(1);
    for _ in 0..4 {
        pair.now += second;
        pair.ends[0].handle_timeout(pair.now);
        let hello = Packet::Data(weft_wire::DataHeader::default(), None);
        let _ = pair.deliver(0, LINK, &hello, 0);
    }
    assert!(pair.ends[0].poll_timeout().is_some() && pair.ends[0].peer(connection).is_some());
    pair.now += second * 4;
    pair.ends[0].handle_timeout(pair.now);
    let reason = CloseReason::PeerGone;
    pair.run();
    assert_eq!(pair.events[0], [Event::Closed { connection, reason }]);
    assert_eq!(pair.events[1], [Event::Closed { connection: accepted, reason: CloseReason::Peer }]);
    assert_eq!(pair.ends[0].poll_timeout(), None);
}

#[test]
fn a_connection_may_wait_longer_for_its_peer_than_others() {
    let mut pair = pair();
    let [connection, _] = pair.connect();
    pair.places = false;
    pair.ends[0].set_peer_timeout(connection, Duration::from_secs(8));
    pair.ends[0].submit(connection, message(1, 10)).unwrap();
    pair.run();
    for second in 1..=8 {
        assert!(pair.ends[0].peer(connection).is_some(), "before second {second}");
        pair.now += Duration::from_secs(1);
        pair.ends[0].handle_timeout(pair.now);
    }
    assert_eq!(pair.ends[0].peer(connection), None);
}

#[test]
fn a_link_that_goes_down_closes_its_connections() {
    let mut pair = pair();
    let [connection, _] = pair.connect();
    pair.ends[0].submit(connection, message(1, 10)).unwrap();
    pair.ends[0].link_down(LINK);
    let reason = CloseReason::LinkDown;
    assert_eq!(pair.ends[0].poll_event(), Some(Event::Closed { connection, reason }));
    let mut packet = Packet::default();
    assert_eq!(pair.ends[0].poll_transmit_into(pair.now, &mut packet), None);
    let late = pair.deliver(0, LINK, &packet, 0);
    assert_eq!(late, Verdict::Dropped(DropReason::UnknownConnection));
}

#[test]
fn packets_that_break_the_order_end_their_connection_and_no_other() {
    type Change = fn(&mut weft_wire::DataHeader, &mut weft_wire::MessageHeader, &mut u16);
    let changes: [Change; 6] = [
        |header, _, _| header.psn = 1,
        |_, message, _| message.id = 1,
        |_, message, _| message.offset = 1,
        |_, message, _| message.length = 99,
        |_, _, len| *len = 101,
        |_, _, len| *len = 0,
    ];
    for change in changes {
        let mut pair = pair();
        let [_, accepted] = pair.connect();
        let mut header =
            weft_wire::DataHeader { destination_cid: accepted.0, ..Default::default() };
        let mut message = weft_wire::MessageHeader { length: 100, ..Default::default() };
        let mut len = 100;
        change(&mut header, &mut message, &mut len);
        let verdict = pair.deliver(1, LINK, &Packet::data(header, Some(message)), len);
        assert_eq!(verdict, Verdict::Dropped(DropReason::Malformed));
        let reason = CloseReason::ProtocolViolation;
        let closed = Event::Closed { connection: accepted, reason };
        assert_eq!(pair.ends[1].poll_event(), Some(closed));
    }
    let mut pair = pair();
    let [connection, accepted] = pair.connect();
    let other_link = LinkId(4);
    pair.ends[1].link_up(pair.now, other_link);
    let header = weft_wire::DataHeader { destination_cid: accepted.0, ..Default::default() };
    let stray = Packet::data(header, Some(weft_wire::MessageHeader::default()));
    let verdict = pair.deliver(1, other_link, &stray, 0);
    assert_eq!(verdict, Verdict::Dropped(DropReason::UnknownConnection));
    let unsent = AckHeader { destination_cid: connection.0, psn_base: 1, ..AckHeader::default() };
    let verdict = pair.deliver(0, LINK, &Packet::Ack(unsent), 0);
    assert_eq!(verdict, Verdict::Dropped(DropReason::Malformed));
}

#[test]
fn nothing_leaves_over_a_link_that_is_held_and_all_does_when_it_is_released() {
    let mut pair = pair();
    let [connection, _] = pair.connect();
    pair.ends[0].pause(LINK);
    pair.ends[0].submit(connection, message(1, 2000)).unwrap();
    pair.ends[0].submit(connection, message(2, 10)).unwrap();
    pair.run();
    assert!(pair.arrived.is_empty());
    pair.ends[0].resume(LINK);
    pair.run();
    let sent = [1, 2].map(|token| Event::Acked { connection, token });
    assert_eq!((pair.arrived.len(), &pair.events[0][..]), (3, &sent[..]));
}

#[test]
fn an_acknowledgement_waits_for_room_too_and_is_no_debt_of_the_peer() {
    let mut pair = pair();
    let [connection, _] = pair.connect();
    pair.ends[1].pause(LINK);
    pair.ends[0].submit(connection, message(1, 10)).unwrap();
    pair.run();
    assert_eq!((pair.arrived.len(), pair.events[0].len()), (1, 0));
    pair.ends[1].resume(LINK);
    pair.run();
    assert_eq!(pair.events[0], [Event::Acked { connection, token: 1 }]);
    pair.now += Duration::from_secs(10);
    pair.ends.iter_mut().for_each(|end| end.handle_timeout(pair.now));
    pair.run();
    assert!(pair.events[1].is_empty(), "{:?}", pair.events[1]);
}

#[test]
fn a_peer_whose_link_stays_held_is_given_up() {
    let mut pair = pair();
    let [connection, _] = pair.connect();
    pair.ends[0].pause(LINK);
    pair.ends[0].submit(connection, message(1, 10)).unwrap();
    pair.run();
    pair.now = pair.ends[0].poll_timeout().unwrap();
    pair.ends[0].handle_timeout(pair.now);
    let gone = Event::Closed { connection, reason: CloseReason::PeerGone };
    assert_eq!(pair.ends[0].poll_event(), Some(gone));
}

#[test]
fn acknowledgements_are_distinguished_from_messages() {
    let mut pair = pair();
    let [connection, _] = pair.connect();
    assert!(!pair.ends[0].has_ready());
    pair.ends[0].submit(connection, message(1, 10)).unwrap();
    assert!(pair.ends[0].has_messages());
    let mut packet = Packet::default();
    let outgoing = pair.ends[0].poll_transmit_into(pair.now, &mut packet).unwrap();
    pair.carry(1, &outgoing, &packet);
    assert!(pair.ends[1].has_ready() && !pair.ends[1].has_messages());
}
