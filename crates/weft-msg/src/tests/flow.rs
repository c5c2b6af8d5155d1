//! Flow control between contexts (X-RDMA, section V.C).

use alloc::vec::Vec;

use weft_units::Duration;

use super::network::{Network, config};
use crate::*;

/// A limit that does not change, in bytes.
const LIMIT: u64 = 16 << 10;

fn limited() -> Config {
    let fragment = 4096;
    Config { outstanding: LIMIT, outstanding_min: LIMIT, fragment, ..config() }
}

/// Connects host 0 by `count` channels to each of `hosts`, and returns its ends.
fn channels(network: &mut Network, hosts: &[usize], count: usize) -> Vec<ChannelId> {
    let peers = hosts.iter().flat_map(|&host| core::iter::repeat_n(host, count));
    let ids = peers.map(|host| network.connect(0, host).0).collect();
    network.run_for(Duration::from_millis(5));
    ids
}

#[test]
fn sends_and_reads_of_all_channels_together_keep_to_the_limit() {
    for (len, count) in [(1000, 30), (50_000, 4)] {
        let mut network = Network::new(4, 1, &limited());
        let ids = channels(&mut network, &[1, 2, 3], 10);
        for &id in &ids {
            (0..count).for_each(|_| _ = network.send(0, id, &alloc::vec![1; len]));
        }
        let (mut came, mut most) = (0, 0);
        network.run_until(|network| {
            for host in &network.hosts {
                let flow = host.context.flow();
                // A quarter more is without completions.
                assert!(flow.sends_in_flight <= LIMIT / 4 * 5 && flow.reads_in_flight <= LIMIT);
                most = most.max(flow.sends_in_flight).max(flow.reads_in_flight);
            }
            came += (1..4).map(|host| network.take_messages(host).len()).sum::<usize>();
            came == ids.len() * count
        });
        assert!(most > LIMIT / 2, "the limit is used: {most} bytes of {len}-byte messages");
        network.run_for(Duration::from_millis(20));
        for host in &network.hosts {
            let flow = host.context.flow();
            assert_eq!((flow.sends_in_flight, flow.reads_in_flight), (0, 0));
        }
        network.check_no_leaks();
    }
}

#[test]
fn channels_that_wait_for_the_limit_take_turns() {
    let mut network = Network::new(2, 1, &limited());
    let ids = channels(&mut network, &[1], 8);
    // The first channel has much to send, and all of it before the others.
    (0..200).for_each(|_| _ = network.send(0, ids[0], &[0; 4000]));
    ids[1..].iter().for_each(|&id| _ = network.send(0, id, &[1; 4000]));
    let (mut first, mut others) = (0, 0);
    network.run_until(|network| {
        for (_, _, body) in network.take_messages(1) {
            *(if body[0] == 0 { &mut first } else { &mut others }) += 1;
        }
        others == ids.len() - 1
    });
    assert!(first < 50, "{first} messages of the first channel went before");
    network.check_no_leaks();
}

#[test]
fn a_dead_peer_does_not_keep_other_channels_from_the_limit() {
    let mut network = Network::new(3, 1, &limited());
    let dead = channels(&mut network, &[1], 8);
    let alive = channels(&mut network, &[2], 1)[0];
    network.hosts[1].dead = true;
    for id in dead {
        (0..20).for_each(|_| _ = network.send(0, id, &[1; 4000]));
    }
    (0..20).for_each(|_| _ = network.send(0, alive, &[2; 4000]));
    let (start, mut came) = (network.now, 0);
    network.run_until(|network| {
        came += network.take_messages(2).len();
        came == 20
    });
    // The device takes 50 ms to give the peer up.
    let took = network.now.since(start);
    assert!(took < Duration::from_millis(40), "{took}");
    network.hosts[1].dead = false;
    network.check_no_leaks();
}
