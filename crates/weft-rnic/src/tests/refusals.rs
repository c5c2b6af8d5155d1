//! Forbidden requests are refused with the matching status, and nothing is written.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weft_units::{Duration, Seed};

use super::network::{BASE, End, Fate, LENGTH, Network, request};
use crate::*;

const RC: Service = Service::ReliableConnected;
const UC: Service = Service::UnreliableConnected;

fn gather(wr_id: u64, operation: Operation, sges: &[Sge]) -> SendRequest<'_> {
    SendRequest::new(wr_id, operation, Data::Gather(sges))
}

/// Registers the same memory with other rights, or in another domain; returns the key.
fn register(network: &mut Network, end: &End, domain: ProtectionDomain, access: Access) -> u32 {
    let region = RegionRequest { owner: end.owner, address: 0, length: LENGTH, iova: BASE, access };
    network.hosts[end.host].device.register(domain, &region).unwrap()
}

/// Posts the operation between two allowed WRITEs; asserts that the first succeeds, the operation fails with `status`, the
/// rest is flushed, and only the first WRITE changes the peer's memory.
fn assert_refused(
    network: &mut Network,
    a: &End,
    b: &End,
    operation: Operation,
    length: u32,
    status: Status,
) {
    network.fill(a, 1);
    network.fill(b, 2);
    let mut expected = network.memory(b).to_vec();
    let sent = network.memory(a)[..600].to_vec();
    expected[50_000..50_600].copy_from_slice(&sent);
    let good = |wr_id, offset| {
        gather(wr_id, Operation::Write(b.remote(offset)), Box::leak(Box::new([a.sge(0, 600)])))
    };
    network.post(a, &good(1, 50_000));
    network.post(a, &gather(2, operation, &[a.sge(0, length)]));
    network.post(a, &good(3, 51_000));
    let outcomes = network.outcomes(a, 3);
    assert_eq!(
        outcomes,
        [(1, Status::Success), (2, status), (3, Status::WrFlush)],
        "{operation:?}"
    );
    assert_eq!(network.hosts[a.host].device.query_qp(a.qp).unwrap().0, State::Error);
    let is_unchanged = |got: &[u8]| {
        // The WRITE behind it is allowed, and may have been placed before the refusal.
        (0..got.len())
            .filter(|&at| got[at] != expected[at])
            .all(|at| (51_000..51_600).contains(&at))
    };
    assert!(is_unchanged(network.memory(b)), "{operation:?} wrote");
}

/// Runs until half of a message of 60,000 bytes has arrived.
fn run_half(network: &mut Network, host: usize) {
    let mut rng = Seed(9).rng();
    network.rule = Box::new(move |_| Fate::Delay(Duration::from_nanos(rng.below(100_000))));
    network.run_until(|network| network.hosts[host].memory.writes.len() > 100);
}

