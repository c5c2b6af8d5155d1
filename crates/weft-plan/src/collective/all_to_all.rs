//! All-to-all: every rank sends one chunk to each other rank.

use alloc::vec;
use alloc::vec::Vec;

use super::{Chunks, Schedule, Step, check_order};

/// Returns an all-to-all: chunk `d` of rank `s` becomes chunk `n + s` of rank `d`. The first half of a buffer
/// is sent, the second received. In round `k` every rank sends to the rank `k` ahead, so that no two send to
/// one rank at a time. Chunks must have equal lengths: the buffer is a multiple of `2 n` elements.
pub fn all_to_all(ranks: usize) -> Schedule {
    let mut schedule = Schedule::new(ranks, 2 * ranks);
    for rank in 0..ranks {
        schedule.steps[rank].push(Step::Copy { chunk: rank, to: ranks + rank });
        for round in 1..ranks {
            let (to, from) = ((rank + round) % ranks, (rank + ranks - round) % ranks);
            schedule.steps[rank].push(Step::send(to, to));
            schedule.steps[rank].push(Step::receive(from, ranks + from));
        }
    }
    schedule
}

/// Returns an all-to-all of ranks on servers with few messages: the chunks from a server to a rank are first passed to the
/// rank at the receiver's place of their own server, which sends them together. So a message crosses servers only on its
/// rail, between ranks of one place, and has a chunk of each rank of a server; inside a server a message has a chunk for each
/// server. A rank sends `k - 1` and `s - 1` messages, for `s` servers of `k` ranks, in place of `s k - 1`, and between
/// servers as many bytes as with [`all_to_all`].
///
/// Chunks in passing are in the places of those that their second message is exchanged for, so no memory is needed for them.
///
/// `servers[s]` are the ranks of a server, by place. A message is cut into its chunks if the ranks of a server, or those of a
/// place, are not numbered in equal distances.
///
/// # Panics
/// If numbers of ranks differ between servers, or servers do not name every rank once.
pub fn all_to_all_on_rails(servers: &[Vec<usize>]) -> Schedule {
    check_order(&servers.concat());
    let local = servers.first().map_or(0, Vec::len);
    assert!(servers.iter().all(|server| server.len() == local), "servers have equally many ranks");
    let (count, ranks) = (servers.len(), local * servers.len());
    let mut schedule = Schedule::new(ranks, 2 * ranks);
    schedule.chunks_per_message = local.max(count).max(1);
    let to_place = |place: usize| servers.iter().map(|server| server[place]).collect::<Vec<_>>();
    let from_place = |place| received(&to_place(place), ranks);
    for (number, server) in servers.iter().enumerate() {
        for (place, &rank) in server.iter().enumerate() {
            let steps = &mut schedule.steps[rank];
            let own = to_place(place);
            steps.extend(own.iter().map(|&chunk| Step::Copy { chunk, to: ranks + chunk }));
            for round in 1..local {
                let (to, from) = ((place + round) % local, (place + local - round) % local);
                let sent = messages(&to_place(to), &from_place(place));
                steps.extend(
                    sent.into_iter().map(|(chunks, _)| Step::Send { to: server[to], chunks }),
                );
                let got = messages(&own, &from_place(from));
                steps.extend(
                    got.into_iter().map(|(_, chunks)| Step::Receive { from: server[from], chunks }),
                );
            }
            // All leave before the first arrives, which takes the place of one that has left.
            let here = received(server, ranks);
            for round in 1..count {
                let to = &servers[(number + round) % count];
                let sent = messages(&received(to, ranks), &here);
                steps.extend(
                    sent.into_iter().map(|(chunks, _)| Step::Send { to: to[place], chunks }),
                );
            }
            for round in 1..count {
                let from = &servers[(number + count - round) % count];
                let got = messages(&here, &received(from, ranks));
                steps.extend(
                    got.into_iter().map(|(_, chunks)| Step::Receive { from: from[place], chunks }),
                );
            }
        }
    }
    schedule
}

/// Returns the chunks that are received from these ranks.
fn received(from: &[usize], ranks: usize) -> Vec<usize> {
    from.iter().map(|rank| ranks + rank).collect()
}

/// Returns the messages that carry chunks, with the chunks that they overwrite: one message if both are in equal distances,
/// else one for each chunk.
fn messages(sent: &[usize], stored: &[usize]) -> Vec<(Chunks, Chunks)> {
    match (Chunks::of(sent), Chunks::of(stored)) {
        (Some(sent), Some(stored)) => vec![(sent, stored)],
        _ => {
            let pairs = sent.iter().zip(stored);
            pairs.map(|(&sent, &stored)| (Chunks::one(sent), Chunks::one(stored))).collect()
        }
    }
}
