//! Bounded proofs of the arithmetic of packet sequence numbers, which wrap (`docs/design/proofs.md`).

use super::*;

/// Checks all 2^32 distances, from two numbers.
#[test]
#[ignore = "seconds; `cargo xtask proofs` runs it"]
fn one_number_comes_before_another_within_half_the_circle() {
    for from in [0x8000_0001, u32::MAX] {
        for distance in 0..=u32::MAX {
            let to = from.wrapping_add(distance);
            assert_eq!(before(from, to), distance != 0 && distance < 1 << 31);
        }
    }
}

/// Checks both numbers at every distance that is near an edge: the circle has no distinguished point.
#[test]
fn the_order_does_not_depend_on_the_place() {
    let near = |edge: u32| (0..=200_u32).map(move |step| edge.wrapping_sub(100).wrapping_add(step));
    let edges = [0, 1 << 16, 1 << 31];
    for from in edges.into_iter().flat_map(near) {
        for distance in edges.into_iter().flat_map(near) {
            let to = from.wrapping_add(distance);
            assert_eq!(before(from, to), distance != 0 && distance < 1 << 31);
            assert!(!(before(from, to) && before(to, from)), "{from} and {to}");
        }
    }
}

/// Checks that in a window that begins anywhere beside a chunk's edge or the wrap, each number has its own slot, and
/// keeps it while those before it are released.
#[test]
fn every_number_of_a_window_has_its_own_slot() {
    const WIDTH: u32 = 3 * CHUNK;
    for edge in [0, 1 << 31] {
        for base in (0..=2 * CHUNK).map(|step| u32::wrapping_sub(edge, CHUNK).wrapping_add(step)) {
            let (mut pool, mut window) = (Pool::new(), Window::<u32>::new());
            for step in 0..WIDTH {
                *window.enter(base.wrapping_add(step), base, &mut pool) = step + 1;
            }
            for given_back in 0..WIDTH {
                let first = base.wrapping_add(given_back);
                window.release_before(first, &mut pool);
                for step in given_back..WIDTH {
                    assert_eq!(window.slot(base.wrapping_add(step)), Some(&(step + 1)));
                }
            }
        }
    }
}