#[test]
pub(super) fn accesses_outside_key_bounds_rights_and_domain_are_refused() {
    let read_only = Access::REMOTE_READ;
    let write_only = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    type Target = fn(&mut Network, &End) -> Remote;
    let wrong_key: Target = |_, b| Remote { rkey: b.key ^ 1, ..b.remote(0) };
    let no_key: Target = |_, b| Remote { rkey: 0xffff_ff00, ..b.remote(0) };
    let past_end: Target = |_, b| b.remote(LENGTH - 599);
    let before_start: Target = |_, b| Remote { address: BASE - 1, rkey: b.key };
    let wraps: Target = |_, b| Remote { address: u64::MAX - 10, rkey: b.key };
    let gone: Target = |network, b| {
        let rkey = register(network, b, b.domain, super::network::every_right());
        network.hosts[b.host].device.deregister(rkey).unwrap();
        Remote { rkey, ..b.remote(0) }
    };
    let foreign: Target = |network, b| {
        let domain = network.hosts[b.host].device.allocate_domain(b.context).unwrap();
        let rkey = register(network, b, domain, super::network::every_right());
        Remote { rkey, ..b.remote(0) }
    };
    for target in [wrong_key, no_key, past_end, before_start, wraps, gone, foreign] {
        for kind in 0..3 {
            let (mut network, a, b) = Network::pair(RC);
            let remote = target(&mut network, &b);
            let operation = match kind {
                0 => Operation::Write(remote),
                1 => Operation::Read(remote),
                _ => Operation::WriteWithImmediate(remote, 1),
            };
            network.post_receive(&b, 0, &[]);
            assert_refused(&mut network, &a, &b, operation, 600, Status::RemoteAccess);
            let error = Event::QpAccessError { qp: b.qp };
            network.run_for(Duration::from_millis(1));
            assert!(network.hosts[1].events.contains(&error), "{operation:?}");
        }
    }
    for (access, kind) in [(read_only, 0), (write_only, 1), (read_only, 2), (write_only, 2)] {
        let (mut network, a, b) = Network::pair(RC);
        let rkey = register(&mut network, &b, b.domain, access);
        let remote = Remote { rkey, ..b.remote(0) };
        let (operation, length) = match kind {
            0 => (Operation::Write(remote), 600),
            1 => (Operation::Read(remote), 600),
            _ => (Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } }, 8),
        };
        assert_refused(&mut network, &a, &b, operation, length, Status::RemoteAccess);
    }
}

#[test]
pub(super) fn the_rights_of_a_queue_pair_limit_its_peer() {
    for kind in 0..3 {
        let mut network = Network::new(2);
        let (a, b) = (network.end(0, RC), network.end(1, RC));
        network.join(&a, &b, |_| ());
        let nothing = Attributes {
            state: Some(State::ReadyToSend),
            access: Some(Access::NONE),
            ..Attributes::default()
        };
        network.modify(&b, &nothing);
        let remote = b.remote(0);
        let (operation, length) = match kind {
            0 => (Operation::Write(remote), 600),
            1 => (Operation::Read(remote), 600),
            _ => (Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } }, 8),
        };
        network.post(&a, &gather(1, operation, &[a.sge(0, length)]));
        assert_eq!(network.outcomes(&a, 1), [(1, Status::RemoteAccess)]);
    }
}

#[test]
fn invalid_requests_are_refused() {
    let (mut network, a, b) = Network::pair(RC);
    let unaligned =
        Operation::Atomic { remote: b.remote(4), operation: AtomicOperation::FetchAdd { add: 1 } };
    assert_refused(&mut network, &a, &b, unaligned, 8, Status::RemoteInvalidRequest);

    let mut network = Network::new(2);
    let (a, b) = (network.end(0, RC), network.end(1, RC));
    network.join(&a, &b, |attributes| {
        if let Some(reads) = &mut attributes.max_dest_rd_atomic {
            *reads = 0;
        }
    });
    let read = Operation::Read(b.remote(0));
    assert_refused(&mut network, &a, &b, read, 600, Status::RemoteInvalidRequest);
}

#[test]
pub(super) fn a_send_that_is_too_long_fails_at_both_ends() {
    let (mut network, a, b) = Network::pair(RC);
    network.fill(&b, 5);
    let before = network.memory(&b).to_vec();
    network.post_receive(&b, 7, &[b.sge(0, 1000)]);
    network.post_receive(&b, 8, &[b.sge(0, 1000)]);
    network.post(&a, &gather(1, Operation::Send, &[a.sge(0, 1001)]));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::RemoteInvalidRequest)]);
    let expected = [(7, Status::LocalLength), (8, Status::WrFlush)];
    assert_eq!(network.outcomes(&b, 2), expected);
    assert_eq!(network.memory(&b), before);
}

