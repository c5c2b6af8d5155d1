//! Devices of one host that are connected by links instead of the network, with the same behaviour.

use alloc::boxed::Box;

use weft_transport::LinkId;
use weft_units::Duration;

use super::network::{BASE, End, Fate, LENGTH, Network, OVER_LINKS, link_to};
use super::{datagrams, endings, operations, ordering, receives, refusals};
use crate::*;

const RC: Service = Service::ReliableConnected;

/// Runs tests of other modules over links. They do not depend on packet loss.
fn over_links(tests: &[fn()]) {
    OVER_LINKS.set(true);
    tests.iter().for_each(|test| test());
    OVER_LINKS.set(false);
}

#[test]
fn operations_work_as_over_the_network() {
    over_links(&[
        operations::a_send_is_scattered_over_its_receive_request,
        operations::immediate_data_comes_with_its_message,
        operations::a_write_changes_only_its_target,
        operations::a_read_returns_the_requested_bytes,
        operations::atomics_return_the_previous_value,
        operations::a_fence_waits_for_the_reads_before_it,
        operations::windows_are_bound_and_invalidated_by_work_requests,
        operations::a_shared_queue_serves_several_queue_pairs_and_reports_its_limit,
        operations::a_drained_send_queue_is_reported_and_can_resume,
        ordering::an_atomic_sees_the_writes_before_it_and_none_behind_it,
        ordering::receive_requests_complete_in_order_with_the_bytes_of_their_messages,
        datagrams::a_datagram_follows_its_route_header_and_names_its_source,
        datagrams::destroying_a_queue_pair_drops_only_its_own_datagrams,
        receives::an_empty_shared_queue_loses_and_reorders_no_message,
        receives::messages_of_uc_arrive_completely_and_in_order,
    ]);
}

#[test]
fn forbidden_requests_are_refused_as_over_the_network() {
    over_links(&[
        refusals::accesses_outside_key_bounds_rights_and_domain_are_refused,
        refusals::the_rights_of_a_queue_pair_limit_its_peer,
        refusals::a_send_that_is_too_long_fails_at_both_ends,
        refusals::a_receive_requests_own_memory_must_be_writable,
        refusals::requests_are_retried_until_the_receiver_is_ready,
        refusals::rnr_retries_are_limited,
        refusals::an_immediate_without_a_receive_request_waits_and_its_last_byte_with_it,
        refusals::a_connection_attempt_is_retried_before_requests_fail,
        refusals::unreliable_services_drop_refused_messages_and_continue,
        ordering::a_refused_request_is_never_reported_as_success,
        endings::an_executed_request_succeeds_although_its_queue_pair_was_destroyed,
        endings::a_former_peer_does_not_disturb_a_queue_pair_that_is_used_again,
        datagrams::unacceptable_datagrams_are_dropped_silently,
    ]);
}

fn pair() -> (Network, End, End) {
    pair_of(RC)
}

fn pair_of(service: Service) -> (Network, End, End) {
    OVER_LINKS.set(true);
    let pair = Network::pair(service);
    OVER_LINKS.set(false);
    pair
}

fn write<'a>(wr_id: u64, remote: Remote, sges: &'a [Sge]) -> SendRequest<'a> {
    SendRequest::new(wr_id, Operation::Write(remote), Data::Gather(sges))
}

#[test]
fn packets_use_the_link_where_there_is_one() {
    let (mut network, a, b) = pair();
    network.rule = Box::new(|_| panic!("a packet on the network"));
    network.post(&a, &write(1, b.remote(0), &[a.sge(0, 1000)]));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
}

/// Posts a request; returns `true` if its packet was sent in the call, and loses the packet.
fn is_transmitted_at_once(network: &mut Network, end: &End, request: &SendRequest<'_>) -> bool {
    let (now, mut left) = (network.now, false);
    let device = &mut network.hosts[end.host].device;
    device.post_send_and_transmit(now, end.qp, request, |_, _| left = true).unwrap();
    left
}

