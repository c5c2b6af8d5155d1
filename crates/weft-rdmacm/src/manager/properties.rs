//! The properties of a connection manager and its messages under any input. Tests and fuzz targets call this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::net::Ipv4Addr;

use weft_units::{Duration, Fnv1a};

use super::*;
use crate::inputs::Script;
use crate::message::private_data;

/// Reads bytes as a message. A message that is read is written and read again as the same. Returns `true` if the bytes
/// were a message.
///
/// # Panics
/// If a message changes on its way, or has more private data than programs have room for.
pub fn message(bytes: &[u8]) -> bool {
    let Some(message) = Message::parse(bytes) else { return false };
    assert_ne!(message.from, CommunicationId::NONE);
    let again = message.emit();
    assert_eq!(again.len(), bytes.len());
    assert_eq!(Message::parse(&again).as_ref(), Some(&message));
    let (data, max) = match &message.body {
        Body::Request(offer) => (&offer.private_data[..], private_data::REQUEST),
        Body::Reply(offer) => (&offer.private_data[..], private_data::REPLY),
        Body::ServiceRequest(offer) => (&offer.private_data[..], private_data::SERVICE_REQUEST),
        Body::ServiceReply(offer) => (&offer.private_data[..], private_data::SERVICE_REPLY),
        Body::Reject { private_data, .. } => (&private_data[..], private_data::REJECT),
        _ => (&[][..], 0),
    };
    assert!(data.len() <= max);
    true
}

const SERVER: Owner = Owner(1);
const BACKLOG: u32 = 3;

/// Maximum time of one step, milliseconds: above the 15 s for which an ended connection is kept.
const MAX_PASSED: u64 = 16_000;

fn address(host: u8) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, host), 7471).into()
}

/// The ends of the scene.
const CLIENT: usize = 0;
const LISTENER: usize = 1;
const ENEMY: u8 = 2;

/// Plays a script: two connected managers, and an enemy that sends one of them datagrams, from its own address and from
/// the other's. Returns `true` if the enemy had a connection of its own.
///
/// # Panics
/// If a manager panics, if its tables contradict each other, or if the connected managers see any event.
pub fn manager(bytes: &[u8]) -> bool {
    let mut scene = Scene::new(bytes);
    let ids = scene.establish();
    let mut script = Script::new(bytes);
    while let Some(step) = script.byte() {
        scene.play(step, &mut script);
        scene.ends.iter().for_each(|end| check(end, scene.now));
    }
    for (end, id) in scene.ends.iter().zip(ids) {
        let connection = end.connections.get(&id).expect("nobody ended it");
        assert_eq!(connection.state, State::Established, "an enemy cannot guess an ID");
    }
    scene.enemy_connected
}

struct Scene {
    now: Instant,
    ends: [Manager; 2],
    /// The server's side of the enemy's connections, and the IDs that the server sent to it.
    enemy: Vec<CommunicationId>,
    enemy_connected: bool,
}

fn offer() -> Offer {
    Offer { queue_pair: 5, mtu: 5, private_data: vec![9; 3], ..Offer::default() }
}

impl Scene {
    fn new(bytes: &[u8]) -> Self {
        // Every input has its own IDs: a fuzzer that changes bytes until a comparison holds learns none of them.
        let seed = Fnv1a::new().with(bytes.iter().copied()).finish();
        let key = |end| u128::from(seed ^ end).to_le_bytes();
        let mut ends = [0, 1].map(|end| Manager::new(key(end)));
        for space in [Space::Connected, Space::Datagram] {
            ends[LISTENER].listen(space, address(1), SERVER, BACKLOG);
        }
        let now = Instant::from_nanos(1);
        Self { now, ends, enemy: Vec::new(), enemy_connected: false }
    }

