//! Peers that violate the protocol end their own connection and access no memory.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use weft_transport::{Admission, Arrival, ConnectionId};
use weft_units::{Duration, Seed};
use weft_wire::{Packet, RdmaHeader, RdmaOpcode, SetupHeader, SetupKind, U24};

use super::network::{BASE, End, Fate, LENGTH, Network, address};
use crate::*;

const RC: Service = Service::ReliableConnected;

type Captured = (Packet, RdmaHeader);

/// Has `a` post a request; returns its packets, none of which reaches `b`.
fn capture(network: &mut Network, a: &End, operation: Operation, length: u32) -> Vec<Captured> {
    let (Operation::Write(remote) | Operation::Atomic { remote, .. }) = operation else {
        unreachable!("no other is captured")
    };
    // Afterwards the ends are connected, and no packet is in flight.
    let sges = [a.sge(0, 8)];
    let first = SendRequest::new(1, Operation::Write(remote), Data::Gather(&sges));
    network.post(a, &first);
    assert_eq!(network.outcomes(a, 1), [(1, Status::Success)]);
    network.run_for(Duration::from_micros(100));
    let caught = Rc::new(RefCell::new(Vec::new()));
    let net = caught.clone();
    network.rule = Box::new(move |on_link| match on_link.rdma {
        Some(header) if on_link.from == 0 => {
            net.borrow_mut().push((*on_link.packet, *header));
            Fate::Drop
        }
        _ => Fate::Pass,
    });
    let sges = [a.sge(0, length)];
    network.post(a, &SendRequest::new(2, operation, Data::Gather(&sges)));
    network.run_for(Duration::from_micros(20));
    caught.take()
}

fn inject(network: &mut Network, packet: &Packet, header: Option<&RdmaHeader>, payload: &[u8]) {
    let (from, received_at) = (address(0), network.now);
    let arrival = Arrival { from, received_at, congestion_experienced: false, hops: 1 };
    network.inject(1, &arrival, packet, header, payload);
}

/// Asserts that the forged packets change nothing at `b`, and that the request of `a` fails.
fn assert_harmless(network: &mut Network, a: &End, b: &End, forged: &[Captured]) {
    let before = network.hosts[b.host].memory.bytes.clone();
    for (packet, header) in forged {
        let Packet::Data(_, Some(message)) = packet else { unreachable!("it is a message's") };
        let len = (message.length - message.offset).min(256) as usize;
        inject(network, packet, Some(header), &[0xbb; 256][..len]);
    }
    network.run_for(Duration::from_micros(20));
    assert_eq!(network.hosts[b.host].memory.bytes, before);
    assert_eq!(network.outcomes(a, 1), [(2, Status::RetryExceeded)]);
    assert_eq!(network.hosts[b.host].device.query_qp(b.qp).unwrap().0, State::ReadyToSend);
    assert!(network.hosts[b.host].memory.held.is_empty());
}

#[test]
fn packets_of_one_message_that_name_different_memory_end_the_connection() {
    let (mut network, a, b) = Network::pair(RC);
    let mut caught = capture(&mut network, &a, Operation::Write(b.remote(0)), 600);
    let (packet, header) = caught.remove(0);
    inject(&mut network, &packet, Some(&header), &[0; 256]);
    caught[0].1.address += 30_000;
    assert_harmless(&mut network, &a, &b, &caught);
}

#[test]
fn another_queue_pair_cannot_be_named() {
    let (mut network, a, b) = Network::pair(RC);
    let (other, tenant) = (network.end(0, RC), network.end(1, RC));
    network.join(&other, &tenant, |_| ());
    let mut caught = capture(&mut network, &a, Operation::Write(b.remote(0)), 600);
    for (_, header) in &mut caught {
        header.destination_qp = U24::truncate(tenant.qp.0);
        header.key = tenant.key;
    }
    assert_harmless(&mut network, &a, &b, &caught);
    network.rule = Box::new(|_| Fate::Pass);
    let sges = [other.sge(0, 10)];
    let write = SendRequest::new(1, Operation::Write(tenant.remote(0)), Data::Gather(&sges));
    network.post(&other, &write);
    assert_eq!(network.outcomes(&other, 1), [(1, Status::Success)], "the tenant noticed nothing");
}