#[test]
fn a_request_of_one_packet_is_transmitted_in_the_call_that_posts_it() {
    let joined = || {
        let (mut network, a, b) = pair();
        network.post(&a, &write(1, b.remote(0), &[a.sge(0, 10)]));
        assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
        (network, a, b)
    };
    let (mut network, a, b) = joined();
    let (short, long) = ([a.sge(0, 10)], [a.sge(0, 65_025)]);
    let send = |sges| SendRequest::new(2, Operation::Send, Data::Gather(sges));
    let read = SendRequest::new(2, Operation::Read(b.remote(0)), Data::Gather(&short));
    assert!(!is_transmitted_at_once(&mut network, &a, &read), "it is answered");
    assert!(!is_transmitted_at_once(&mut network, &a, &send(&short)), "one is before it");
    let (mut network, a, _) = joined();
    assert!(!is_transmitted_at_once(&mut network, &a, &send(&long)), "two packets");
    let (mut network, a, b) = joined();
    network.hosts[a.host].device.pause_link(link_to(b.host));
    assert!(!is_transmitted_at_once(&mut network, &a, &send(&short)), "no room");
    let (mut network, a, _) = joined();
    let foreign = [Sge { lkey: short[0].lkey ^ 1, ..short[0] }];
    assert!(!is_transmitted_at_once(&mut network, &a, &send(&foreign)), "not its memory");
    assert_eq!(network.outcomes(&a, 1), [(2, Status::LocalProtection)]);
    let (mut network, a, _) = joined();
    assert!(is_transmitted_at_once(&mut network, &a, &send(&short)));
}

/// Returns the number of requests that were executed by leases of this end's host.
fn executed_by_lease(network: &mut Network, end: &End) -> u64 {
    network.hosts[end.host].leases.used
}

#[test]
fn a_peer_accesses_memory_directly_after_one_authorised_access() {
    for service in [RC, Service::UnreliableConnected] {
        let (mut network, a, b) = pair_of(service);
        network.fill(&a, 1);
        let sges = [a.sge(0, 100), a.sge(1000, 1900)];
        network.post(&a, &write(1, b.remote(0), &sges));
        assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
        assert_eq!(executed_by_lease(&mut network, &b), 0);
        for wr_id in 2..6 {
            network.post(&a, &write(wr_id, b.remote(500 * wr_id), &sges));
        }
        let done = |wr_id| (wr_id, Status::Success);
        assert_eq!(network.outcomes(&a, 4), [2, 3, 4, 5].map(done));
        assert_eq!(executed_by_lease(&mut network, &b), 4);
        let sent = network.memory(&a).to_vec();
        let expected = [&sent[..100], &sent[1000..2900]].concat();
        assert!(network.memory(&b)[2500..4500] == expected[..]);
        // A later message over the link has the PSN that the peer expects.
        network.post_receive(&b, 7, &[b.sge(0, 100)]);
        let sges = [a.sge(0, 10)];
        network.post(&a, &SendRequest::new(8, Operation::Send, Data::Gather(&sges)));
        assert_eq!(network.outcomes(&a, 1), [(8, Status::Success)]);
        assert_eq!(network.outcomes(&b, 1), [(7, Status::Success)]);
    }
    let (mut network, a, b) = pair();
    network.fill(&b, 2);
    let sges = [a.sge(0, 700), a.sge(2000, 300)];
    for (wr_id, by_lease) in [(0, 0), (1, 1)] {
        let read = Operation::Read(b.remote(40));
        network.post(&a, &SendRequest::new(wr_id, read, Data::Gather(&sges)));
        let read = network.completions(&a, 1)[0];
        assert_eq!((read.status, read.kind, read.length), (Status::Success, WorkKind::Read, 1000));
        assert_eq!(executed_by_lease(&mut network, &b), by_lease);
    }
    let expected = network.memory(&b)[740..1040].to_vec();
    assert!(network.memory(&a)[2000..2300] == expected[..]);
}