    /// Connects the client and the server.
    fn establish(&mut self) -> [CommunicationId; 2] {
        let between = AddressPair { local: address(0), remote: address(1) };
        let client = self.ends[CLIENT].connect(self.now, Space::Connected, between, offer());
        self.deliver();
        let Some((server, Event::Requested { .. })) = self.ends[LISTENER].poll_event() else {
            panic!("there is a request");
        };
        assert!(self.ends[LISTENER].accept(self.now, server, offer()));
        self.deliver();
        assert!(self.ends[CLIENT].ready(self.now, client));
        self.deliver();
        [client, server]
    }

    /// Delivers each sent datagram to its destination.
    fn deliver(&mut self) {
        while let Some((from, sent)) = self
            .ends
            .iter_mut()
            .enumerate()
            .find_map(|(end, manager)| manager.poll_transmit().map(|transmit| (end, transmit)))
        {
            assert!(message(&sent.bytes), "every datagram sent is a message");
            if sent.to == address(ENEMY) {
                let id = Message::parse(&sent.bytes).expect("looked just now").from;
                self.enemy.push(id);
            } else {
                let to = if sent.to == address(0) { CLIENT } else { LISTENER };
                assert_ne!(from, to);
                let addresses = AddressPair { local: sent.to, remote: sent.from };
                self.ends[to].handle_datagram(self.now, addresses, &sent.bytes);
            }
        }
    }

    fn play(&mut self, step: u8, script: &mut Script<'_>) {
        match step % 8 {
            0 => self.arrive(ENEMY, script.piece()),
            1 | 2 => {
                let bytes = forged(script, &self.enemy).emit();
                self.arrive(ENEMY, &bytes);
            }
            // In the client's name, of which the enemy knows only the address.
            3 => {
                let bytes = forged(script, &[]).emit();
                self.arrive(0, &bytes);
            }
            4 => self.answer(script),
            5 => {
                // The owner acts on a connection that the enemy began.
                let Some(&id) = self.enemy.get(script.below(4)) else { return };
                let (server, now) = (&mut self.ends[LISTENER], self.now);
                let is_enemy = |it: &Connection| it.addresses.remote == address(ENEMY);
                if !server.connections.get(&id).is_some_and(is_enemy) {
                    return;
                }
                match script.below(4) {
                    0 => _ = server.notify(now, id),
                    1 => _ = server.disconnect(now, id),
                    2 => server.handle_refused(now, address(1), address(ENEMY)),
                    _ => server.forget(now, id),
                }
            }
            6 => self.deliver(),
            // Longer than the longest timer; more steps pass more.
            _ => self.pass(Duration::from_millis(u64::from(script.half()).min(MAX_PASSED))),
        }
    }

    /// Delivers a datagram to the server.
    fn arrive(&mut self, from: u8, bytes: &[u8]) {
        let server = &mut self.ends[LISTENER];
        let before = (server.out.transmits.len(), server.out.events.len());
        let addresses = AddressPair { local: address(1), remote: address(from) };
        server.handle_datagram(self.now, addresses, bytes);
        let transmits = server.out.transmits.iter().skip(before.0);
        let answered: usize = transmits.map(|sent| sent.bytes.len()).sum();
        assert!(answered <= 256, "one datagram was answered with {answered} bytes");
        assert!(server.out.events.len() <= before.1 + 2);
    }

