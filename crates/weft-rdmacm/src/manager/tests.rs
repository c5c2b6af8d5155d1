//! Tests of two managers on a line that delivers, loses and duplicates datagrams as a test directs.

use std::net::Ipv4Addr;

use weft_units::{Duration, Seed};

use super::*;

const SERVER: Owner = Owner(1);
const SECOND: Duration = Duration::from_secs(1);

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, host), 7471).into()
}

fn offer(queue_pair: u32) -> Offer {
    Offer { queue_pair, mtu: 5, private_data: vec![9; 3], ..Offer::default() }
}

/// The treatment of a datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrive,
    Lost,
    Twice,
}

/// A client, a server that listens, and the line between them.
struct Line {
    now: Instant,
    ends: [Manager; 2],
    events: [Vec<(CommunicationId, Event)>; 2],
    sent: Vec<Transmit>,
}

impl Line {
    fn new(space: Space) -> Self {
        let mut server = Manager::new([2; 16]);
        server.listen(space, address(1), SERVER, 2);
        let ends = [Manager::new([1; 16]), server];
        Self {
            now: Instant::from_nanos(1),
            ends,
            events: [Vec::new(), Vec::new()],
            sent: Vec::new(),
        }
    }

    fn connect(&mut self, space: Space) -> CommunicationId {
        let addresses = AddressPair { local: address(0), remote: address(1) };
        self.ends[0].connect(self.now, space, addresses, offer(5))
    }

    /// Delivers every datagram in the queues.
    fn go(&mut self, mut fate: impl FnMut(&Transmit) -> Fate) {
        loop {
            let next = (0..2).find_map(|end| Some((end, self.ends[end].poll_transmit()?)));
            let Some((end, transmit)) = next else { break };
            let times = match fate(&transmit) {
                Fate::Arrive => 1,
                Fate::Lost => 0,
                Fate::Twice => 2,
            };
            for _ in 0..times {
                let addresses = AddressPair { local: transmit.to, remote: transmit.from };
                self.ends[1 - end].handle_datagram(self.now, addresses, &transmit.bytes);
            }
            self.sent.push(transmit);
        }
        for end in 0..2 {
            self.events[end].extend(core::iter::from_fn(|| self.ends[end].poll_event()));
        }
    }

    fn deliver(&mut self) {
        self.go(|_| Fate::Arrive);
    }

    /// Advances time and delivers the datagrams sent in it.
    fn pass(&mut self, time: Duration, mut fate: impl FnMut(&Transmit) -> Fate) {
        let until = self.now + time;
        while let Some(at) = self.ends.iter().filter_map(Manager::poll_timeout).min()
            && at <= until
        {
            self.now = at.max(self.now);
            let now = self.now;
            self.ends.iter_mut().for_each(|end| end.handle_timeout(now));
            self.go(&mut fate);
        }
        self.now = until;
    }

    /// Returns an end's events since the last call.
    fn events(&mut self, end: usize) -> Vec<Event> {
        self.events[end].drain(..).map(|(_, event)| event).collect()
    }

    /// Returns the connection of the request that the server got.
    fn requested(&mut self) -> CommunicationId {
        let [(id, Event::Requested { listener: SERVER, .. })] = self.events[1][..] else {
            panic!("{:?}", self.events[1])
        };
        self.events[1].clear();
        id
    }

    /// Connects both ends.
    fn established(&mut self) -> [CommunicationId; 2] {
        let client = self.connect(Space::Connected);
        self.deliver();
        let server = self.requested();
        assert!(self.ends[1].accept(self.now, server, offer(6)));
        self.deliver();
        assert_eq!(self.events(0), [Event::Response(offer(6))]);
        assert!(self.ends[0].ready(self.now, client));
        self.deliver();
        assert_eq!(self.events(1), [Event::Established]);
        [client, server]
    }
}

#[test]
fn a_connection_comes_up_and_goes_down() {
    let mut line = Line::new(Space::Connected);
    let [client, _] = line.established();
    assert!(line.ends[0].disconnect(line.now, client));
    line.deliver();
    assert_eq!(line.events(0), [Event::Disconnected { status: 0 }]);
    assert_eq!(line.events(1), [Event::Disconnected { status: 0 }]);
    // The client's port is free at once; the server keeps its state for a while.
    assert!(!line.ends[0].uses(address(0)) && line.ends[1].uses(address(1)));
    line.pass(Duration::from_secs(20), |_| Fate::Arrive);
    assert!(!line.ends[1].uses(address(1)));
    assert!(line.ends[1].connections.is_empty() && line.ends[1].requested.is_empty());
}