/// A link carries many short WRITEs faster than one system call for each.
#[test]
fn short_writes_of_a_long_burst_use_the_link() {
    let (mut network, a, b) = pair();
    network.fill(&a, 3);
    let written = |network: &mut Network, wr_ids: core::ops::Range<u64>, length| {
        let before = executed_by_lease(network, &b);
        for wr_id in wr_ids.clone() {
            let sges = [a.sge(100 * wr_id, length)];
            network.post(&a, &write(wr_id, b.remote(100 * wr_id), &sges));
        }
        let done: Vec<_> = wr_ids.map(|wr_id| (wr_id, Status::Success)).collect();
        assert_eq!(network.outcomes(&a, done.len()), done);
        executed_by_lease(network, &b) - before
    };
    assert_eq!(written(&mut network, 0..1, 100), 0);
    assert_eq!(written(&mut network, 1..41, 100), 8, "the beginning of the row");
    network.run_for(Duration::from_micros(100));
    assert_eq!(written(&mut network, 41..49, 100), 8, "a row that is not longer");
    network.run_for(Duration::from_micros(100));
    assert_eq!(written(&mut network, 49..80, 20_000), 31, "none is short");
    let sent = network.memory(&a)[..27_900].to_vec();
    assert!(network.memory(&b)[..27_900] == sent[..]);
}

/// Returns a pair whose first end has a lease of the other's mapped memory.
fn mapped_pair(service: Service) -> (Network, End, End) {
    let (mut network, a, b) = pair_of(service);
    network.reach = Reach::Mapped;
    network.post(&a, &write(1, b.remote(0), &[a.sge(0, 10)]));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    assert_eq!(executed_by_lease(&mut network, &b), 0);
    (network, a, b)
}

#[test]
fn requests_in_mapped_memory_are_executed_in_the_call_that_posts_them() {
    for service in [RC, Service::UnreliableConnected] {
        let (mut network, a, b) = mapped_pair(service);
        network.fill(&a, 4);
        // Short, and back to back.
        for number in 0..40 {
            let sges = [a.sge(100 * number, 60), a.sge(100 * number + 60, 40)];
            network.post(&a, &write(number, b.remote(100 * number), &sges));
            let done = network.poll(&a).expect("it is done");
            assert_eq!((done.wr_id, done.status, done.length), (number, Status::Success, 0));
        }
        assert_eq!(executed_by_lease(&mut network, &b), 40);
        let sent = network.memory(&a)[..4000].to_vec();
        assert!(network.memory(&b)[..4000] == sent[..]);
        let inline = Operation::Write(b.remote(5000));
        network.post(&a, &SendRequest::new(41, inline, Data::Inline(b"inline")));
        assert_eq!(network.memory(&b)[5000..5006], *b"inline");
        let quiet = write(42, b.remote(0), &[]);
        let sges = [a.sge(0, 8)];
        network.post(&a, &SendRequest { signaled: false, data: Data::Gather(&sges), ..quiet });
        assert_eq!(executed_by_lease(&mut network, &b), 42);
        assert_eq!(network.outcomes(&a, 1), [(41, Status::Success)]);
        assert!(network.poll(&a).is_none(), "it is not signalled");
    }
    let (mut network, a, b) = mapped_pair(RC);
    network.fill(&b, 5);
    let sges = [a.sge(0, 300)];
    network.post(&a, &SendRequest::new(2, Operation::Read(b.remote(70)), Data::Gather(&sges)));
    let read = network.poll(&a).expect("it is done");
    assert_eq!((read.status, read.kind, read.length), (Status::Success, WorkKind::Read, 300));
    let expected = network.memory(&b)[70..370].to_vec();
    assert!(network.memory(&a)[..300] == expected[..]);
}

