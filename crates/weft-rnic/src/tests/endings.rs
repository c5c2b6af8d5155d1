//! The end of objects: queue pairs that are destroyed while their peers send to them, peers that never respond, regions that are
//! reregistered.

use alloc::boxed::Box;

use weft_units::Duration;

use super::network::{BASE, End, Fate, Network, every_right};
use crate::*;

const RC: Service = Service::ReliableConnected;

#[test]
fn a_destroyed_peer_is_reported_only_after_the_retry_timeout() {
    let (mut network, a, b) = Network::pair(RC);
    let wr_id = 1;
    let remote = Remote { address: BASE, rkey: b.key };
    let sges = [a.sge(0, 8)];
    // The peer's acknowledgement is lost.
    network.rule = Box::new(|link| if link.from == 1 { Fate::Drop } else { Fate::Pass });
    network.post(&a, &SendRequest::new(wr_id, Operation::Write(remote), Data::Gather(&sges)));
    network.run_for(Duration::from_micros(50));
    network.rule = Box::new(|_| Fate::Pass);
    let now = network.now;
    network.hosts[1].device.modify_qp(now, b.qp, &to(State::Reset)).unwrap();
    network.run_for(Duration::from_millis(3));
    assert_eq!(network.poll(&a), None);
    assert_eq!(network.outcomes(&a, 1), [(wr_id, Status::RetryExceeded)]);
}

/// Returns a pair of queue pairs with this local ACK timeout and number of retries.
fn patient_pair(timeout: u8, retries: u8) -> (Network, End, End) {
    let mut network = Network::new(2);
    let (a, b) = (network.end(0, RC), network.end(1, RC));
    network.join(&a, &b, |attributes| {
        attributes.timeout = attributes.timeout.map(|_| timeout);
        attributes.retry_count = attributes.retry_count.map(|_| retries);
    });
    (network, a, b)
}

/// The transport of these tests waits for 20 ms; two tries of 4.096 us x 2^14 last 134 ms (IBTA volume 1, chapter 9).
#[test]
fn a_silent_peer_has_the_time_of_all_retries() {
    for (timeout, silent, fails) in [(14, 120, false), (14, 150, true), (0, 5_000, false)] {
        for reads in [false, true] {
            let (mut network, a, b) = patient_pair(timeout, 1);
            let remote = Remote { address: BASE, rkey: b.key };
            let sges = [a.sge(0, 8)];
            let request =
                |wr_id, operation| SendRequest::new(wr_id, operation, Data::Gather(&sges));
            network.post(&a, &request(1, Operation::Write(remote)));
            assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
            // A READ arrives, so that the responder waits for its peer, too.
            let mut passes = reads;
            network.rule = Box::new(move |_| match core::mem::take(&mut passes) {
                true => Fate::Pass,
                false => Fate::Drop,
            });
            let operation = if reads { Operation::Read(remote) } else { Operation::Write(remote) };
            network.post(&a, &request(2, operation));
            network.run_for(Duration::from_millis(silent));
            network.rule = Box::new(|_| Fate::Pass);
            let expected = if fails { Status::RetryExceeded } else { Status::Success };
            assert_eq!(network.outcomes(&a, 1), [(2, expected)], "{timeout}, {silent} ms, {reads}");
        }
    }
}

/// Eight tries of 1.07 s, where the transport gives a connection up after 20 ms.
#[test]
fn a_connection_is_attempted_for_the_time_of_all_retries() {
    for (silent, expected) in [(8, Status::Success), (9, Status::RetryExceeded)] {
        let (mut network, a, b) = patient_pair(18, 7);
        let remote = Remote { address: BASE, rkey: b.key };
        let sges = [a.sge(0, 8)];
        network.rule = Box::new(|_| Fate::Drop);
        network.post(&a, &SendRequest::new(1, Operation::Write(remote), Data::Gather(&sges)));
        network.run_for(Duration::from_secs(silent));
        network.rule = Box::new(|_| Fate::Pass);
        assert_eq!(network.outcomes(&a, 1), [(1, expected)]);
    }
}

/// A program that closes a connection checks this first, so that completions of finished requests are not lost.
#[test]
fn work_is_unseen_until_its_completion_is_polled() {
    let (mut network, a, b) = Network::pair(RC);
    let remote = Remote { address: BASE, rkey: b.key };
    let sges = [a.sge(0, 8)];
    let unseen = |network: &Network| network.hosts[0].device.has_unseen(a.qp);
    assert!(!unseen(&network));
    network.post(&a, &SendRequest::new(1, Operation::Write(remote), Data::Gather(&sges)));
    assert!(unseen(&network), "it is in flight");
    network.run_for(Duration::from_millis(1));
    assert!(unseen(&network), "it is done, and its completion is not polled");
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    assert!(!unseen(&network));
    network.post(&a, &SendRequest::new(2, Operation::Write(remote), Data::Gather(&sges)));
    let now = network.now;
    network.hosts[0].device.modify_qp(now, a.qp, &to(State::Error)).unwrap();
    assert!(!unseen(&network), "the program ended it itself");
}

