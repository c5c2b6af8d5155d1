//! Peers that do not speak Weft, paths that fail, and ports that are removed.

use alloc::boxed::Box;

use weft_units::Duration;

use super::hosts::{Fate, Hosts, PORT, RED, mac};
use crate::{DropCause, NetworkConfig};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns `true` if the first host reaches the second, `false` if it does not, and `None` if that is unknown.
fn is_reached(hosts: &Hosts) -> Option<bool> {
    let mut reached = hosts.hosts[0].switch.peers_reached(hosts.now);
    reached.next().map(|(_, is_reached)| is_reached)
}

/// Between its requests to a host that does not answer, a switch has no pair for it.
#[test]
fn a_host_that_does_not_answer_is_not_reached_until_it_answers_or_nobody_asks() {
    let mut hosts = Hosts::new();
    assert_eq!(is_reached(&hosts), None);
    hosts.fate = Box::new(|_, _| Fate::Lost);
    for number in 0..30 {
        hosts.send_numbers(0, number..number + 1, 100);
        hosts.run(Duration::from_secs(1), |_| false);
        // A request takes 2 s to fail.
        let expected = (number >= 3).then_some(false);
        assert!(number == 2 || is_reached(&hosts) == expected, "after {number} s");
    }
    hosts.run(Duration::from_secs(61), |_| false);
    assert_eq!(is_reached(&hosts), None);
    hosts.send_numbers(0, 30..31, 100);
    hosts.run(Duration::from_secs(3), |_| false);
    assert_eq!(is_reached(&hosts), Some(false));
    hosts.fate = Box::new(|_, _| Fate::After(Duration::from_micros(20)));
    hosts.run(Duration::from_secs(10), |_| false);
    hosts.send_numbers(0, 31..32, 100);
    assert!(hosts.run(LIMIT, |hosts| is_reached(hosts) == Some(true)));
}

#[test]
fn a_peer_that_knows_only_vxlan_gets_plain_frames() {
    let mut hosts = Hosts::new();
    hosts.only_plain = true;
    let plain = NetworkConfig { reliable: false, in_order: true, ..NetworkConfig::default() };
    hosts.hosts[1].switch.set_network(RED, plain);
    hosts.send_numbers(0, 0..5, 100);
    // The request gets no answer; meanwhile the first frames wait, and are lost with the connection.
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[0].tenants.holds_nothing()));
    hosts.send_numbers(0, 5..10, 100);
    assert!(hosts.run(LIMIT, |hosts| !hosts.seen(1).is_empty()));
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).ends_with(&[5, 6, 7, 8, 9])));
}

#[test]
fn when_every_path_is_dead_frames_go_plain_until_the_peer_answers_again() {
    let mut hosts = Hosts::new();
    hosts.send_numbers(0, 0..10, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 10));
    // Plain frames leave on path 0, which is also dead for the transport's packets: the link does not distinguish
    // them. So first everything is lost, and then nothing.
    hosts.fate = Box::new(|_, _| Fate::Lost);
    hosts.send_numbers(0, 10..600, 100);
    hosts.run(Duration::from_secs(5), |_| false);
    hosts.fate = Box::new(|_, _| Fate::After(Duration::from_micros(20)));
    // The peer was unreachable, so frames leave as plain VXLAN; the peer does not trust them and requests a
    // connection.
    let before = hosts.plain_frames;
    for number in 600..610 {
        hosts.send_numbers(0, number..number + 1, 100);
        hosts.run(Duration::from_millis(500), |_| false);
    }
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).contains(&609)), "{:?}", hosts.seen(1));
    let plain = hosts.plain_frames - before;
    assert!((1..=5).contains(&plain), "{plain} of 10 frames");
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[0].tenants.holds_nothing()));
}

#[test]
fn a_removed_port_releases_all_frames() {
    let mut hosts = Hosts::new();
    hosts.fate = Box::new(|_, _| Fate::After(Duration::from_millis(1)));
    hosts.send_numbers(0, 0..400, 3_000);
    hosts.run(Duration::from_millis(5), |_| false);
    assert!(!hosts.seen(1).is_empty() && hosts.seen(1).len() < 400);
    for host in &mut hosts.hosts {
        host.switch.remove_port(hosts.now, PORT, &mut host.tenants);
        assert!(host.tenants.holds_nothing());
        assert_eq!(host.switch.pairs().count(), 0);
    }
    hosts.run(LIMIT, |_| false);
}

#[test]
fn a_restarted_peer_is_found_again() {
    let mut hosts = Hosts::new();
    hosts.send_numbers(0, 0..10, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.hosts[0].tenants.holds_nothing()));
    let fresh = Hosts::new().hosts.pop().unwrap();
    hosts.hosts[1] = fresh;
    // The first frame shows that the connection is gone; the frame is lost like a packet.
    hosts.send_numbers(0, 10..11, 100);
    hosts.run(Duration::from_millis(100), |_| false);
    let lost = hosts.hosts[0].switch.port_counters(PORT).unwrap();
    assert_eq!(lost.dropped_for(DropCause::ConnectionLost), 1);
    hosts.send_numbers(0, 11..20, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 9), "{:?}", hosts.seen(1));
}

#[test]
fn a_hello_may_have_the_last_message_number() {
    let mut hosts = Hosts::new();
    hosts.send_numbers(0, 0..1, 100);
    assert!(hosts.run(LIMIT, |hosts| hosts.seen(1).len() == 1));
    let now = hosts.now;
    let switch = &mut hosts.hosts[0].switch;
    let connection = switch.pairs.sending((PORT, mac(2))).unwrap();
    switch.pairs.get_mut(connection).unwrap().next = u32::MAX;
    switch.send_hello(now, connection);
    assert_eq!(switch.pairs.get(connection).unwrap().next, 0);
}
