//! Circles of a directed graph.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the sets of two or more of `nodes` nodes that reach each other.
pub(super) fn circles<T>(
    nodes: usize,
    arrows: &BTreeMap<(usize, usize), T>,
) -> Vec<BTreeSet<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..nodes).map(|node| reached_from(node, arrows)).collect();
    let mut circles: BTreeSet<BTreeSet<usize>> = BTreeSet::new();
    for node in 0..nodes {
        let circle = reached[node].iter().copied().filter(|&other| reached[other].contains(&node));
        circles.insert(circle.collect());
    }
    circles.into_iter().filter(|circle| circle.len() > 1).collect()
}

fn reached_from<T>(start: usize, arrows: &BTreeMap<(usize, usize), T>) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(node) = open.pop() {
        for (&(_, to), _) in arrows.range((node, 0)..=(node, usize::MAX)) {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}
