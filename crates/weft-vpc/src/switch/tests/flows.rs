//! Flow logs of both ends of a flow.

use alloc::vec::Vec;

use weft_units::Duration;

use super::hosts::{Hosts, PORT, RED};
use super::policy::{acl, all_released, datagram};
use super::traffic::bad_link;
use crate::{Action, Direction, FlowLogConfig, PortConfig, PortFlow, PortId};

const LIMIT: Duration = Duration::from_secs(20);
const LOG: FlowLogConfig =
    FlowLogConfig { interval: Duration::from_secs(60), max_flows: 100, secret: (1, 2) };

/// Returns two hosts that log flows.
fn hosts() -> Hosts {
    let mut hosts = Hosts::new();
    hosts.hosts.iter_mut().for_each(|host| host.switch.set_flow_log(Some(LOG)));
    hosts
}

/// Returns direction, receiver's port, decision and frames of each flow of a host, in order.
fn taken(hosts: &mut Hosts, end: usize) -> Vec<(Direction, u16, Action, u64)> {
    let now = hosts.now;
    let switch = &mut hosts.hosts[end].switch;
    switch.end_flows();
    let row = |PortFlow { port, vni, record }: PortFlow| {
        assert_eq!((port, vni), (PORT, RED));
        (record.flow.direction, record.flow.ports.1, record.flow.action, record.frames)
    };
    let mut rows: Vec<_> = switch.take_flows(now, 1000).into_iter().map(row).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn both_ends_record_a_flow_once_and_the_denying_end_says_so() {
    for in_pieces in [false, true] {
        let mut hosts = hosts();
        hosts.fate = bad_link(20, Duration::from_micros(200));
        hosts.hosts[1].switch.set_acl(PORT, Some(acl(&["deny ingress udp to any port 53"])));
        // Longer frames arrive in several packets, whose head may come last.
        let len = if in_pieces { 20_000 } else { 1_000 };
        for number in 0..200 {
            hosts.send(0, PORT, datagram(if number % 2 == 0 { 53 } else { 80 }, len));
        }
        assert!(hosts.run(LIMIT, all_released));
        let (out, to) = (Direction::Egress, Direction::Ingress);
        let sent = [(out, 53, Action::Allow, 100), (out, 80, Action::Allow, 100)];
        assert_eq!(taken(&mut hosts, 0), sent, "retransmissions are no frames");
        assert_eq!(
            taken(&mut hosts, 1),
            [(to, 53, Action::Deny, 100), (to, 80, Action::Allow, 100)]
        );
    }
}

#[test]
fn the_records_of_a_port_that_is_removed_are_not_lost_and_an_ended_log_has_none() {
    let mut hosts = hosts();
    hosts.send(0, PORT, datagram(53, 10));
    let now = hosts.now;
    let host = &mut hosts.hosts[0];
    host.switch.remove_port(now, PORT, &mut host.tenants);
    assert_eq!(taken(&mut hosts, 0), [(Direction::Egress, 53, Action::Allow, 1)]);
    let switch = &mut hosts.hosts[0].switch;
    switch.set_flow_log(None);
    switch.set_port(PORT, PortConfig { vni: RED, addresses: Vec::new() });
    hosts.send(0, PORT, datagram(53, 10));
    assert_eq!(taken(&mut hosts, 0), []);
}

#[test]
fn a_port_that_comes_later_has_a_log_and_a_frame_between_two_ports_is_recorded_at_both() {
    let mut hosts = hosts();
    let other = PortId(2);
    let host = &mut hosts.hosts[0];
    host.switch.set_port(other, PortConfig { vni: RED, addresses: Vec::new() });
    host.switch.table(RED).set_mac(super::hosts::mac(2), Some(crate::Place::Port(other)));
    hosts.send(0, PORT, datagram(53, 10));
    let now = hosts.now;
    let switch = &mut hosts.hosts[0].switch;
    switch.end_flows();
    let mut seen: Vec<_> = switch.take_flows(now, 10).iter().map(|it| it.port).collect();
    seen.sort_unstable();
    assert_eq!(seen, [PORT, other]);
}

#[test]
fn records_come_in_parts_of_the_limit() {
    let mut hosts = hosts();
    (1..=10).for_each(|port| hosts.send(0, PORT, datagram(port, 10)));
    let now = hosts.now + LOG.interval;
    let switch = &mut hosts.hosts[0].switch;
    let counts: Vec<usize> = (0..4).map(|_| switch.take_flows(now, 4).len()).collect();
    assert_eq!(counts, [4, 4, 2, 0]);
}