/// The queue checks and reports what cannot be executed at once.
#[test]
fn requests_in_mapped_memory_keep_their_order_and_their_checks() {
    let (mut network, a, b) = mapped_pair(RC);
    network.post_receive(&b, 7, &[b.sge(0, 100)]);
    let short = [a.sge(0, 10)];
    network.post(&a, &SendRequest::new(2, Operation::Send, Data::Gather(&short)));
    network.post(&a, &write(3, b.remote(0), &short));
    assert_eq!(executed_by_lease(&mut network, &b), 0, "a SEND is before it");
    assert_eq!(network.outcomes(&a, 2), [2, 3].map(|wr_id| (wr_id, Status::Success)));
    let cq = a.cq;
    network.hosts[a.host].device.resize_cq(cq, 1).unwrap();
    (4..6).for_each(|wr_id| network.post(&a, &write(wr_id, b.remote(0), &short)));
    assert_eq!(executed_by_lease(&mut network, &b), 1, "the other completion has no room");
    assert_eq!(network.outcomes(&a, 2), [4, 5].map(|wr_id| (wr_id, Status::Success)));
    let foreign = [Sge { lkey: short[0].lkey ^ 1, ..short[0] }];
    let cases =
        [(LENGTH - 9, &short, Status::RemoteAccess), (0, &foreign, Status::LocalProtection)];
    for (offset, sges, status) in cases {
        let (mut network, a, b) = mapped_pair(RC);
        network.post(&a, &write(6, b.remote(offset), sges));
        assert_eq!(network.outcomes(&a, 1), [(6, status)]);
    }
    let (mut network, a, b) = mapped_pair(RC);
    network.hosts[b.host].device.deregister(b.key).unwrap();
    let before = network.memory(&b).to_vec();
    network.fill(&a, 6);
    network.post(&a, &write(7, b.remote(0), &short));
    assert_eq!(network.outcomes(&a, 1), [(7, Status::RemoteAccess)]);
    assert!(before == network.memory(&b));
}

#[test]
fn accesses_outside_a_lease_are_refused() {
    let cases: [fn(&End) -> Operation; 3] = [
        |b| Operation::Write(b.remote(LENGTH - 9)),
        |b| Operation::Write(Remote { address: BASE - 1, ..b.remote(0) }),
        |b| Operation::Read(b.remote(LENGTH - 9)),
    ];
    for operation in cases {
        let (mut network, a, b) = pair();
        let sges = [a.sge(0, 10)];
        network.post(&a, &write(1, b.remote(0), &sges));
        assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
        network.post(&a, &SendRequest::new(2, operation(&b), Data::Gather(&sges)));
        assert_eq!(network.outcomes(&a, 1), [(2, Status::RemoteAccess)]);
        assert_eq!(executed_by_lease(&mut network, &b), 0);
    }
}

#[test]
fn a_revoked_lease_grants_no_access() {
    let read_only = Attributes { access: Some(Access::REMOTE_READ), ..Attributes::default() };
    let takes: [fn(&mut Network, &End, &Attributes); 3] = [
        |network, b, _| network.hosts[b.host].device.deregister(b.key).unwrap(),
        |network, b, _| {
            let device = &mut network.hosts[b.host].device;
            device.reregister(b.key, None, |region| region.access = Access::NONE).unwrap();
        },
        |network, b, read_only| network.modify(b, read_only),
    ];
    for take in takes {
        let (mut network, a, b) = pair();
        for wr_id in 1..3 {
            network.post(&a, &write(wr_id, b.remote(0), &[a.sge(0, 10)]));
            assert_eq!(network.outcomes(&a, 1), [(wr_id, Status::Success)]);
        }
        assert_eq!(executed_by_lease(&mut network, &b), 1);
        let before = network.memory(&b).to_vec();
        take(&mut network, &b, &read_only);
        network.fill(&a, 3);
        network.post(&a, &write(3, b.remote(0), &[a.sge(0, 10)]));
        assert_eq!(network.outcomes(&a, 1), [(3, Status::RemoteAccess)]);
        assert_eq!(executed_by_lease(&mut network, &b), 1);
        assert!(before == network.memory(&b));
    }
}