#[test]
pub(super) fn a_receive_requests_own_memory_must_be_writable() {
    let (mut network, a, b) = Network::pair(RC);
    let lkey = register(&mut network, &b, b.domain, Access::REMOTE_READ);
    network.post_receive(&b, 7, &[Sge { lkey, ..b.sge(0, 1000) }]);
    network.post(&a, &gather(1, Operation::Send, &[a.sge(0, 1000)]));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::RemoteOperation)]);
    assert_eq!(network.outcomes(&b, 1), [(7, Status::LocalProtection)]);
}

#[test]
fn the_local_memory_of_a_request_is_checked() {
    for (operation, access, length, status) in [
        (0, Access::LOCAL_WRITE, 9, Status::Success),
        (0, Access::NONE, 9, Status::Success),
        (1, Access::NONE, 9, Status::LocalProtection),
        (1, Access::LOCAL_WRITE, 9, Status::Success),
        (2, Access::LOCAL_WRITE, 9, Status::LocalLength),
        (2, Access::NONE, 8, Status::LocalProtection),
    ] {
        let (mut network, a, b) = Network::pair(RC);
        let lkey = register(&mut network, &a, a.domain, access);
        let remote = b.remote(0);
        let operation = match operation {
            0 => Operation::Write(remote),
            1 => Operation::Read(remote),
            _ => Operation::Atomic { remote, operation: AtomicOperation::FetchAdd { add: 1 } },
        };
        network.post(&a, &gather(1, operation, &[Sge { lkey, ..a.sge(0, length) }]));
        assert_eq!(network.outcomes(&a, 1), [(1, status)], "{operation:?} {access:?} {length}");
        if status != Status::Success {
            network.run_for(Duration::from_millis(1));
            assert!(network.hosts[1].memory.writes.is_empty());
        }
    }
}

#[test]
fn a_window_that_cannot_be_bound_fails_its_request() {
    let (mut network, a, b) = Network::pair(RC);
    let window = network.hosts[0].device.allocate_window(a.domain, WindowKind::Type1).unwrap();
    let bind =
        Bind { region: a.key, address: BASE + LENGTH, length: 1, access: Access::REMOTE_READ };
    network.post(&a, &gather(1, Operation::Write(b.remote(0)), &[a.sge(0, 5000)]));
    network.post(&a, &gather(2, Operation::BindWindow { window, key: None, bind }, &[]));
    let expected = [(1, Status::Success), (2, Status::MwBind)];
    assert_eq!(network.outcomes(&a, 2), expected, "in order, though it failed first");
}

#[test]
pub(super) fn requests_are_retried_until_the_receiver_is_ready() {
    let (mut network, a, b) = Network::pair(RC);
    network.fill(&a, 1);
    for wr_id in 0..5 {
        network.post(&a, &gather(wr_id, Operation::Send, &[a.sge(1000 * wr_id, 1000)]));
        let add = Operation::Atomic {
            remote: b.remote(0),
            operation: AtomicOperation::FetchAdd { add: 1 },
        };
        network.post(&a, &gather(100, add, &[a.sge(60_000, 8)]));
    }
    network.run_for(Duration::from_millis(3));
    assert_eq!(network.poll(&a), None);
    for wr_id in 0..5 {
        network.run_for(Duration::from_micros(700));
        network.post_receive(&b, wr_id, &[b.sge(8 + 1000 * wr_id, 1000)]);
    }
    let got: Vec<_> = network.completions(&b, 5).iter().map(|c| (c.wr_id, c.length)).collect();
    assert_eq!(got, (0..5).map(|wr_id| (wr_id, 1000)).collect::<Vec<_>>());
    assert!(network.outcomes(&a, 10).iter().all(|(_, status)| *status == Status::Success));
    let sent = network.memory(&a)[..5000].to_vec();
    let memory = network.memory(&b);
    assert_eq!(memory[8..5008], sent);
    assert_eq!(memory[..8], 5u64.to_ne_bytes(), "each atomic once");
}

