//! Datagrams arrive completely or not at all, from any sender with the Q_Key.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weft_units::{Duration, Seed};

use super::network::{End, Fate, Network, address};
use crate::*;

pub(super) const KEY: u32 = 0x1111;

/// Creates a datagram queue pair that is ready to send.
pub(super) fn end(network: &mut Network, host: usize) -> End {
    let end = network.end(host, Service::UnreliableDatagram);
    let init = Attributes {
        state: Some(State::Init),
        pkey_index: Some(0),
        port: Some(1),
        qkey: Some(KEY),
        ..Attributes::default()
    };
    network.modify(&end, &init);
    let to = |state| Attributes { state: Some(state), ..Attributes::default() };
    network.modify(&end, &to(State::ReadyToReceive));
    network.modify(&end, &Attributes { sq_psn: Some(0), ..to(State::ReadyToSend) });
    end
}

pub(super) fn to(end: &End) -> Datagram {
    Datagram { address: address(end.host), qp: end.qp, qkey: KEY }
}

pub(super) fn post(network: &mut Network, end: &End, wr_id: u64, sge: Sge, datagram: Datagram) {
    let data = [sge];
    let request = SendRequest {
        datagram: Some(datagram),
        ..SendRequest::new(wr_id, Operation::SendWithImmediate(77), Data::Gather(&data))
    };
    network.post(end, &request);
}

#[test]
pub(super) fn a_datagram_follows_its_route_header_and_names_its_source() {
    let mut network = Network::new(3);
    let senders = [end(&mut network, 0), end(&mut network, 1)];
    let receiver = end(&mut network, 2);
    for (wr_id, sender) in (0..).zip(&senders) {
        network.fill(sender, wr_id);
        network.post_receive(&receiver, wr_id, &[receiver.sge(2000 * wr_id, 1040)]);
    }
    for sender in &senders {
        post(&mut network, sender, 5, sender.sge(0, 1000), to(&receiver));
        assert_eq!(network.outcomes(sender, 1), [(5, Status::Success)]);
    }
    let got = network.completions(&receiver, 2);
    for (completion, sender) in got.iter().zip(&senders) {
        let source = DatagramSource { qp: sender.qp, address: address(sender.host) };
        assert_eq!((completion.length, completion.source), (1040, Some(source)));
        assert_eq!(completion.extra, Some(Extra::Immediate(77)));
        let at = 2000 * usize::try_from(completion.wr_id).unwrap();
        let sent = network.memory(sender)[..1000].to_vec();
        let header = network.hosts[2].memory.route_header(address(sender.host), 1000);
        assert_eq!(network.memory(&receiver)[at..at + 40], header);
        assert_eq!(network.memory(&receiver)[at + 40..at + 1040], sent);
    }
}

#[test]
pub(super) fn unacceptable_datagrams_are_dropped_silently() {
    let mut network = Network::new(2);
    let (a, b) = (end(&mut network, 0), end(&mut network, 1));
    let rc = network.end(1, Service::ReliableConnected);
    let good = to(&b);
    for wrong in [
        Datagram { qkey: KEY + 1, ..good },
        Datagram { qp: QueuePairNumber(b.qp.0 + 1), ..good },
        Datagram { qp: rc.qp, ..good },
    ] {
        network.post_receive(&b, 1, &[b.sge(0, 1040)]);
        post(&mut network, &a, 1, a.sge(0, 1000), wrong);
        assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    }
    post(&mut network, &a, 2, a.sge(0, 1001), good);
    assert_eq!(network.outcomes(&a, 1), [(2, Status::Success)]);
    network.run_for(Duration::from_millis(1));
    assert_eq!(network.poll(&b), None);
    assert!(network.hosts[1].memory.writes.is_empty());
    // A Q_Key with its highest bit set requests the sending queue pair's own Q_Key.
    post(&mut network, &a, 3, a.sge(0, 1000), Datagram { qkey: 1 << 31, ..good });
    assert_eq!(network.outcomes(&b, 1), [(1, Status::Success)]);
}

#[test]
fn an_unreachable_host_loses_only_its_own_datagrams() {
    let mut network = Network::new(2);
    let (a, b) = (end(&mut network, 0), end(&mut network, 1));
    let nowhere = Datagram { address: address(9), ..to(&b) };
    network.post_receive(&b, 8, &[b.sge(0, 1040)]);
    post(&mut network, &a, 1, a.sge(0, 10), nowhere);
    post(&mut network, &a, 2, a.sge(0, 10), to(&b));
    let mut outcomes = Vec::new();
    for _ in 0..20 {
        network.run_for(Duration::from_secs(1));
        outcomes.extend(core::iter::from_fn(|| network.poll(&a)).map(|c| (c.wr_id, c.status)));
    }
    assert_eq!(outcomes, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(network.outcomes(&b, 1), [(8, Status::Success)]);
}

#[test]
fn a_datagram_that_cannot_be_sent_stops_the_send_queue_until_it_is_restarted() {
    let mut network = Network::new(2);
    let (a, b) = (end(&mut network, 0), end(&mut network, 1));
    post(&mut network, &a, 1, a.sge(0, 4097), to(&b));
    post(&mut network, &a, 2, a.sge(0, 10), to(&b));
    let expected = [(1, Status::LocalLength), (2, Status::WrFlush)];
    assert_eq!(network.outcomes(&a, 2), expected);
    assert_eq!(network.hosts[0].device.query_qp(a.qp).unwrap().0, State::SendQueueError);
    let restart = Attributes { state: Some(State::ReadyToSend), ..Attributes::default() };
    network.modify(&a, &restart);
    post(&mut network, &a, 3, a.sge(0, 10), to(&b));
    assert_eq!(network.outcomes(&a, 1), [(3, Status::Success)]);
}

#[test]
pub(super) fn destroying_a_queue_pair_drops_only_its_own_datagrams() {
    let mut network = Network::new(2);
    let (a, other) = (end(&mut network, 0), end(&mut network, 0));
    let b = end(&mut network, 1);
    network.fill(&other, 3);
    for wr_id in 0..40 {
        network.post_receive(&b, wr_id, &[b.sge(1024 * wr_id, 1024)]);
    }
    let mut rng = Seed(4).rng();
    network.rule = Box::new(move |_| match rng.below(10) {
        0..4 => Fate::Drop,
        _ => Fate::Delay(Duration::from_nanos(rng.below(50_000))),
    });
    for wr_id in 0..10 {
        post(&mut network, &a, wr_id, a.sge(0, 900), to(&b));
        post(&mut network, &other, wr_id, other.sge(0, 900), to(&b));
    }
    network.run_for(Duration::from_micros(60));
    let now = network.now;
    network.hosts[0].device.deregister(a.key).unwrap();
    network.hosts[0].device.destroy_qp(now, a.qp).unwrap();
    assert_eq!(network.outcomes(&other, 10).len(), 10);
    network.run_for(Duration::from_millis(1));
    let sent = network.memory(&other)[..900].to_vec();
    let mut got = 0;
    while let Some(completion) = network.poll(&b) {
        if completion.source.is_some_and(|source| source.qp == other.qp) {
            let at = 1024 * usize::try_from(completion.wr_id).unwrap() + 40;
            assert_eq!(network.memory(&b)[at..at + 900], sent);
            got += 1;
        }
    }
    assert_eq!(got, 10);
}
