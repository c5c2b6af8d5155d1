//! Machines that appear, move between hosts and go (RFC 7432, section 15), and sessions that are lost.

use weft_units::Duration;

use super::world::{VNI, World, address, mac, machine_address};
use crate::State;

#[test]
fn hosts_learn_each_others_machines_and_forget_them() {
    let mut world = World::joined(3);
    for host in &world.hosts {
        assert_eq!(host.vteps.len(), 2, "{:?}", host.vteps);
        assert!(host.vteps.values().all(|&floods| floods));
    }
    world.set_port(0, 1, true);
    world.exchange();
    for host in &world.hosts[1..] {
        assert_eq!(host.places.get(&mac(1)), Some(&address(0)));
        assert_eq!(host.addresses.get(&machine_address(1)), Some(&mac(1)));
    }
    assert!(world.hosts[0].places.is_empty());
    world.set_port(0, 1, false);
    world.exchange();
    assert!(world.hosts.iter().all(|host| host.places.is_empty() && host.addresses.is_empty()));
}

#[test]
fn a_machine_that_appears_elsewhere_is_there_and_comes_back_with_a_frame() {
    let mut world = World::joined(3);
    world.set_port(0, 1, true);
    world.exchange();
    // It moves: both hosts have a port for it.
    world.set_port(2, 1, true);
    world.exchange();
    let place = |world: &World, host: usize| world.hosts[host].places.get(&mac(1)).copied();
    let places = |world: &World| [0, 1, 2].map(|host| place(world, host));
    assert_eq!(places(&world), [Some(address(2)), Some(address(2)), None]);
    world.send_frame(0, 1);
    world.exchange();
    assert_eq!(places(&world), [None, Some(address(0)), Some(address(0))]);
    // A frame of a machine that is here says nothing new.
    world.send_frame(0, 1);
    world.exchange();
    assert_eq!(places(&world), [None, Some(address(0)), Some(address(0))]);
    // Its port there has gone, and that here stays.
    world.set_port(2, 1, false);
    world.exchange();
    assert_eq!(places(&world), [None, Some(address(0)), Some(address(0))]);
    world.set_port(0, 1, false);
    world.exchange();
    assert_eq!(places(&world), [None; 3]);
}

#[test]
fn the_host_that_lost_a_machine_has_it_again_when_the_other_withdraws_it() {
    let mut world = World::joined(2);
    world.set_port(0, 1, true);
    world.exchange();
    world.set_port(1, 1, true);
    world.exchange();
    assert_eq!(world.hosts[0].places.get(&mac(1)), Some(&address(1)));
    world.set_port(1, 1, false);
    world.exchange();
    assert_eq!(world.hosts[0].places.get(&mac(1)), None);
    assert_eq!(world.hosts[1].places.get(&mac(1)), Some(&address(0)));
}

#[test]
fn of_two_first_appearances_the_lower_address_wins() {
    let mut world = World::new(2);
    world.set_port(0, 1, true);
    world.set_port(1, 1, true);
    world.run();
    assert_eq!(world.hosts[0].places.get(&mac(1)), None);
    assert_eq!(world.hosts[1].places.get(&mac(1)), Some(&address(0)));
}

#[test]
fn a_machine_in_two_places_stays_in_one() {
    let mut world = World::joined(2);
    world.set_port(0, 1, true);
    world.set_port(1, 1, true);
    world.exchange();
    let mut moves = 0;
    for _ in 0..20 {
        for host in 0..2 {
            let before = world.hosts[0].places.clone();
            world.send_frame(host, 1);
            world.exchange();
            moves += usize::from(world.hosts[0].places != before);
        }
    }
    // Each host claims it five times within three minutes.
    assert_eq!(moves, 10);
    let duplicates = world.hosts.iter().flat_map(|host| host.speaker.duplicates());
    assert_eq!(duplicates.collect::<Vec<_>>(), [(VNI, mac(1))]);
    // After that time it may move again.
    world.sleep(Duration::from_secs(200));
    let elsewhere = usize::from(world.hosts[0].places.is_empty());
    world.send_frame(elsewhere, 1);
    world.exchange();
    assert!(world.hosts[elsewhere].places.is_empty());
}

