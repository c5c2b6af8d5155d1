//! Tests of policies that leave paths, on an in-memory link: the conditions under which they leave.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use weft_units::{BitRate, Duration};
use weft_wire::Packet;

use super::pair::{Fate, OnLink, Pair};
use crate::path::{Kind, PathId};
use crate::{HopperConfig, MpRdmaConfig, TransportConfig, congestion};

/// Returns a configuration of eight paths, with a window of 100 packets that is the only limit.
fn config(policy: Kind) -> TransportConfig {
    TransportConfig {
        mtu: 1000,
        paths: 8,
        policy,
        congestion: congestion::Kind::FixedWindow,
        line_rate: BitRate::gbps(80).expect("not zero"),
        base_rtt: Duration::from_micros(10),
        ack_every: 1,
        ..TransportConfig::stellar()
    }
}

/// Sends a megabyte; `fate` returns the effect of a path on its data packets. Returns the paths taken, each with its
/// number of packets, in the order of their first use.
fn paths_taken(
    config: &TransportConfig,
    fate: impl Fn(PathId) -> Fate + 'static,
) -> (Vec<(PathId, u32)>, Pair) {
    paths_taken_by_length(config, move |path, _| fate(path))
}

/// As [`paths_taken`], for effects that depend on the number of bytes after a packet's headers.
fn paths_taken_by_length(
    config: &TransportConfig,
    fate: impl Fn(PathId, u16) -> Fate + 'static,
) -> (Vec<(PathId, u32)>, Pair) {
    let (mut pair, ids) = Pair::joined(config);
    let taken = Rc::new(RefCell::new(Vec::<(PathId, u32)>::new()));
    let log = taken.clone();
    pair.rule = Box::new(move |packet: &OnLink<'_>| {
        let Packet::Data(header, _) = packet.packet else { return Fate::Pass };
        if !header.special {
            let mut log = log.borrow_mut();
            match log.iter_mut().find(|(path, _)| *path == packet.path) {
                Some((_, count)) => *count += 1,
                None => log.push((packet.path, 1)),
            }
        }
        fate(packet.path, packet.len)
    });
    pair.submit(0, ids[0], 1, 1_000_000);
    pair.run_until(Duration::from_millis(20), |pair| pair.acked_tokens(0) == [1]);
    let taken = taken.borrow().clone();
    (taken, pair)
}

fn first_path(policy: Kind) -> PathId {
    paths_taken(&config(policy), |_| Fate::Pass).0[0].0
}

#[test]
fn hopper_leaves_a_slow_path_for_one_that_it_probed() {
    let slow = first_path(Kind::Hopper);
    let delay = move |path| {
        if path == slow { Fate::Delay(Duration::from_micros(30)) } else { Fate::Pass }
    };
    let (taken, pair) = paths_taken(&config(Kind::Hopper), delay);
    let &[(from, on_old), (_, on_new)] = &taken[..] else { panic!("{taken:?}") };
    assert_eq!(from, slow);
    assert!(on_old < 400 && on_new > 600, "{taken:?}");
    let stats = pair.ends[0].stats();
    assert_eq!((stats.probes_sent, stats.path_switches), (2, 1));
    // The probes and answers have headers of 16 and 32 bytes and no padding.
    let answers = pair.ends[1].stats().probe_bytes;
    assert_eq!((stats.probe_bytes, answers), (2 * 16, 2 * 32));
    assert_eq!(pair.ends[1].stats().out_of_order, 0, "the new path's packets waited");
}

/// Two idle paths beside a congested one; a packet of 1000 bytes takes 16 us longer on one of them, as on a link of
/// half a gigabit a second, headers almost no time. Headers alone do not distinguish the two.
#[test]
fn a_probe_with_payload_distinguishes_a_slow_link_from_a_fast_one() {
    let three = TransportConfig { paths: 3, ..config(Kind::Hopper) };
    let congested = paths_taken(&three, |_| Fate::Pass).0[0].0;
    let delay = |slow_link: Option<PathId>| {
        move |path, len| match path {
            _ if path == congested => Fate::Delay(Duration::from_micros(30)),
            _ if slow_link == Some(path) => Fate::Delay(Duration::from_nanos(u64::from(len) * 16)),
            _ => Fate::Pass,
        }
    };
    let second = |config: &TransportConfig, slow_link| {
        let (taken, pair) = paths_taken_by_length(config, delay(slow_link));
        (taken[1].0, pair)
    };
    let chosen = second(&three, None).0;
    assert_eq!(second(&three, Some(chosen)).0, chosen);
    let (other, pair) = second(&TransportConfig { probe_bytes: 1000, ..three }, Some(chosen));
    assert!(other != chosen && other != congested, "{other:?}");
    let stats = [0, 1].map(|end| pair.ends[end].stats());
    assert_eq!((stats[0].probe_bytes, stats[1].probe_bytes), (2 * 1016, 2 * 32));
    assert_eq!(stats[1].data_received, stats[0].data_sent, "padding is no data");
}

