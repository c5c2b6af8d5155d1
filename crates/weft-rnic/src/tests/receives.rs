//! Messages with too few receive requests, while packets are reordered.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weft_units::{Duration, Seed};

use super::network::{End, Fate, Network, request};
use crate::*;

const RC: Service = Service::ReliableConnected;

fn disorder(network: &mut Network, seed: u64) {
    let mut rng = Seed(seed).child("disorder", 0).rng();
    network.rule = Box::new(move |_| match rng.below(10) {
        0 => Fate::Drop,
        1 => Fate::Duplicate,
        2..8 => Fate::Delay(Duration::from_nanos(rng.below(60_000))),
        _ => Fate::Pass,
    });
}

/// Posts a SEND whose immediate data is the number of the part of memory that it carries.
fn send(network: &mut Network, end: &End, number: u32, len: u32) {
    let sges = [end.sge(u64::from(number) * 100, len)];
    let operation = Operation::SendWithImmediate(number);
    network.post(end, &SendRequest::new(number.into(), operation, Data::Gather(&sges)));
}

/// Asserts that a receive request got the part that its completion names; returns its number.
fn check(network: &mut Network, from: &End, to: &End, slot: u64, completion: &Completion) -> u32 {
    assert_eq!(completion.status, Status::Success);
    let Some(Extra::Immediate(number)) = completion.extra else { panic!("{completion:?}") };
    let (at, len) = (number as usize * 100, completion.length as usize);
    let sent = network.memory(from)[at..at + len].to_vec();
    let slot = usize::try_from(slot).unwrap();
    assert!(network.memory(to)[slot..slot + len] == sent, "{completion:?}");
    number
}

#[test]
pub(super) fn an_empty_shared_queue_loses_and_reorders_no_message() {
    for seed in 0..20 {
        let mut network = Network::new(3);
        let clients = [network.end(0, RC), network.end(1, RC)];
        let server = network.end(2, RC);
        let device = &mut network.hosts[2].device;
        let srq = device.create_srq(server.domain, 16, 1).unwrap();
        let shared = QueuePairRequest { srq: Some(srq), ..request(server.domain, server.cq, RC) };
        let servers = [0, 1].map(|_| End { qp: device.create_qp(&shared).unwrap(), ..server });
        for (client, served) in clients.iter().zip(&servers) {
            network.join(client, served, |_| ());
            network.fill(client, seed + u64::from(client.qp.0));
        }
        disorder(&mut network, seed);
        for number in 0..30 {
            clients.iter().for_each(|client| send(&mut network, client, number, 700));
        }
        let mut expected = [0, 0];
        let mut slot = 0;
        network.run_until(|network| {
            let sges = [server.sge(slot % 60 * 1024, 1024)];
            let posted = ReceiveRequest { wr_id: slot, sges: &sges };
            if network.hosts[2].device.post_srq_receive(srq, &posted).is_ok() {
                slot += 1;
            }
            while let Some(completion) = network.poll(&server) {
                let from = usize::from(completion.qp == servers[1].qp);
                let at = completion.wr_id % 60 * 1024;
                let number = check(network, &clients[from], &server, at, &completion);
                assert_eq!(number, expected[from], "seed {seed}: in order");
                expected[from] += 1;
            }
            expected == [30, 30]
        });
        for client in &clients {
            let outcomes = network.outcomes(client, 30);
            assert!(outcomes.iter().all(|(_, status)| *status == Status::Success), "seed {seed}");
        }
    }
}

#[test]
fn a_failed_queue_pair_leaves_the_rest_of_a_shared_queue_alone() {
    let mut network = Network::new(2);
    let (client, server) = (network.end(0, RC), network.end(1, RC));
    let device = &mut network.hosts[1].device;
    let srq = device.create_srq(server.domain, 16, 1).unwrap();
    let shared = QueuePairRequest { srq: Some(srq), ..request(server.domain, server.cq, RC) };
    let served = End { qp: device.create_qp(&shared).unwrap(), ..server };
    let sges = [server.sge(0, 10)];
    for wr_id in 0..3 {
        device.post_srq_receive(srq, &ReceiveRequest { wr_id, sges: &sges }).unwrap();
    }
    network.join(&client, &served, |_| ());
    send(&mut network, &client, 1, 11);
    assert_eq!(network.outcomes(&client, 1), [(1, Status::RemoteInvalidRequest)]);
    assert_eq!(network.outcomes(&server, 1), [(0, Status::LocalLength)]);
    assert!(network.hosts[1].events.contains(&Event::LastWqeReached { qp: served.qp }));
    let again = End { qp: network.hosts[1].device.create_qp(&shared).unwrap(), ..server };
    let other = network.end(0, RC);
    network.join(&other, &again, |_| ());
    send(&mut network, &other, 1, 10);
    send(&mut network, &other, 2, 10);
    let expected = [(1, Status::Success), (2, Status::Success)];
    assert_eq!(network.outcomes(&server, 2), expected, "two are left");
}