fn to(state: State) -> Attributes {
    Attributes { state: Some(state), ..Attributes::default() }
}

#[test]
pub(super) fn an_executed_request_succeeds_although_its_queue_pair_was_destroyed() {
    let (mut network, a, b) = Network::pair(RC);
    let remote = Remote { address: BASE, rkey: b.key };
    let sges = [a.sge(0, 8)];
    let request = |wr_id| SendRequest::new(wr_id, Operation::Write(remote), Data::Gather(&sges));
    network.post(&a, &request(1));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    network.rule = Box::new(|link| if link.from == 1 { Fate::Drop } else { Fate::Pass });
    network.post(&a, &request(2));
    network.run_for(Duration::from_micros(50));
    let now = network.now;
    network.hosts[1].device.destroy_qp(now, b.qp).unwrap();
    network.run_for(Duration::from_micros(50));
    network.rule = Box::new(|_| Fate::Pass);
    assert_eq!(network.outcomes(&a, 1), [(2, Status::Success)]);
    // The next request finds no queue pair.
    network.post(&a, &request(3));
    assert_eq!(network.outcomes(&a, 1), [(3, Status::RetryExceeded)]);
}

/// A program ends a connection and uses its queue pair for another, while the former peer still sends.
#[test]
pub(super) fn a_former_peer_does_not_disturb_a_queue_pair_that_is_used_again() {
    let (mut network, a, b) = Network::pair(RC);
    let former = network.end(1, RC);
    network.ready_to_receive(&former, &a, |_: &mut Attributes| ());
    network.ready_to_send(&former, |_: &mut Attributes| ());
    let remote = Remote { address: BASE, rkey: a.key };
    let write = |network: &mut Network, end: &End, wr_id| {
        let sges = [end.sge(0, 8)];
        network.post(end, &SendRequest::new(wr_id, Operation::Write(remote), Data::Gather(&sges)));
    };
    write(&mut network, &b, 0);
    assert_eq!(network.outcomes(&b, 1), [(0, Status::Success)]);
    write(&mut network, &former, 0);
    for wr_id in 1..100 {
        let posted = network.now;
        write(&mut network, &b, wr_id);
        assert_eq!(network.outcomes(&b, 1), [(wr_id, Status::Success)]);
        // A retry would wait for the timeout.
        let took = network.now.since(posted);
        assert!(took < Duration::from_micros(100), "{took}");
    }
    assert_eq!(network.outcomes(&former, 1), [(0, Status::RetryExceeded)]);
}

#[test]
fn shut_down_returns_true_once_no_peer_has_a_connection() {
    let (mut network, a, b) = Network::pair(RC);
    let remote = Remote { address: BASE, rkey: b.key };
    let sges = [a.sge(0, 8)];
    network.post(&a, &SendRequest::new(1, Operation::Write(remote), Data::Gather(&sges)));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    let now = network.now;
    assert!(!network.hosts[1].device.shut_down(now), "a peer may retransmit");
    assert_eq!(network.hosts[1].device.query_qp(b.qp).ok(), None);
    assert!(network.hosts[0].device.shut_down(now));
    network.run_for(Duration::from_millis(1));
    let now = network.now;
    assert!(network.hosts[1].device.shut_down(now));
}

#[test]
fn a_reregistered_region_keeps_only_its_key() {
    let (mut network, a, b) = Network::pair(RC);
    let context = b.context;
    let device = &mut network.hosts[1].device;
    let other = device.allocate_domain(context).unwrap();
    device.reregister(b.key, Some(other), |_| ()).unwrap();
    assert_eq!(device.deallocate_domain(other), Err(VerbsError::Busy { users: 1 }));
    device.reregister(b.key, Some(b.domain), |region| region.access = Access::NONE).unwrap();
    device.deallocate_domain(other).unwrap();
    let bad = |region: &mut RegionRequest| region.access = Access::REMOTE_WRITE;
    assert!(device.reregister(b.key, None, bad).is_err(), "remote writing needs local writing");
    let remote = Remote { address: BASE, rkey: b.key };
    let sges = [a.sge(0, 8)];
    network.post(&a, &SendRequest::new(1, Operation::Write(remote), Data::Gather(&sges)));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::RemoteAccess)]);
    let all = |region: &mut RegionRequest| region.access = every_right();
    network.hosts[1].device.reregister(b.key, None, all).unwrap();
}