#[test]
fn loss_and_copies_change_nothing() {
    for seed in 0..500 {
        let mut rng = Seed(seed).rng();
        let mut fate = move |_: &Transmit| match rng.below(3) {
            0 => Fate::Arrive,
            1 => Fate::Lost,
            _ => Fate::Twice,
        };
        let mut line = Line::new(Space::Connected);
        let client = line.connect(Space::Connected);
        let mut events = [Vec::new(), Vec::new()];
        for _ in 0..40 {
            line.pass(SECOND, &mut fate);
            for (end, events) in events.iter_mut().enumerate() {
                for (id, event) in core::mem::take(&mut line.events[end]) {
                    match event {
                        Event::Requested { .. } => {
                            assert!(line.ends[end].accept(line.now, id, offer(6)));
                        }
                        Event::Response(_) => assert!(line.ends[end].ready(line.now, id)),
                        Event::Established => {
                            assert!(line.ends[end].disconnect(line.now, id));
                        }
                        _ => {}
                    }
                    events.push(event);
                }
            }
        }
        assert_eq!(events[0].first(), Some(&Event::Response(offer(6))), "seed {seed}");
        assert_eq!(events[0].len(), 2, "seed {seed}: {events:?}");
        assert!(matches!(events[0][1], Event::Disconnected { .. }), "seed {seed}: {events:?}");
        assert_eq!(events[1].len(), 3, "seed {seed}: {events:?}");
        assert_eq!(events[1][1], Event::Established, "seed {seed}");
        assert!(matches!(events[1][2], Event::Disconnected { .. }), "seed {seed}");
        assert!(!line.ends[0].disconnect(line.now, client));
    }
}

#[test]
fn both_may_disconnect_at_once() {
    let mut line = Line::new(Space::Connected);
    let ids = line.established();
    for (end, id) in ids.into_iter().enumerate() {
        assert!(line.ends[end].disconnect(line.now, id));
    }
    line.deliver();
    line.pass(Duration::from_secs(20), |_| Fate::Arrive);
    for end in 0..2 {
        assert_eq!(line.events(end), [Event::Disconnected { status: 0 }]);
    }
}

#[test]
fn a_dead_host_is_unreachable_within_twelve_seconds() {
    for space in [Space::Connected, Space::Datagram] {
        let mut line = Line::new(space);
        line.connect(space);
        line.pass(Duration::from_secs(12), |_| Fate::Lost);
        assert_eq!(line.events(0), [Event::Unreachable { status: -libc::ETIMEDOUT }]);
        assert_eq!(line.sent.len(), usize::from(connection::MAX_TRANSMISSIONS));
        assert!(!line.ends[0].uses(address(0)));
    }
}

#[test]
fn the_death_of_a_peer_is_detected_by_an_idle_end() {
    let mut line = Line::new(Space::Connected);
    line.established();
    line.pass(Duration::from_secs(600), |_| Fate::Arrive);
    assert_eq!((line.events(0), line.events(1)), (vec![], vec![]));
    line.pass(Duration::from_secs(18), |_| Fate::Lost);
    for end in 0..2 {
        assert_eq!(line.events(end), [Event::Disconnected { status: -libc::ETIMEDOUT }]);
    }
}

#[test]
fn a_restarted_peer_ends_the_connection() {
    let mut line = Line::new(Space::Connected);
    line.established();
    line.ends[1] = Manager::new([3; 16]);
    line.pass(Duration::from_secs(6), |_| Fate::Arrive);
    assert_eq!(line.events(0), [Event::Disconnected { status: 0 }]);
}

#[test]
fn an_owner_may_answer_late() {
    let mut line = Line::new(Space::Connected);
    let client = line.connect(Space::Connected);
    line.pass(Duration::from_secs(100), |_| Fate::Arrive);
    let server = line.requested();
    assert!(line.ends[1].accept(line.now, server, offer(6)));
    line.pass(Duration::from_secs(100), |_| Fate::Arrive);
    assert!(line.ends[0].ready(line.now, client));
    line.deliver();
    assert_eq!((line.events(0).len(), line.events(1)), (1, vec![Event::Established]));
}

#[test]
fn a_port_without_a_listener_rejects() {
    let mut line = Line::new(Space::Datagram);
    line.connect(Space::Connected);
    line.pass(SECOND, |_| Fate::Arrive);
    let no_service =
        Event::Rejected { reason: Reason::INVALID_SERVICE_ID, private_data: Vec::new() };
    assert_eq!(line.events(0), [no_service]);
}

#[test]
fn a_listener_that_starts_a_moment_later_gets_the_request() {
    let mut line = Line::new(Space::Datagram);
    line.connect(Space::Connected);
    line.deliver();
    line.ends[1].listen(Space::Connected, address(1), SERVER, 1);
    line.pass(SECOND, |_| Fate::Arrive);
    line.requested();
}