    /// Has the server's owner answer a request.
    fn answer(&mut self, script: &mut Script<'_>) {
        let server = &mut self.ends[LISTENER];
        let Some((id, event)) = server.poll_event() else { return };
        if let Event::Requested { listener, local, remote, .. } = event {
            assert_eq!((listener, local), (SERVER, address(1)));
            self.enemy_connected |= remote == address(ENEMY);
            self.enemy.insert(0, id);
            // The peer that asked may have gone since.
            match script.below(3) {
                0 => _ = server.reject(self.now, id, Rejection::CONSUMER),
                1 => {}
                _ => _ = server.accept(self.now, id, offer()),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        self.deliver();
        while let Some(at) = self.ends.iter().filter_map(Manager::poll_timeout).min()
            && at <= until
        {
            self.now = at.max(self.now);
            let now = self.now;
            self.ends.iter_mut().for_each(|end| end.handle_timeout(now));
            self.deliver();
        }
        self.now = until;
    }
}

/// Returns a message as an enemy writes it.
fn forged(script: &mut Script<'_>, known: &[CommunicationId]) -> Message {
    let from = CommunicationId(u32::from(script.byte().unwrap_or(0)) + 1);
    let choice = script.below(8);
    let to = match known.get(choice) {
        Some(&id) => id,
        None if choice < 6 => CommunicationId::NONE,
        None => CommunicationId(script.word()),
    };
    let offer = Offer {
        queue_pair: script.word() >> 8,
        mtu: 1 + script.byte().unwrap_or(0) % 5,
        private_data: script.take(choice * 8).to_vec(),
        ..Offer::default()
    };
    let body = match script.below(11) {
        0 => Body::Request(offer),
        1 => Body::Received,
        2 => Body::Reply(offer),
        3 => Body::ReadyToUse,
        4 => Body::Reject { reason: Reason(script.half()), private_data: offer.private_data },
        5 => Body::DisconnectRequest,
        6 => Body::DisconnectReply,
        7 => Body::ServiceRequest(offer),
        8 => Body::ServiceReply(offer),
        9 => Body::Probe,
        _ => Body::ProbeReply,
    };
    Message { from, to, copy: script.byte().unwrap_or(0), body }
}

/// Checks the invariants of a manager's tables: each has an entry for each connection that belongs there, and no other.
/// It makes no tables of its own, because it runs after every step.
fn check(manager: &Manager, now: Instant) {
    let connections = || manager.connections.values();
    let due = connections().filter_map(|it| Some((it.deadline?, it.own)));
    assert!(due.clone().all(|it| manager.deadlines.contains(&it)));
    assert_eq!(manager.deadlines.len(), due.count());
    let first = manager.deadlines.first();
    assert!(first.is_none_or(|(at, _)| *at + Duration::from_secs(70) > now));
    assert!(manager.connections.iter().all(|(id, it)| *id == it.own));
    assert!(connections().all(|it| it.state != State::Closed), "a closed connection is removed");
    check_counts(&manager.users, || connections().map(|it| it.addresses.local));
    check_counts(&manager.waiting, || {
        connections().filter_map(|it| match (it.side, it.state) {
            (Side::Passive { listener }, State::RequestReceived) => Some(listener),
            _ => None,
        })
    });
    assert!(manager.waiting.values().all(|&count| count <= BACKLOG));
    for (&peer, id) in &manager.requested {
        let it = &manager.connections[id];
        assert_eq!((it.addresses, it.peer), peer);
    }
}

/// Checks that `counts` has the number of each key.
fn check_counts<K: Ord + Copy + core::fmt::Debug, I: Iterator<Item = K>>(
    counts: &BTreeMap<K, u32>,
    keys: impl Fn() -> I,
) {
    for (&key, &count) in counts {
        assert!(count > 0, "{key:?} has no entry");
        assert_eq!(keys().filter(|it| *it == key).count(), count as usize, "{key:?}");
    }
    assert!(keys().all(|key| counts.contains_key(&key)));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::inputs::{corpus, survive};

    fn inputs(target: &str) -> Vec<Vec<u8>> {
        corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(target))
    }

    #[test]
    fn no_damaged_message_breaks_a_promise() {
        let taken = survive(&inputs("rdmacm_message.corpus"), 50_000, message);
        assert!(taken > 2_500, "only {taken} were messages: the mutants are too wild");
    }

    #[test]
    fn no_enemy_ends_other_connections_or_corrupts_the_tables() {
        let connected = survive(&inputs("rdmacm.corpus"), 20_000, manager);
        assert!(connected > 1_000, "only {connected} asked for a connection");
    }
}