/// Packets leave 100 ns apart, so that some are in flight on the old path when it is left.
#[test]
fn a_change_of_path_that_waits_is_counted_as_a_stall_and_one_at_once_is_none() {
    let slow = first_path(Kind::Hopper);
    let stall = |delay_percent| {
        let hopper = HopperConfig { delay_percent, ..HopperConfig::default() };
        let (mut pair, ids) = Pair::joined(&TransportConfig { hopper, ..config(Kind::Hopper) });
        let mut free_at = pair.now;
        pair.rule = Box::new(move |packet: &OnLink<'_>| {
            if !matches!(packet.packet, Packet::Data(header, _) if !header.special) {
                return Fate::Pass;
            }
            free_at = free_at.max(packet.now) + Duration::from_nanos(100);
            let distance = Duration::from_micros(if packet.path == slow { 30 } else { 0 });
            Fate::Delay(free_at.since(packet.now) + distance)
        });
        pair.submit(0, ids[0], 1, 1_000_000);
        pair.run_until(Duration::from_millis(20), |pair| pair.acked_tokens(0) == [1]);
        let stats = pair.ends[0].stats();
        assert_eq!(stats.path_switches, 1);
        stats.switch_stall_nanos
    };
    // The epoch ends with the first ACK of a window of 100 packets; the old path is empty 99 ACKs later.
    assert_eq!(stall(100), 99 * 100);
    assert_eq!(stall(0), 0);
}

#[test]
fn hopper_probes_and_stays_where_every_path_is_as_slow() {
    let delay = |_| Fate::Delay(Duration::from_micros(30));
    let (taken, pair) = paths_taken(&config(Kind::Hopper), delay);
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert!(pair.ends[0].stats().probes_sent > 4);
}

#[test]
fn hopper_leaves_a_fast_path_alone() {
    let (taken, pair) = paths_taken(&config(Kind::Hopper), |_| Fate::Pass);
    assert_eq!(taken.len(), 1, "{taken:?}");
    let stats = pair.ends[0].stats();
    assert_eq!((stats.probes_sent, stats.probe_bytes, stats.path_switches), (0, 0, 0));
}

#[test]
fn flowbender_and_plb_leave_a_marked_path_and_stay_on_a_clean_one() {
    for (policy, at_most) in [(Kind::FlowBender, 300), (Kind::Plb, 990)] {
        let bad = first_path(policy);
        let mark = move |path| if path == bad { Fate::Mark(Duration::ZERO) } else { Fate::Pass };
        // A window of 50 packets: a transfer takes 20 round trips.
        let config = TransportConfig { send_window: 50, ..config(policy) };
        let (taken, _) = paths_taken(&config, mark);
        let &[(from, on_old), (_, on_new)] = &taken[..] else { panic!("{policy}: {taken:?}") };
        assert_eq!((from, on_old + on_new), (bad, 1000), "{policy}");
        assert!(on_old < at_most, "{policy}: {taken:?}");
    }
}

#[test]
fn flowbender_tries_one_path_after_another_where_all_are_marked_and_hopper_stays() {
    let mark = |_| Fate::Mark(Duration::ZERO);
    let config = |policy| TransportConfig { send_window: 50, ..config(policy) };
    assert!(paths_taken(&config(Kind::FlowBender), mark).0.len() > 3);
    assert_eq!(paths_taken(&config(Kind::Hopper), mark).0.len(), 1);
}

#[test]
fn mp_rdma_leaves_a_path_whose_packets_are_overtaken_by_more_than_its_bound() {
    // Its packets take most of a round trip longer: some seventy packets of the others overtake each.
    let slow = |path: PathId| {
        if path.0 == 3 { Fate::Delay(Duration::from_micros(8)) } else { Fate::Pass }
    };
    let on_slow = |congestion, reordering_bound| {
        let mp_rdma = MpRdmaConfig { reordering_bound, ..MpRdmaConfig::default() };
        let config = TransportConfig { congestion, mp_rdma, ..config(Kind::MpRdma) };
        let (taken, _) = paths_taken(&config, slow);
        taken.iter().find(|(path, _)| path.0 == 3).map_or(0, |&(_, packets)| packets)
    };
    for congestion in [congestion::Kind::MpRdma, congestion::Kind::FixedWindow] {
        let [bounded, unbounded] = [32, 8192].map(|bound| on_slow(congestion, bound));
        assert!(bounded * 2 < unbounded, "{congestion}: {bounded} and {unbounded} packets");
    }
}

/// At the queue target the window holds 58 KB of these two paths of 100 Mb/s, less than a configured spray unit of 72
/// KB: a unit that filled the window would keep one path at a time busy.
#[test]
fn a_small_window_keeps_both_paths_busy() {
    let config = TransportConfig {
        mtu: 1432,
        paths: 2,
        congestion: congestion::Kind::Weft,
        base_rtt: Duration::from_micros(300),
        queue_target: Duration::from_millis(2),
        ..TransportConfig::bifrost()
    };
    let (mut pair, ids) = Pair::joined(&config);
    let mut free_at = [pair.now; 2];
    pair.rule = Box::new(move |on_link: &OnLink<'_>| {
        let Packet::Data(..) = on_link.packet else { return Fate::Pass };
        let path = &mut free_at[usize::from(on_link.path.0)];
        let bits = 8 * (u64::from(on_link.len) + 78);
        *path = (*path).max(on_link.now) + Duration::from_nanos(bits * 10);
        Fate::Delay(path.since(on_link.now))
    });
    let began = pair.now;
    (1..=10).for_each(|token| pair.submit(0, ids[0], token, 1_000_000));
    pair.run_until(Duration::from_secs(2), |pair| pair.acked_tokens(0).len() == 10);
    let rate = 80e6 / pair.now.since(began).as_secs_f64();
    assert!(rate > 0.9 * 200e6 * 1432.0 / 1510.0, "{rate:.3e} bit/s");
}
