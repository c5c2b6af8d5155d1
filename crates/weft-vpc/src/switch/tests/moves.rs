//! Machines that move from one host to another. Here the second machine moves from the second host to the
//! third.

use weft_units::Duration;

use super::hosts::{Hosts, PORT, RED, frame, host, mac};
use crate::Place;

const LIMIT: Duration = Duration::from_secs(20);

/// Returns the hosts at the other ends of the first host's connections.
fn led_to(hosts: &Hosts) -> Vec<usize> {
    let peers = hosts.hosts[0].switch.pairs();
    peers.map(|pair| (0..3).find(|&end| host(end) == pair.peer).unwrap()).collect()
}

#[test]
fn frames_follow_a_machine_that_sends_from_another_host() {
    let mut hosts = Hosts::new();
    hosts.add_third();
    // The machine's place is learned only.
    hosts.hosts[0].switch.table(RED).set_mac(mac(2), None);
    hosts.send_numbers(1, 0..1, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [0]));
    hosts.send_numbers(0, 0..5, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 5));
    // The same machine sends from the third host; the connection to the second still exists and is in use.
    hosts.send(2, PORT, frame(mac(2), mac(1), 1, 100));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(0) == [0, 1]));
    hosts.send_numbers(0, 5..10, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(2).len() == 5), "{:?}", hosts.seen(1));
    assert_eq!((hosts.seen(1), hosts.seen(2)), ((0..5).collect(), (5..10).collect()));
    assert_eq!(led_to(&hosts), [2]);
    assert_eq!(hosts.plain_frames, 0);
}

#[test]
fn a_machine_that_is_set_elsewhere_is_cut_off_from_where_it_was() {
    let mut hosts = Hosts::new();
    hosts.add_third();
    hosts.send_numbers(0, 0..5, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 5));
    let now = hosts.now;
    let own = &mut hosts.hosts[0];
    let set = |own: &mut super::hosts::Host, end| {
        own.switch.set_place(now, RED, mac(2), Some(Place::Peer(host(end))), &mut own.tenants);
    };
    // The same place again changes nothing.
    set(own, 1);
    assert_eq!(own.switch.pair_count(), 1);
    set(own, 2);
    assert_eq!(
        own.switch.pair_count(),
        0,
        "the second host still speaks in the name of the machine"
    );
    hosts.send_numbers(0, 5..10, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(2).len() == 5));
    assert_eq!((hosts.seen(1), led_to(&hosts)), ((0..5).collect(), vec![2]));
}
