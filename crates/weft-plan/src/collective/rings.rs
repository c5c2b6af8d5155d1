//! The orders of several rings over servers.

use alloc::vec::Vec;

/// Returns the orders of as many rings as a server has ranks. Each ring visits the servers in this order and crosses from
/// one to the next between the ranks of one place, on a rail; with an odd number of servers one of its crossings is between
/// two places. A rank crosses in one of the rings only: each rank's link carries an equal part of what leaves its server.
///
/// There is one ring, in the order given, if numbers of ranks differ between servers or nothing crosses.
pub fn rings_over_servers(servers: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let local = servers.first().map_or(0, Vec::len);
    if servers.len() < 2 || servers.iter().any(|server| server.len() != local) {
        return [servers.concat()].into();
    }
    let ring = |place: usize| {
        let part = |(number, server): (usize, &Vec<usize>)| {
            let mut part = server.clone();
            part.rotate_left(place);
            // A ring turns round in each server, so that it leaves where it entered the one before.
            if number % 2 == 1 {
                part.reverse();
            }
            part
        };
        servers.iter().enumerate().flat_map(part).collect()
    };
    (0..local).map(ring).collect()
}