#[test]
pub(super) fn rnr_retries_are_limited() {
    let mut network = Network::new(2);
    let (a, b) = (network.end(0, RC), network.end(1, RC));
    network.join(&a, &b, |attributes| {
        if let Some(retries) = &mut attributes.rnr_retry {
            *retries = 2;
        }
    });
    network.post(&a, &gather(1, Operation::Send, &[a.sge(0, 10)]));
    network.post(&a, &gather(2, Operation::Write(b.remote(0)), &[a.sge(0, 10)]));
    let expected = [(1, Status::RnrRetryExceeded), (2, Status::WrFlush)];
    assert_eq!(network.outcomes(&a, 2), expected);
}

#[test]
pub(super) fn an_immediate_without_a_receive_request_waits_and_its_last_byte_with_it() {
    let (mut network, a, b) = Network::pair(RC);
    network.memory(&a).fill(0xaa);
    let write = Operation::WriteWithImmediate(b.remote(0), 5);
    network.post(&a, &gather(1, write, &[a.sge(0, 1000)]));
    network.run_for(Duration::from_millis(1));
    assert_eq!(network.poll(&a), None);
    network.post_receive(&b, 9, &[]);
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    assert_eq!(network.completions(&b, 1)[0].extra, Some(Extra::Immediate(5)));
    assert_eq!(network.memory(&b)[..1000], [0xaa; 1000]);
}

#[test]
fn a_peer_that_stops_responding_fails_requests_in_bounded_time() {
    let (mut network, a, b) = Network::pair(RC);
    network.post(&a, &gather(1, Operation::Write(b.remote(0)), &[a.sge(0, 10)]));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    network.rule = Box::new(|on_link| if on_link.from == 1 { Fate::Drop } else { Fate::Pass });
    network.post(&a, &gather(2, Operation::Write(b.remote(0)), &[a.sge(0, 10)]));
    network.post(&a, &gather(3, Operation::Read(b.remote(0)), &[a.sge(0, 10)]));
    let expected = [(2, Status::RetryExceeded), (3, Status::WrFlush)];
    assert_eq!(network.outcomes(&a, 2), expected);
}

#[test]
pub(super) fn a_connection_attempt_is_retried_before_requests_fail() {
    let mut network = Network::new(2);
    let (a, b) = (network.end(0, RC), network.end(1, RC));
    network.ready_to_receive(&a, &b, |_| ());
    network.ready_to_send(&a, |_| ());
    network.post(&a, &gather(1, Operation::Write(b.remote(0)), &[a.sge(0, 10)]));
    network.run_for(Duration::from_millis(2));
    assert_eq!(network.poll(&a), None);
    network.ready_to_receive(&b, &a, |_| ());
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    assert_eq!(network.hosts[1].events, [Event::CommunicationEstablished { qp: b.qp }]);

    let c = network.end(0, RC);
    network.ready_to_receive(&c, &b, |_| ());
    network.ready_to_send(&c, |_| ());
    network.post(&c, &gather(1, Operation::Write(b.remote(0)), &[c.sge(0, 10)]));
    let outcome = network.outcomes(&c, 1);
    assert_eq!(outcome, [(1, Status::RetryExceeded)], "the peer has another peer");
}

#[test]
fn queue_pairs_end_in_any_order_and_the_peer_is_notified() {
    let (mut network, a, b) = Network::pair(RC);
    (0..3).for_each(|wr_id| network.post_receive(&b, wr_id, &[b.sge(0, 1000)]));
    network.post(&a, &gather(1, Operation::Write(b.remote(0)), &[a.sge(0, 60_000)]));
    run_half(&mut network, 1);
    let now = network.now;
    network.modify(&b, &Attributes { state: Some(State::Error), ..Attributes::default() });
    let flushed: Vec<_> = (0..3).map(|wr_id| (wr_id, Status::WrFlush)).collect();
    assert_eq!(network.outcomes(&b, 3), flushed);
    assert_eq!(network.outcomes(&a, 1), [(1, Status::RetryExceeded)]);
    for end in [&a, &b] {
        let device = &mut network.hosts[end.host].device;
        assert!(matches!(device.destroy_cq(end.cq), Err(VerbsError::Busy { .. })));
        assert!(matches!(device.deallocate_domain(end.domain), Err(VerbsError::Busy { .. })));
        assert!(matches!(device.close(end.context), Err(VerbsError::Busy { .. })));
        device.destroy_qp(now, end.qp).unwrap();
        device.deregister(end.key).unwrap();
        device.destroy_cq(end.cq).unwrap();
        device.deallocate_domain(end.domain).unwrap();
        device.close(end.context).unwrap();
    }
}

