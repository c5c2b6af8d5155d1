//! The paths that connections of one endpoint share: losses, dead and lossy paths, round trips, findings.

use core::net::{Ipv4Addr, SocketAddrV4};

use super::*;

fn peer(number: u32) -> PeerPorts {
    PeerPorts { peer: SocketAddrV4::new(Ipv4Addr::from(number), 4791).into(), group: 0 }
}

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1_000)
}

fn shared() -> PeerPaths {
    let mut paths = PeerPaths::default();
    paths.share(1);
    paths
}

/// Returns four paths, one of which was measured and lost packets.
fn measured(micros: u64, acked: u32, lost: u32) -> Paths {
    let mut paths = Paths::new(4, 1000, at(0));
    paths.count_packets();
    for id in paths.ids() {
        let rtt = if id == PathId(3) { micros } else { 10 };
        paths.sample_rtt(id, Duration::from_micros(rtt));
        let count = if id == PathId(3) { acked } else { 100 };
        (0..count).for_each(|_| _ = paths.note_acked(id, at(0), at(50)));
    }
    (0..lost).for_each(|_| paths.count_lost(PathId(3), true));
    paths
}

fn write(shared: &mut PeerPaths, mut paths: Paths, now: Instant) -> usize {
    shared.note_measured(peer(1), &mut paths, RoundTrip::default(), at(0), now)
}

#[test]
fn packets_lost_together_count_once_and_one_that_arrives_clears_the_count() {
    let mut paths = PeerPaths::default();
    assert_eq!(paths.note_loss(peer(1), PathId(3), at(1), at(9)), (0, true), "nobody shares");
    paths.share(1);
    let mut lose = |sent, now| paths.note_loss(peer(1), PathId(3), at(sent), at(now));
    assert_eq!(
        [lose(1, 10), lose(2, 11), lose(9, 12), lose(11, 13)],
        [(1, true), (1, false), (1, false), (2, true)]
    );
    paths.note_acked(peer(2), |_| true);
    assert!(paths.has_suspects());
    paths.note_acked(peer(1), |path| path == PathId(3));
    assert!(!paths.has_suspects());
}

#[test]
fn a_path_that_is_down_needs_a_prober_until_it_is_back() {
    let mut paths = shared();
    paths.note_loss(peer(1), PathId(3), at(1), at(2));
    paths.note_down(peer(1), PathId(3), ConnectionId(7), 2);
    assert!(!paths.is_closed(peer(1), PathId(3)), "one loss is not enough");
    paths.note_loss(peer(1), PathId(3), at(3), at(4));
    paths.note_down(peer(1), PathId(3), ConnectionId(7), 2);
    paths.note_acked(peer(1), |_| true);
    assert_eq!(paths.down(peer(1)).collect::<Vec<_>>(), [(PathId(3), true)]);
    assert_eq!(paths.down(peer(2)).count(), 0);
    let version = paths.version();
    paths.remove_prober(peer(1), ConnectionId(8));
    assert_eq!(paths.version(), version);
    paths.remove_prober(peer(1), ConnectionId(7));
    assert_ne!(paths.version(), version);
    assert_eq!(paths.down(peer(1)).collect::<Vec<_>>(), [(PathId(3), false)]);
    paths.note_up(peer(1), PathId(3));
    assert!(!paths.is_closed(peer(1), PathId(3)) && !paths.has_suspects());
}

#[test]
fn ports_that_differ_by_the_peers_thread_are_distinguished() {
    let mut paths = PeerPaths::default();
    let address = peer(1).peer;
    assert_eq!(paths.key(address, 5).group, 0);
    paths.share(4);
    assert_eq!(paths.key(address, 5).group, 1);
    for thread in [5, 5] {
        paths.note_loss(paths.key(address, thread), PathId(0), at(1), at(2));
    }
    paths.note_down(paths.key(address, 1), PathId(0), ConnectionId(1), 1);
    assert!(paths.is_closed(paths.key(address, 9), PathId(0)));
    assert!(!paths.is_closed(paths.key(address, 2), PathId(0)));
}

