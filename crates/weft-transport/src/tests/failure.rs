//! Loss on one path, all paths, and both directions.

use alloc::boxed::Box;

use weft_units::{Duration, Seed};

use super::pair::{Fate, Pair};
use crate::{TransportConfig, congestion, path};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn heavy_random_loss_in_both_directions_loses_nothing() {
    for &policy in path::Kind::ALL {
        for &congestion in congestion::Kind::ALL {
            for base in [TransportConfig::stellar(), TransportConfig::bifrost()] {
                let config = TransportConfig { policy, congestion, paths: 8, ..base };
                let (mut pair, ids) = Pair::joined(&config);
                let mut rng = Seed(11).rng();
                pair.rule =
                    Box::new(move |_| if rng.chance(1, 5) { Fate::Drop } else { Fate::Pass });
                for token in 0..10 {
                    pair.submit(0, ids[0], token, 30_000);
                }
                pair.run_until(LIMIT, |pair| pair.sent_tokens(0).len() == 10);
                assert_eq!(pair.bytes_placed(1), 300_000, "{policy} {congestion}");
            }
        }
    }
}

#[test]
fn one_lossy_path_of_128_leaves_the_rest_their_speed() {
    let finish = |loss: bool| {
        let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
        let mut rng = Seed(3).rng();
        pair.rule = Box::new(move |on_link| {
            let drop = loss && on_link.path.0 == 5 && rng.chance(1, 20);
            if drop { Fate::Drop } else { Fate::Pass }
        });
        let began = pair.now;
        pair.submit(0, ids[0], 1, 50_000_000);
        pair.run_until(LIMIT, |pair| pair.sent_tokens(0) == [1]);
        pair.now.since(began)
    };
    let (clean, lossy) = (finish(false), finish(true));
    assert!(lossy.as_nanos() < clean.as_nanos() * 105 / 100, "{lossy} against {clean}");
}

#[test]
fn when_every_path_dies_and_comes_back_everything_arrives() {
    let (mut pair, ids) = Pair::joined(&TransportConfig::stellar());
    let (dies, heals) =
        (pair.now + Duration::from_micros(50), pair.now + Duration::from_millis(900));
    pair.rule = Box::new(move |on_link| {
        let dead = on_link.now >= dies && on_link.now < heals;
        if dead { Fate::Drop } else { Fate::Pass }
    });
    pair.submit(0, ids[0], 1, 20_000_000);
    pair.run_until(LIMIT, |pair| pair.sent_tokens(0) == [1]);
    assert_eq!(pair.bytes_placed(1), 20_000_000);
    assert!(pair.now >= heals);
    // Recovery is prompt once the network is back.
    assert!(pair.now.since(heals) < Duration::from_millis(20), "{}", pair.now.since(heals));
}

#[test]
fn a_dead_path_costs_a_few_round_trips_not_a_timeout() {
    let config = TransportConfig { paths: 4, ..TransportConfig::stellar() };
    let (mut pair, ids) = Pair::joined(&config);
    let dies = pair.now + Duration::from_micros(100);
    pair.rule =
        Box::new(
            move |on_link| {
                if on_link.path.0 == 1 && on_link.now >= dies { Fate::Drop } else { Fate::Pass }
            },
        );
    pair.submit(0, ids[0], 1, 50_000_000);
    pair.run_until(LIMIT, |pair| pair.ends[0].stats().paths_down > 0);
    let took = pair.now.since(dies);
    assert!(took < Duration::from_micros(250), "down after {took}");
    pair.run_until(LIMIT, |pair| pair.sent_tokens(0) == [1]);
}
