//! Random operations: whatever happens on the way, all hosts agree once everything has been exchanged.

use weft_units::{Duration, Seed};

use super::world::{World, address, mac};

const HOSTS: usize = 3;
const MACHINES: u8 = 4;

/// Does something, and lets some bytes arrive.
fn step(world: &mut World, rng: &mut weft_units::Rng) {
    let (a, number) = (rng.index(HOSTS), u8::try_from(1 + rng.below(MACHINES.into())).unwrap());
    let b = (a + 1 + rng.index(HOSTS - 1)) % HOSTS;
    match rng.below(12) {
        0..=2 => world.set_port(a, number, true),
        3..=4 => world.set_port(a, number, false),
        5 => world.send_frame(a, number),
        6 if rng.below(4) == 0 => world.disconnect(a, b),
        7 if rng.below(4) == 0 => world.sleep(Duration::from_secs(rng.below(100))),
        8 => world.service(a),
        _ => {
            world.service(a);
            world.deliver(a, b, rng.index(300));
        }
    }
}

/// Checks that all hosts agree on the place of each machine, and that it has a port there.
fn check(world: &World) {
    for number in 1..=MACHINES {
        let has_port = |host: usize| world.hosts[host].ports.keys().any(|key| key.1 == mac(number));
        let place = |host: usize| world.hosts[host].places.get(&mac(number)).copied();
        let owners: Vec<_> =
            (0..HOSTS).filter(|&host| has_port(host) && place(host).is_none()).collect();
        match owners[..] {
            [owner] => {
                for other in (0..HOSTS).filter(|&other| other != owner) {
                    assert_eq!(place(other), Some(address(owner)), "machine {number}");
                }
            }
            [] => {
                assert!((0..HOSTS).all(|host| !has_port(host)), "machine {number} is lost");
                assert!((0..HOSTS).all(|host| place(host).is_none()), "machine {number} is gone");
            }
            _ => panic!("machine {number} is at {owners:?}"),
        }
    }
}

#[test]
fn hosts_agree_after_random_operations() {
    for seed in 0..300 {
        let mut rng = Seed(seed).rng();
        let mut world = World::new(HOSTS);
        if rng.below(4) > 0 {
            world.run();
        }
        for _ in 0..rng.below(200) {
            step(&mut world, &mut rng);
        }
        world.run();
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&world)));
        assert!(checked.is_ok(), "seed {seed}");
    }
}