#[test]
fn the_routes_of_a_lost_session_are_gone_at_once_and_return_with_it() {
    let mut world = World::joined(2);
    world.set_port(0, 1, true);
    world.set_port(1, 2, true);
    world.exchange();
    world.disconnect(0, 1);
    world.cut.insert((0, 1));
    world.exchange();
    for host in &world.hosts {
        assert!(host.places.is_empty() && host.vteps.is_empty() && host.addresses.is_empty());
        let view = host.speaker.neighbours().next().unwrap();
        assert_eq!((view.state, view.routes_received, view.routes_sent), (State::Idle, 0, 0));
    }
    // A machine that appears meanwhile is announced later.
    world.set_port(0, 3, true);
    world.sleep(Duration::from_secs(60));
    let view = world.hosts[0].speaker.neighbours().next().unwrap();
    assert_eq!(view.error.as_deref(), Some("refused"));
    world.cut.clear();
    world.run();
    assert_eq!(world.hosts[1].places.len(), 2);
    assert_eq!(world.hosts[0].places.get(&mac(2)), Some(&address(1)));
    let view = world.hosts[0].speaker.neighbours().next().unwrap();
    assert_eq!((view.state, view.error, view.routes_received), (State::Established, None, 3));
}

#[test]
fn attempts_become_rarer_up_to_a_minute() {
    let mut world = World::new(2);
    world.cut.insert((0, 1));
    let mut attempts = vec![];
    while world.now.as_nanos() < 600_000_000_000 {
        let due = world.hosts[0].speaker.poll_timeout().unwrap();
        attempts.push(due);
        world.sleep(due.since(world.now));
    }
    let gaps: Vec<_> =
        attempts.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect();
    for (gap, longest) in gaps.iter().zip([1, 2, 4, 8, 16, 32, 60, 60, 60].map(f64::from)) {
        assert!((longest * 0.75..=longest).contains(gap), "{gaps:?}");
    }
}

#[test]
fn a_silent_neighbour_is_left_after_the_hold_time() {
    let mut world = World::joined(2);
    world.set_port(1, 2, true);
    world.exchange();
    // Only the first host's clock goes on, and nothing arrives.
    let now = world.now + Duration::from_secs(91);
    let speaker = &mut world.hosts[0].speaker;
    speaker.handle_timeout(now);
    let view = speaker.neighbours().next().unwrap();
    assert_eq!(view.error.as_deref(), Some("sent NOTIFICATION: hold timer expired"));
    world.service(0);
    assert!(world.hosts[0].places.is_empty());
}

#[test]
fn a_network_that_no_longer_takes_part_is_forgotten_on_both_sides() {
    let mut world = World::joined(2);
    world.set_port(0, 1, true);
    world.set_port(1, 2, true);
    world.exchange();
    world.hosts[0].speaker.set_networks(Default::default());
    world.exchange();
    for host in &world.hosts {
        assert!(host.places.is_empty() && host.vteps.is_empty());
    }
    // The neighbour's routes are still known, so that no message is needed.
    let networks = [(VNI, Default::default())].into();
    world.hosts[0].speaker.set_networks(networks);
    world.exchange();
    assert_eq!(world.hosts[0].places.get(&mac(2)), Some(&address(1)));
    assert_eq!(world.hosts[1].places.get(&mac(1)), Some(&address(0)));
}

#[test]
fn neighbours_that_stay_keep_their_sessions_when_others_change() {
    let mut world = World::joined(3);
    let neighbours = [super::world::neighbour(address(1))];
    let now = world.now;
    world.hosts[0].speaker.set_neighbours(now, &neighbours);
    world.exchange();
    let views: Vec<_> = world.hosts[0].speaker.neighbours().collect();
    assert_eq!(views.len(), 1);
    assert_eq!((views[0].state, views[0].counters.ended), (State::Established, 0));
    let other = world.hosts[2].speaker.neighbours().next().unwrap();
    assert_eq!(other.error.as_deref(), Some("received NOTIFICATION: cease: peer de-configured"));
}