#[test]
fn unexpected_responses_and_operations_of_other_services_end_the_connection() {
    for operation in [
        RdmaOpcode::RcReadResponse,
        RdmaOpcode::RcAcknowledge,
        RdmaOpcode::UcWrite,
        RdmaOpcode::UdSend,
    ] {
        let (mut network, a, b) = Network::pair(RC);
        let mut caught = capture(&mut network, &a, Operation::Write(b.remote(0)), 600);
        for (packet, _) in &mut caught {
            let Packet::Data(_, Some(message)) = packet else { unreachable!("it is a message's") };
            message.opcode = operation as u8;
        }
        assert_harmless(&mut network, &a, &b, &caught);
    }
}

#[test]
fn an_atomic_without_operands_is_invalid() {
    let (mut network, a, b) = Network::pair(RC);
    let add =
        Operation::Atomic { remote: b.remote(0), operation: AtomicOperation::FetchAdd { add: 1 } };
    let caught = capture(&mut network, &a, add, 8);
    let (packet, header) = caught[0];
    let before = network.memory(&b).to_vec();
    inject(&mut network, &packet, Some(&RdmaHeader { operands: None, ..header }), &[]);
    assert_eq!(network.outcomes(&a, 1), [(2, Status::RemoteInvalidRequest)]);
    assert_eq!(network.memory(&b), before);
}

#[test]
fn a_packet_without_rdma_header_ends_the_connection() {
    let (mut network, a, b) = Network::pair(RC);
    let caught = capture(&mut network, &a, Operation::Write(b.remote(0)), 8);
    inject(&mut network, &caught[0].0, None, &[0; 8]);
    assert_eq!(network.outcomes(&a, 1), [(2, Status::RetryExceeded)]);
}

#[test]
fn queue_pairs_that_disagree_about_their_first_psn_never_report_a_success() {
    let mut network = Network::new(2);
    let (a, b) = (network.end(0, RC), network.end(1, RC));
    network.join(&a, &b, |attributes| {
        if let Some(psn) = &mut attributes.rq_psn {
            *psn = 5;
        }
    });
    let sges = [a.sge(0, 100)];
    let write = SendRequest::new(1, Operation::Write(b.remote(0)), Data::Gather(&sges));
    network.post(&a, &write);
    assert_eq!(network.outcomes(&a, 1), [(1, Status::RetryExceeded)]);
}

/// Corrupts a byte or two in the headers of some packets that carry RDMA.
fn corrupt(seed: u64) -> super::network::Corruption {
    let mut rng = Seed(seed).child("corrupt", 0).rng();
    Box::new(move |from, bytes| {
        let rdma = Packet::parse(bytes).is_ok_and(|(packet, _)| packet.announces_rdma());
        if from == 0 && rdma && rng.chance(1, 20) {
            for _ in 0..=rng.below(2) {
                let at = rng.index(bytes.len().min(80));
                bytes[at] = rng.next_u64().to_le_bytes()[7];
            }
        }
    })
}

#[test]
fn corrupted_packets_write_only_memory_that_the_peer_may_write() {
    let mut failed = 0;
    for seed in 0..300 {
        let mut network = Network::new(2);
        let (a, b) = (network.end(0, RC), network.end(1, RC));
        network.fill(&b, seed);
        // The peer may access the first quarter; receive requests are in the second.
        let device = &mut network.hosts[1].device;
        device.deregister(b.key).unwrap();
        let quarter = LENGTH / 4;
        let region = |from: u64, access| RegionRequest {
            owner: b.owner,
            address: from,
            length: quarter,
            iova: BASE + from,
            access,
        };
        let rights = super::network::every_right();
        let open = device.register(b.domain, &region(0, rights)).unwrap();
        let own = device.register(b.domain, &region(quarter, Access::LOCAL_WRITE)).unwrap();
        device.register(b.domain, &region(2 * quarter, Access::NONE)).unwrap();
        let reach = usize::try_from(2 * quarter).unwrap();
        let private = network.memory(&b)[reach..].to_vec();
        network.join(&a, &b, |_| ());
        network.corrupt = corrupt(seed);
        let mut rng = Seed(seed).rng();
        for wr_id in 0..30 {
            let slot = Sge { lkey: own, ..b.sge(quarter + 500 * wr_id, 500) };
            network.post_receive(&b, wr_id, &[slot]);
            let remote = Remote { address: BASE + 8 * rng.below(1000), rkey: open };
            let (operation, len) = match rng.below(5) {
                0 => (Operation::Send, 500),
                1 => (Operation::Read(remote), 700),
                2 => (
                    Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } },
                    8,
                ),
                3 => (Operation::WriteWithImmediate(remote, 5), 900),
                _ => (Operation::Write(remote), 900),
            };
            let sges = [a.sge(0, len)];
            network.post(&a, &SendRequest::new(wr_id, operation, Data::Gather(&sges)));
        }
        let outcomes = network.outcomes(&a, 30);
        failed += usize::from(outcomes.iter().any(|(_, status)| *status != Status::Success));
        assert!(network.memory(&b)[reach..] == private, "seed {seed}");
    }
    assert!(failed > 100, "most were found out: {failed}");
}