#[test]
fn a_request_waits_while_its_completion_has_no_room() {
    let (mut network, a, b) = pair();
    network.post(&a, &write(1, b.remote(0), &[a.sge(0, 10)]));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    let cq = a.cq;
    network.hosts[a.host].device.resize_cq(cq, 2).unwrap();
    for wr_id in 2..6 {
        network.post(&a, &write(wr_id, b.remote(0), &[a.sge(0, 10)]));
        network.drain();
    }
    assert_eq!(executed_by_lease(&mut network, &b), 2, "two completions have room");
    let done = |wr_id| (wr_id, Status::Success);
    assert_eq!(network.outcomes(&a, 4), [2, 3, 4, 5].map(done));
}

#[test]
fn a_removed_link_fails_its_requests_and_the_network_replaces_it() {
    let (mut network, a, b) = pair();
    network.post(&a, &write(1, b.remote(0), &[a.sge(0, 1000)]));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    network.post(&a, &write(2, b.remote(0), &[a.sge(0, 1000)]));
    let now = network.now;
    for (end, other) in [(&a, &b), (&b, &a)] {
        network.hosts[end.host].device.link_down(now, link_to(other.host));
    }
    assert_eq!(network.outcomes(&a, 1), [(2, Status::RetryExceeded)]);
    let (c, d) = (network.end(a.host, RC), network.end(b.host, RC));
    network.join(&c, &d, |_| ());
    network.post(&c, &write(3, d.remote(0), &[c.sge(0, 1000)]));
    assert_eq!(network.outcomes(&c, 1), [(3, Status::Success)]);
}

#[test]
fn a_queue_pair_does_not_contact_the_next_owner_of_its_exited_peers_address() {
    for service in [RC, Service::UnreliableConnected] {
        let (mut network, a, b) = pair_of(service);
        network.post(&a, &write(1, b.remote(0), &[a.sge(0, 1000)]));
        assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
        let now = network.now;
        network.hosts[a.host].device.link_down(now, link_to(b.host));
        network.rule = Box::new(|_| panic!("it sends a packet"));
        network.post(&a, &write(2, b.remote(0), &[a.sge(0, 1000)]));
        let lost = if service == RC { Status::RetryExceeded } else { Status::Success };
        assert_eq!(network.outcomes(&a, 1), [(2, lost)]);
    }
}

#[test]
fn lost_payload_ends_its_connection_and_is_never_a_success() {
    let (mut network, a, b) = pair();
    network.post_receive(&b, 7, &[b.sge(0, 1000)]);
    network.hosts[b.host].memory.loses_payload = true;
    let sges = [a.sge(0, 1000)];
    network.post(&a, &SendRequest::new(1, Operation::Send, Data::Gather(&sges)));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::RetryExceeded)]);
    assert_eq!(network.poll(&b), None, "its receive request waits for others");
}

#[test]
fn a_peer_that_stops_responding_over_a_link_fails_requests_in_bounded_time() {
    let (mut network, a, b) = pair();
    network.post(&a, &write(1, b.remote(0), &[a.sge(0, 10)]));
    assert_eq!(network.outcomes(&a, 1), [(1, Status::Success)]);
    // The peer has not exited, but does not respond: its end of the link is not connected.
    network.rule = Box::new(|_| Fate::Drop);
    let device = &mut network.hosts[b.host].device;
    device.link_down(network.now, link_to(a.host));
    device.link_up(network.now, LinkId(99));
    network.post(&a, &write(2, b.remote(0), &[a.sge(0, 10)]));
    network.run_for(Duration::from_millis(100));
    assert_eq!(network.outcomes(&a, 1), [(2, Status::RetryExceeded)]);
}