#[test]
fn a_rejection_has_private_data_and_answers_copies_of_the_request() {
    let mut line = Line::new(Space::Connected);
    line.connect(Space::Connected);
    line.deliver();
    let server = line.requested();
    let rejection = Rejection { reason: Reason::CONSUMER, private_data: vec![1, 2] };
    assert!(line.ends[1].reject(line.now, server, rejection));
    line.go(|_| Fate::Lost);
    line.pass(SECOND, |_| Fate::Arrive);
    let rejected = Event::Rejected { reason: Reason::CONSUMER, private_data: vec![1, 2] };
    assert_eq!((line.events(0), line.events(1)), (vec![rejected], vec![]));
}

#[test]
fn a_datagram_service_names_its_queue_pair() {
    let mut line = Line::new(Space::Datagram);
    line.connect(Space::Datagram);
    line.deliver();
    let server = line.requested();
    assert!(line.ends[1].accept(line.now, server, Offer { qkey: 3, ..offer(6) }));
    // The answer is lost once: a copy of the request triggers it again.
    line.go(|_| Fate::Lost);
    line.pass(SECOND, |_| Fate::Arrive);
    assert_eq!(line.events(0), [Event::Resolved(Offer { qkey: 3, ..offer(6) })]);
    assert!(line.events(1).is_empty());
}

#[test]
fn requests_beyond_the_backlog_are_accepted_later() {
    let mut line = Line::new(Space::Connected);
    (0..3).for_each(|_| _ = line.connect(Space::Connected));
    line.deliver();
    assert_eq!(line.events[1].len(), 2);
    let (first, _) = line.events[1][0];
    assert!(line.ends[1].accept(line.now, first, offer(6)));
    line.pass(SECOND, |_| Fate::Arrive);
    assert_eq!(line.events[1].len(), 3);
}

#[test]
fn an_owner_that_leaves_notifies_the_other_end() {
    let mut line = Line::new(Space::Connected);
    line.established();
    line.ends[1].forget_all(line.now);
    line.deliver();
    assert_eq!(line.events(0), [Event::Disconnected { status: 0 }]);
    // An owner that leaves before the connection exists rejects it.
    let client = line.connect(Space::Connected);
    line.deliver();
    line.requested();
    line.ends[0].forget(line.now, client);
    line.deliver();
    let left = Event::Rejected { reason: Reason::CONSUMER, private_data: Vec::new() };
    assert_eq!((line.events(0), line.events(1)), (vec![], vec![left]));
}

#[test]
fn an_icmp_error_ends_a_connection() {
    let mut line = Line::new(Space::Connected);
    line.connect(Space::Connected);
    line.ends[0].handle_refused(line.now, address(0), address(1));
    line.go(|_| Fate::Lost);
    assert!(matches!(line.events(0)[..], [Event::Rejected { .. }]));
    line.established();
    line.ends[0].handle_refused(line.now, address(0), address(1));
    line.deliver();
    assert_eq!(line.events(0), [Event::Disconnected { status: 0 }]);
}

/// A peer that sees the numbers of its own connections cannot compute those of others: they come from the key alone.
#[test]
fn an_id_says_nothing_of_others() {
    let drawn = |key| {
        let mut manager = Manager::new([key; 16]);
        (0..1000).map(|_| (manager.draw_id(), manager.draw_psn())).collect::<Vec<_>>()
    };
    let (one, other) = (drawn(1), drawn(2));
    assert_eq!(drawn(1), one);
    let same = one.iter().zip(&other).filter(|(one, other)| one.0 == other.0 || one.1 == other.1);
    assert_eq!(same.count(), 0);
    let ids: BTreeSet<_> = one.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), 1000);
    // No difference between consecutive IDs occurs twice.
    let steps = one.windows(2).map(|pair| pair[1].0.0.wrapping_sub(pair[0].0.0));
    assert_eq!(steps.collect::<BTreeSet<_>>().len(), 999);
}

#[test]
fn strangers_change_nothing() {
    let mut line = Line::new(Space::Connected);
    let ids = line.established();
    let mut rng = Seed(11).rng();
    let now = line.now;
    for round in 0..20_000_u32 {
        let body = [Body::DisconnectRequest, Body::ReadyToUse, Body::Probe, Body::DisconnectReply]
            [rng.index(4)]
        .clone();
        // The attacker knows one of the two IDs and sends from the right address; or knows both and sends from a wrong
        // one.
        let (from, remote) = if round % 2 == 0 {
            (CommunicationId(rng.next_u32().max(1)), address(0))
        } else {
            (ids[0], address(9))
        };
        let bytes = Message { from, to: ids[1], copy: 0, body }.emit();
        line.ends[1].handle_datagram(now, AddressPair { local: address(1), remote }, &bytes);
    }
    assert_eq!(line.ends[1].poll_event(), None);
    assert_eq!(line.ends[1].connections.len(), 1);
}