#[test]
fn objects_of_an_exited_process_are_reclaimed_and_its_peer_is_notified() {
    let (mut network, a, b) = Network::pair(RC);
    let (other, tenant) = (network.end(0, RC), network.end(1, RC));
    network.join(&other, &tenant, |_| ());
    let device = &mut network.hosts[1].device;
    let window = device.allocate_window(b.domain, WindowKind::Type1).unwrap();
    let srq = device.create_srq(b.domain, 4, 1).unwrap();
    let bind = Bind { region: b.key, address: BASE, length: 9, access: Access::REMOTE_READ };
    let operation = Operation::BindWindow { window, key: None, bind };
    network.post(&b, &gather(1, operation, &[]));
    network.post_receive(&b, 1, &[b.sge(0, 10)]);
    network.post(&b, &gather(2, Operation::Read(a.remote(0)), &[b.sge(0, 30_000)]));
    network.post(&a, &gather(1, Operation::Write(b.remote(0)), &[a.sge(0, 60_000)]));
    network.post(&other, &gather(1, Operation::Write(tenant.remote(0)), &[other.sge(0, 60_000)]));
    run_half(&mut network, 1);
    let now = network.now;
    let device = &mut network.hosts[1].device;
    device.reclaim(now, b.context).unwrap();
    assert_eq!(device.reclaim(now, b.context), Err(VerbsError::Unknown(Object::Context)));
    assert!(device.query_qp(b.qp).is_err() && device.destroy_srq(srq).is_err());
    assert!(device.deregister(b.key).is_err() && device.poll_cq(b.cq).is_err());
    assert_eq!(network.outcomes(&a, 1), [(1, Status::RetryExceeded)]);
    assert_eq!(network.outcomes(&other, 1), [(1, Status::Success)]);
    assert!(network.hosts[1].memory.held.is_empty());
}

#[test]
fn memory_deregistered_during_a_request_is_not_accessed() {
    let (mut network, a, b) = Network::pair(RC);
    network.post(&a, &gather(1, Operation::Write(b.remote(0)), &[a.sge(0, 60_000)]));
    run_half(&mut network, 1);
    network.hosts[1].device.deregister(b.key).unwrap();
    let written = network.hosts[1].memory.writes.len();
    assert_eq!(network.outcomes(&a, 1), [(1, Status::RemoteAccess)]);
    assert_eq!(network.hosts[1].memory.writes.len(), written);
    assert!(network.hosts[1].memory.held.is_empty());

    let (mut network, a, b) = Network::pair(RC);
    network.post(&a, &gather(1, Operation::Write(b.remote(0)), &[a.sge(0, 60_000)]));
    network.hosts[0].device.deregister(a.key).unwrap();
    assert_eq!(network.outcomes(&a, 1), [(1, Status::LocalProtection)]);

    let (mut network, a, b) = Network::pair(RC);
    network.post(&a, &gather(1, Operation::Read(b.remote(0)), &[a.sge(0, 60_000)]));
    // Half of the response is lost, and its memory is deregistered before the retransmission.
    network.rule = Box::new(|on_link| {
        let late = on_link.message().is_some_and(|message| message.offset > 30_000);
        if on_link.from == 1 && late { Fate::Drop } else { Fate::Pass }
    });
    network.run_until(|network| network.hosts[0].memory.writes.len() > 100);
    network.hosts[1].device.deregister(b.key).unwrap();
    assert_eq!(network.outcomes(&a, 1), [(1, Status::RetryExceeded)]);
}

