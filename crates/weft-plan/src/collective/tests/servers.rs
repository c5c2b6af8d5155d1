//! Schedules of ranks on servers: what crosses between servers, and on which rails.

use super::*;

/// Returns servers of equally many ranks: of random ranks, of adjacent ranks, or as dealt to them in turn.
pub(super) fn servers(ranks: usize, rng: &mut Rng) -> Vec<Vec<usize>> {
    let divisors: Vec<usize> = (1..=ranks).filter(|local| ranks.is_multiple_of(*local)).collect();
    let local = divisors[rng.index(divisors.len())];
    let count = ranks / local;
    match rng.index(3) {
        0 => order(ranks, rng).chunks(local).map(<[usize]>::to_vec).collect(),
        1 => (0..count).map(|s| (s * local..(s + 1) * local).collect()).collect(),
        _ => (0..count).map(|s| (s..ranks).step_by(count).collect()).collect(),
    }
}

#[test]
fn an_all_to_all_on_rails_is_the_direct_one_with_messages_of_few_ranks() {
    for mut case in cases() {
        let each = case.elements / (2 * case.ranks);
        case.values.iter_mut().for_each(|values| values.truncate(2 * case.ranks * each));
        case.elements = 2 * case.ranks * each;
        let servers = servers(case.ranks, &mut case.rng);
        let schedule = all_to_all_on_rails(&servers);
        assert_eq!(case.run(&schedule), case.run(&all_to_all(case.ranks)), "{servers:?}");
        for (rank, steps) in schedule.steps.iter().enumerate() {
            let at = |rank| {
                let server = servers.iter().position(|server| server.contains(&rank)).unwrap();
                (server, servers[server].iter().position(|&one| one == rank).unwrap())
            };
            let on_rail = |step: &Step| match *step {
                Step::Send { to, .. } => at(to).0 == at(rank).0 || at(to).1 == at(rank).1,
                _ => true,
            };
            assert!(steps.iter().all(on_rail), "rank {rank} of {servers:?}");
        }
    }
}

#[test]
fn messages_on_rails_are_as_large_as_a_server_has_ranks() {
    // Three servers of four ranks, adjacent and dealt in turn.
    let adjacent: Vec<Vec<usize>> = (0..3).map(|s| (4 * s..4 * s + 4).collect()).collect();
    let dealt: Vec<Vec<usize>> = (0..3).map(|s| (s..12).step_by(3).collect()).collect();
    for servers in [adjacent, dealt] {
        let schedule = all_to_all_on_rails(&servers);
        assert_eq!(schedule.chunks_per_message, 4);
        for server in &servers {
            for &rank in server {
                assert_eq!(schedule.sends(rank), 3 + 2, "of 11 without servers");
                let sent = schedule.steps[rank].iter().filter_map(|step| match *step {
                    Step::Send { to, chunks } => Some((server.contains(&to), chunks.count())),
                    _ => None,
                });
                let want = [(true, 3), (true, 3), (true, 3), (false, 4), (false, 4)];
                assert!(sent.eq(want), "rank {rank} of {servers:?}");
            }
        }
    }
}

#[test]
fn a_ring_sends_the_minimum_and_a_hierarchy_an_eighth_between_servers() {
    let ring = all_reduce_ring(&[0, 1, 2, 3, 4, 5, 6, 7]);
    assert!((0..8).all(|rank| ring.sends(rank) == 2 * 7), "2 (n - 1) of n chunks");
    let servers: Vec<Vec<usize>> = (0..4).map(|s| (0..8).map(|r| 8 * s + r).collect()).collect();
    let schedule = all_reduce_hierarchical(&servers);
    for (rank, steps) in schedule.steps.iter().enumerate() {
        let outside = |step: &&Step| matches!(step, Step::Send { to, .. } if to / 8 != rank / 8);
        // 2 (s - 1) chunks of 32: an eighth of what a ring over servers sends.
        assert_eq!(steps.iter().filter(outside).count(), 2 * 3);
        let on_rail = |step: &Step| match step {
            Step::Send { to, .. } => to / 8 == rank / 8 || to % 8 == rank % 8,
            _ => true,
        };
        assert!(steps.iter().all(on_rail), "between servers only on a rail");
    }
}

#[test]
fn rings_over_servers_cross_on_every_rail_alike() {
    for (count, local) in [(2, 2), (4, 8), (3, 4), (2, 1)] {
        let servers: Vec<Vec<usize>> =
            (0..count).map(|s| (s * local..(s + 1) * local).collect()).collect();
        let rings = rings_over_servers(&servers);
        assert_eq!(rings.len(), local);
        let mut sent = alloc::vec![0; count * local];
        let mut off_rails = 0;
        for steps in
            rings.iter().flat_map(|ring| all_reduce_ring(ring).steps.into_iter().enumerate())
        {
            let (rank, steps) = steps;
            for step in steps {
                if let Step::Send { to, .. } = step
                    && to / local != rank / local
                {
                    sent[rank] += 1;
                    off_rails += usize::from(to % local != rank % local);
                }
            }
        }
        // Each rank crosses in one ring, with 2 (n - 1) of n chunks of that ring's part of the buffer.
        assert!(sent.iter().all(|&sent| sent == 2 * (count * local - 1)), "{sent:?}");
        let crossing = sent.iter().sum::<usize>() / count;
        let want = if count % 2 == 1 && local > 1 { crossing } else { 0 };
        assert_eq!(off_rails, want, "{count} servers of {local}");
    }
    assert_eq!(rings_over_servers(&[[0, 1, 2].into(), [3].into()]), [[0, 1, 2, 3]]);
    assert_eq!(rings_over_servers(&[[1, 0].into()]), [[1, 0]]);
}

#[test]
fn trees_have_the_fewest_edges_between_servers_and_between_blocks() {
    // Servers of three ranks, dealt in turn, in an order of their own; and servers of unlike sizes.
    let dealt =
        |count: usize| (0..count).rev().map(move |s| (s..3 * count).step_by(count).collect());
    let unlike: Vec<Vec<usize>> = alloc::vec![alloc::vec![3, 0], [1].into(), [6, 4, 2, 5].into()];
    let alone: Vec<Vec<usize>> = (0..13).map(|rank| alloc::vec![rank]).collect();
    for servers in [dealt(2).collect(), dealt(5).collect(), dealt(8).collect(), unlike, alone] {
        let servers: Vec<Vec<usize>> = servers;
        for of_block in 1..=servers.len() {
            let blocks: Vec<Vec<Vec<usize>>> =
                servers.chunks(of_block).map(<[Vec<usize>]>::to_vec).collect();
            let schedule = all_reduce_double_tree_in(&blocks, 1);
            let server = |rank| servers.iter().position(|server| server.contains(&rank)).unwrap();
            let block = |rank| server(rank) / of_block;
            let (mut crossing, mut inner) =
                ([[0; 2]; 2], alloc::vec![[false; 2]; schedule.ranks()]);
            for (rank, steps) in schedule.steps.iter().enumerate() {
                for step in steps {
                    if let Step::Reduce { from, chunk } = *step {
                        crossing[chunk][0] += usize::from(server(from) != server(rank));
                        crossing[chunk][1] += usize::from(block(from) != block(rank));
                        inner[rank][chunk] = true;
                    }
                }
            }
            assert_eq!(crossing, [[servers.len() - 1, blocks.len() - 1]; 2], "{blocks:?}");
            for (rank, inner) in inner.iter().enumerate() {
                let alone = blocks[block(rank)].concat().len() == 1;
                assert!(alone || *inner != [true; 2], "rank {rank} of {blocks:?}");
            }
        }
    }
}
