//! Fault localization by binary tomography: the links whose paths suffer, while paths that avoid them do not. As in
//! 007 (Arzani et al., NSDI 2018) the links are taken greedily, the one that explains the most suffering paths first.
//! Hosts have one vote each, however many paths they report, so that one host's false report decides nothing.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::fabric::LinkId;

/// A path in one evaluation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    /// A number of the host that reported it. Paths are in the order of these numbers.
    pub(super) source: usize,
    /// The links that probes and answers cross.
    pub(super) links: &'a [LinkId],
    /// `true` if the path has the fault that is looked for.
    pub(super) suffers: bool,
}

/// Counts over the paths that cross a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Number of paths.
    pub(super) paths: usize,
    /// Number of paths that suffer.
    pub(super) suffering: usize,
    /// Number of hosts that have probed the link.
    pub(super) sources: usize,
    /// Number of these hosts of which at least two thirds of the paths over the link suffer.
    pub(super) votes: usize,
}

/// Links that explain why paths suffer. All of them are crossed by the same paths, so that probes do not distinguish
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspected {
    pub(super) links: Vec<LinkId>,
    pub(super) tally: Tally,
}

/// Maximum number of faults of one evaluation.
const MAX_FAULTS: usize = 16;

/// Returns the suspected links, the one that explains the most first. A link is suspected only by at least
/// `min_sources` hosts and two thirds of those that probe it, and only if the share of suffering paths is at most half
/// as large among the paths that avoid it.
pub(super) fn localize(paths: &[Observed<'_>], min_sources: usize) -> Vec<Suspected> {
    let over = paths_by_link(paths);
    let mut unexplained = vec![true; paths.len()];
    let mut found = Vec::new();
    while found.len() < MAX_FAULTS {
        let all = Tally::of(paths, (0..paths.len()).filter(|&path| unexplained[path]));
        let tallies = over.iter().map(|(&link, over)| {
            let left = over.iter().copied().filter(|&path| unexplained[path]);
            (Tally::of(paths, left), link)
        });
        let suspected = tallies.filter(|(tally, _)| tally.is_fault(&all, min_sources));
        // Of two links that explain the same number, the one with fewer healthy paths is more likely.
        let best = suspected.min_by_key(|&(it, link)| (usize::MAX - it.suffering, it.paths, link));
        let Some((tally, link)) = best else { break };
        let explained: Vec<usize> =
            over[&link].iter().copied().filter(|&path| unexplained[path]).collect();
        let is_same = |other: &&Vec<usize>| {
            other.iter().filter(|&&path| unexplained[path]).eq(explained.iter())
        };
        let links =
            over.iter().filter(|(_, other)| is_same(other)).map(|(&link, _)| link).collect();
        explained.iter().for_each(|&path| unexplained[path] = false);
        found.push(Suspected { links, tally });
    }
    found
}

/// Returns the indices of the paths that cross each link of a suffering path.
fn paths_by_link(paths: &[Observed<'_>]) -> BTreeMap<LinkId, Vec<usize>> {
    let suffering = paths.iter().filter(|path| path.suffers);
    let mut over: BTreeMap<LinkId, Vec<usize>> =
        suffering.flat_map(|path| path.links).map(|&link| (link, Vec::new())).collect();
    if over.is_empty() {
        return over;
    }
    for (index, path) in paths.iter().enumerate() {
        for link in path.links {
            // A path may cross a link on the way out and on the way back.
            if let Some(over) = over.get_mut(link).filter(|it| it.last() != Some(&index)) {
                over.push(index);
            }
        }
    }
    over
}

impl Tally {
    /// Counts paths, given their indices in order.
    fn of(paths: &[Observed<'_>], indices: impl Iterator<Item = usize>) -> Self {
        let mut tally = Self::default();
        let (mut source, mut of_source) = (None, (0, 0));
        for path in indices.map(|index| &paths[index]) {
            if source != Some(path.source) {
                tally.add(core::mem::take(&mut of_source));
                source = Some(path.source);
            }
            of_source.0 += 1;
            of_source.1 += usize::from(path.suffers);
        }
        tally.add(of_source);
        tally
    }

    /// Adds the paths of one host: all, and those that suffer.
    fn add(&mut self, (paths, suffering): (usize, usize)) {
        self.paths += paths;
        self.suffering += suffering;
        self.sources += usize::from(paths > 0);
        self.votes += usize::from(paths > 0 && suffering * 3 >= paths * 2);
    }

    /// Returns `true` if a link with these paths is suspected, given the tally of all paths.
    fn is_fault(&self, all: &Self, min_sources: usize) -> bool {
        let (avoiding, suffering) = (all.paths - self.paths, all.suffering - self.suffering);
        self.suffering > 0
            && self.votes >= min_sources
            && self.votes * 3 >= self.sources * 2
            && avoiding > 0
            && suffering * self.paths * 2 <= self.suffering * avoiding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the suspected links of paths, each written as its host, its links and whether it suffers.
    fn suspected(paths: &[(usize, &[u32], bool)]) -> Vec<Vec<u32>> {
        let links: Vec<Vec<LinkId>> =
            paths.iter().map(|it| it.1.iter().copied().map(LinkId).collect()).collect();
        let observed = paths.iter().zip(&links);
        let observed: Vec<_> = observed
            .map(|(&(source, _, suffers), links)| Observed { source, links, suffers })
            .collect();
        let found = localize(&observed, 2).into_iter();
        found.map(|it| it.links.into_iter().map(|link| link.0).collect()).collect()
    }

    #[test]
    fn a_link_is_suspected_that_all_suffering_paths_cross_and_no_healthy_one() {
        let paths: &[(usize, &[u32], bool)] =
            &[(0, &[1, 7], true), (0, &[2, 8], false), (1, &[3, 7], true), (1, &[4, 8], false)];
        assert_eq!(suspected(paths), [[7]]);
    }

    #[test]
    fn links_that_the_same_paths_cross_are_suspected_together() {
        let paths: &[(usize, &[u32], bool)] =
            &[(0, &[1, 7, 9], true), (1, &[3, 7, 9], true), (1, &[4, 8], false)];
        assert_eq!(suspected(paths), [[7, 9]]);
    }

    #[test]
    fn two_faults_are_found_the_larger_first() {
        let paths: &[(usize, &[u32], bool)] = &[
            (0, &[1, 7], true),
            (0, &[2, 8], true),
            (0, &[2, 9], false),
            (1, &[3, 7], true),
            (1, &[4, 8], true),
            (1, &[4, 9], false),
            (2, &[5, 7], true),
            (2, &[6, 9], false),
            (3, &[10, 9], false),
            (3, &[11, 9], false),
        ];
        assert_eq!(suspected(paths), [[7], [8]]);
    }

    #[test]
    fn one_host_alone_and_a_loss_that_is_everywhere_suspect_no_link() {
        let one: &[(usize, &[u32], bool)] =
            &[(0, &[1, 7], true), (0, &[1, 7], true), (1, &[2, 8], false)];
        assert!(suspected(one).is_empty());
        let everywhere: &[(usize, &[u32], bool)] =
            &[(0, &[1, 7], true), (0, &[2, 8], true), (1, &[3, 7], true), (1, &[4, 8], true)];
        assert!(suspected(everywhere).is_empty());
        // Half of a host's paths over a link are no vote of that host.
        let half: &[(usize, &[u32], bool)] = &[
            (0, &[1, 7], true),
            (0, &[1, 7], false),
            (1, &[3, 7], true),
            (1, &[3, 7], false),
            (2, &[4, 8], false),
        ];
        assert!(suspected(half).is_empty());
    }
}