/// Returns the connections of a host's queue pairs.
fn connections(network: &Network, host: usize) -> Vec<ConnectionId> {
    network.hosts[host].device.connections().map(|connection| connection.id).collect()
}

/// Attacker: a host on the path, which repeats a request of `a` under another connection id with a token that it sees,
/// and keeps the answers from `a`. The request of an encrypted connection proves nothing about its sender; one in the
/// clear closes the older connection.
#[test]
fn an_unproven_request_closes_no_older_connection_of_its_queue_pair() {
    for (admission, stays) in [(Admission::AdmitSealed, true), (Admission::Admit, false)] {
        let (mut network, a, b) = Network::pair(RC);
        let seen = record_setup(&mut network, None);
        let sges = [a.sge(0, 8)];
        let write = |network: &mut Network, wr_id| {
            let write = Operation::Write(b.remote(0));
            network.post(&a, &SendRequest::new(wr_id, write, Data::Gather(&sges)));
            assert_eq!(network.outcomes(&a, 1), [(wr_id, Status::Success)]);
        };
        write(&mut network, 1);
        let older = [0, 1].map(|host| connections(&network, host));
        assert_eq!(older.each_ref().map(Vec::len), [1, 1]);

        let answers = record_setup(&mut network, Some(b.host));
        let is_request = |header: &&SetupHeader| header.kind == SetupKind::Request;
        let mut forged = *seen.borrow().iter().rfind(is_request).unwrap();
        forged.local_cid ^= 1;
        forged.terms.as_mut().unwrap().token = 0;
        inject(&mut network, &Packet::Setup(forged), None, &[]);
        network.drain();
        let challenge = answers.borrow()[0];
        assert_eq!(challenge.kind, SetupKind::Challenge);
        forged.terms.as_mut().unwrap().token = challenge.terms.unwrap().token;
        let (from, now) = (address(a.host), network.now);
        let arrival = Arrival { from, received_at: now, congestion_experienced: false, hops: 1 };
        network.hosts[b.host].device.handle_admission(now, &arrival, &forged, admission);
        network.drain();
        let is_accept = |header: &SetupHeader| {
            header.kind == SetupKind::Accept && header.destination_cid == forged.local_cid
        };
        assert!(answers.borrow().iter().any(is_accept));
        assert_eq!(connections(&network, b.host) == older[1], stays);
        if stays {
            write(&mut network, 2);
            // Nobody proves the request's sender before the peer timeout.
            network.run_for(Duration::from_millis(30));
            write(&mut network, 3);
            assert_eq!([0, 1].map(|host| connections(&network, host)), older);
        }
    }
}

/// Records the set-up packets that hosts send from now on; those of host `kept` do not arrive.
fn record_setup(network: &mut Network, kept: Option<usize>) -> Rc<RefCell<Vec<SetupHeader>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let on_path = seen.clone();
    network.rule = Box::new(move |on_link| {
        let Packet::Setup(header) = on_link.packet else { return Fate::Pass };
        on_path.borrow_mut().push(*header);
        if kept == Some(on_link.from) { Fate::Drop } else { Fate::Pass }
    });
    seen
}