#[test]
fn a_connection_that_wakes_gets_round_trips_that_are_newer_than_its_own() {
    let mut paths = shared();
    write(&mut paths, measured(900, 10, 0), at(100));
    let mut fresh = Paths::new(4, 1000, at(200));
    assert!(paths.seed(peer(1), &mut fresh, at(200)).1);
    // The round trip is 90 times the shortest, rounded to a power of two.
    assert_eq!(fresh.rtt(PathId(3)), Some(Duration::from_micros(640)));
    assert_eq!(fresh.rtt(PathId(0)), Some(Duration::from_micros(10)));
    // A connection that measured later keeps its own.
    let mut later = Paths::new(4, 1000, at(0));
    later.sample_rtt(PathId(3), Duration::from_micros(20));
    later.note_response(PathId(3), at(150));
    paths.seed(peer(1), &mut later, at(200));
    assert_eq!(later.rtt(PathId(3)), Some(Duration::from_micros(20)));
    // After ten seconds the measurement has expired; another peer's was never used.
    for (to, micros) in [(peer(1), 10_000_101), (peer(2), 200)] {
        let mut fresh = Paths::new(4, 1000, at(micros));
        assert!(!paths.seed(to, &mut fresh, at(micros)).1);
        assert_eq!(fresh.rtt(PathId(3)), None);
    }
}

#[test]
fn a_lossy_path_closes_for_all_and_opens_after_its_time() {
    let mut paths = shared();
    assert_eq!(write(&mut paths, measured(10, 50, 6), at(100)), 1);
    assert!(paths.is_closed(peer(1), PathId(3)) && paths.is_lossy(peer(1), PathId(3)));
    let version = paths.version();
    paths.seed(peer(1), &mut Paths::new(4, 1000, at(200)), at(900_000));
    assert_eq!((paths.version(), paths.records.closed()), (version, 1));
    paths.seed(peer(1), &mut Paths::new(4, 1000, at(200)), at(1_000_101));
    assert_eq!(paths.records.closed(), 0);
    assert_ne!(paths.version(), version);
}

#[test]
fn another_endpoint_is_notified_of_a_change_once() {
    let (mut here, mut there) = (shared(), shared());
    here.keep_news();
    there.keep_news();
    let pass = |here: &mut PeerPaths, there: &mut PeerPaths, now| {
        let news: Vec<_> = core::iter::from_fn(|| here.poll_news()).collect();
        news.iter().for_each(|news| there.handle_news(now, news, 2));
        assert_eq!(there.poll_news(), None, "it is not passed on");
        news.len()
    };
    write(&mut here, measured(10, 50, 6), at(100));
    assert_eq!(pass(&mut here, &mut there, at(101)), 5);
    assert!(there.is_lossy(peer(1), PathId(3)));
    let mut fresh = Paths::new(4, 1000, at(200));
    there.seed(peer(1), &mut fresh, at(200));
    assert_eq!(fresh.rtt(PathId(0)), Some(Duration::from_micros(10)));
    // The same round trips again are not advertised.
    write(&mut here, measured(10, 50, 0), at(500_000));
    assert_eq!(pass(&mut here, &mut there, at(500_001)), 0);
    for _ in 0..2 {
        here.note_loss(peer(1), PathId(1), at(600_000), at(600_001));
        here.note_loss(peer(1), PathId(1), at(600_002), at(600_003));
        here.note_down(peer(1), PathId(1), ConnectionId(7), 2);
    }
    assert_eq!(pass(&mut here, &mut there, at(600_004)), 1);
    assert_eq!(there.down(peer(1)).collect::<Vec<_>>(), [(PathId(1), false)]);
    there.note_down(peer(1), PathId(1), ConnectionId(9), 2);
    assert_eq!(there.poll_news(), None, "it is not passed back");
    here.note_up(peer(1), PathId(1));
    assert_eq!(pass(&mut here, &mut there, at(700_000)), 1);
    assert_eq!(there.down(peer(1)).count(), 0);
}