#[test]
fn a_receive_request_returns_to_the_shared_queue_when_its_sender_disconnects() {
    let mut network = Network::new(2);
    let (client, server) = (network.end(0, RC), network.end(1, RC));
    let device = &mut network.hosts[1].device;
    let srq = device.create_srq(server.domain, 16, 1).unwrap();
    let shared = QueuePairRequest { srq: Some(srq), ..request(server.domain, server.cq, RC) };
    let [served, other_served] =
        [0, 1].map(|_| End { qp: device.create_qp(&shared).unwrap(), ..server });
    let sges = [server.sge(0, 30_000)];
    for wr_id in 0..2 {
        device.post_srq_receive(srq, &ReceiveRequest { wr_id, sges: &sges }).unwrap();
    }
    network.join(&client, &served, |_| ());
    send(&mut network, &client, 1, 10);
    assert_eq!(network.outcomes(&server, 1), [(0, Status::Success)]);
    let mut number = 0;
    network.rule = Box::new(move |_| {
        number += 1;
        if number % 3 == 0 { Fate::Drop } else { Fate::Pass }
    });
    send(&mut network, &client, 2, 30_000);
    network.run_for(Duration::from_micros(10));
    let now = network.now;
    network.hosts[0].device.destroy_qp(now, client.qp).unwrap();
    network.rule = Box::new(|_| Fate::Pass);
    network.run_for(Duration::from_millis(100));
    assert!(network.poll(&server).is_none(), "hardware would not detect it");
    let other = network.end(0, RC);
    network.join(&other, &other_served, |_| ());
    send(&mut network, &other, 3, 10);
    assert_eq!(network.outcomes(&server, 1), [(1, Status::Success)], "it is there");
}

#[test]
fn a_receive_request_returns_to_the_shared_queue_when_payload_is_lost() {
    let mut network = Network::new(2);
    let (client, other, server) = (network.end(0, RC), network.end(0, RC), network.end(1, RC));
    let device = &mut network.hosts[1].device;
    let srq = device.create_srq(server.domain, 16, 1).unwrap();
    let shared = QueuePairRequest { srq: Some(srq), ..request(server.domain, server.cq, RC) };
    let [served, other_served] =
        [0, 1].map(|_| End { qp: device.create_qp(&shared).unwrap(), ..server });
    let sges = [server.sge(0, 10)];
    device.post_srq_receive(srq, &ReceiveRequest { wr_id: 7, sges: &sges }).unwrap();
    network.join(&client, &served, |_| ());
    network.join(&other, &other_served, |_| ());
    network.hosts[1].memory.loses_payload = true;
    send(&mut network, &client, 1, 10);
    assert_eq!(network.outcomes(&client, 1), [(1, Status::RetryExceeded)]);
    network.hosts[1].memory.loses_payload = false;
    send(&mut network, &other, 1, 10);
    assert_eq!(network.outcomes(&server, 1), [(7, Status::Success)], "it is there");
}

#[test]
pub(super) fn messages_of_uc_arrive_completely_and_in_order() {
    let mut lost = 0;
    for seed in 0..20 {
        let (mut network, a, b) = Network::pair(Service::UnreliableConnected);
        network.fill(&a, seed);
        let first = SendRequest::new(0, Operation::Write(b.remote(0)), Data::Inline(&[]));
        network.post(&a, &first);
        assert_eq!(network.outcomes(&a, 1), [(0, Status::Success)], "connected");
        disorder(&mut network, seed);
        let mut rng = Seed(seed).rng();
        let (mut sent, mut posted, mut got) = (0, 0, Vec::new());
        for _ in 0..200 {
            if rng.chance(1, 3) && sent < 60 {
                send(&mut network, &a, sent, 700);
                sent += 1;
            }
            if rng.chance(1, 4) {
                network.post_receive(&b, posted, &[b.sge(posted % 60 * 1024, 1024)]);
                posted += 1;
            }
            network.run_for(Duration::from_micros(20));
            while let Some(completion) = network.poll(&b) {
                assert_eq!(completion.wr_id, got.len() as u64, "seed {seed}");
                let at = completion.wr_id % 60 * 1024;
                got.push(check(&mut network, &a, &b, at, &completion));
            }
            while let Some(completion) = network.poll(&a) {
                assert_eq!(completion.status, Status::Success);
            }
        }
        assert!(got.is_sorted_by(|a, b| a < b), "seed {seed}: {got:?}");
        assert!(got.len() > 10, "seed {seed}: {got:?}");
        lost += sent as usize - got.len();
    }
    assert!(lost > 0, "some met no receive request");
}