#[test]
pub(super) fn unreliable_services_drop_refused_messages_and_continue() {
    let (mut network, a, b) = Network::pair(UC);
    network.fill(&a, 1);
    let wrong = Remote { rkey: b.key ^ 1, ..b.remote(0) };
    network.post(&a, &gather(1, Operation::Write(wrong), &[a.sge(0, 1000)]));
    network.post(&a, &gather(2, Operation::Send, &[a.sge(0, 1000)]));
    network.post(&a, &gather(3, Operation::Write(b.remote(100)), &[a.sge(0, 1000)]));
    let expected = [(1, Status::Success), (2, Status::Success), (3, Status::Success)];
    assert_eq!(network.outcomes(&a, 3), expected);
    network.post_receive(&b, 5, &[b.sge(3000, 1000)]);
    network.post(&a, &gather(4, Operation::SendWithImmediate(4), &[a.sge(0, 1000)]));
    let received = network.completions(&b, 1)[0];
    assert_eq!((received.wr_id, received.extra), (5, Some(Extra::Immediate(4))));
    let sent = network.memory(&a)[..1000].to_vec();
    let memory = network.memory(&b);
    assert_eq!((&memory[..100], &memory[100..1100]), (&[0; 100][..], &sent[..]));
    assert_eq!(memory[3000..4000], sent);
    let read = gather(6, Operation::Read(b.remote(0)), &[]);
    let now = network.now;
    let refused = network.hosts[0].device.post_send(now, a.qp, &read);
    assert!(matches!(refused, Err(VerbsError::Invalid(_))), "UC has no READ");
}

#[test]
fn an_overrun_completion_queue_fails_its_queue_pairs() {
    let mut network = Network::new(2);
    let (a, b) = (network.end(0, RC), network.end(1, RC));
    let small = network.hosts[0].device.create_cq(a.context, 1).unwrap();
    let qp = network.hosts[0].device.create_qp(&request(a.domain, small, RC)).unwrap();
    let a = End { cq: small, qp, ..a };
    network.join(&a, &b, |_| ());
    (0..3).for_each(|wr_id| {
        network.post(&a, &gather(wr_id, Operation::Write(b.remote(0)), &[a.sge(0, 10)]));
    });
    network.run_for(Duration::from_millis(1));
    let expected = [Event::CqError { cq: small }, Event::QpFatal { qp }];
    assert_eq!(network.hosts[0].events, expected);
    assert!(network.poll(&a).is_some());
    assert!(network.hosts[0].device.poll_cq(small).is_err());
}

#[test]
fn a_full_queue_and_a_wrong_state_are_refused_at_once() {
    let mut network = Network::new(2);
    let (a, b) = (network.end(0, RC), network.end(1, RC));
    let now = network.now;
    let send = gather(0, Operation::Send, &[]);
    let device = &mut network.hosts[0].device;
    let receive = ReceiveRequest { wr_id: 0, sges: &[] };
    assert_eq!(device.post_send(now, a.qp, &send), Err(VerbsError::WrongState(State::Reset)));
    assert_eq!(device.post_receive(a.qp, &receive), Err(VerbsError::WrongState(State::Reset)));
    network.join(&a, &b, |_| ());
    let device = &mut network.hosts[0].device;
    for _ in 0..64 {
        device.post_send(now, a.qp, &send).unwrap();
        device.post_receive(a.qp, &receive).unwrap();
    }
    let full = Err(VerbsError::QueueFull { limit: 64 });
    assert_eq!(device.post_send(now, a.qp, &send), full);
    assert_eq!(device.post_receive(a.qp, &receive), full);
}
