//! The assignment of ranks to the groups of tensor, pipeline, data and expert parallelism.
//!
//! Ranks are numbered as Megatron-LM numbers them: tensor parallelism varies fastest, then data, then pipeline. The
//! ranks of an expert-parallel group are data-parallel neighbours, so `expert` divides `data`.

use super::super::WorkloadError;

/// The degrees of parallelism of an iteration. The product of the first three is the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Number of ranks that share each layer.
    pub tensor: u32,
    /// Number of pipeline stages, to which layers are dealt.
    pub pipeline: u32,
    /// Number of replicas of the model.
    pub data: u32,
    /// Number of neighbouring replicas that share experts.
    pub expert: u32,
}

/// A partition of the ranks.
#[derive(Debug)]
pub(super) struct Groups {
    members: Vec<Vec<u32>>,
    /// The group of each rank, and the rank's index in it.
    of: Vec<(u32, u32)>,
}

impl Grid {
    /// Returns the number of ranks.
    ///
    /// # Errors
    /// A number is zero, `expert` does not divide `data`, or there are more ranks than `max_ranks`.
    pub(super) fn ranks(self, max_ranks: u32) -> Result<u32, WorkloadError> {
        let Self { tensor, pipeline, data, expert } = self;
        let degrees =
            [("tensor", tensor), ("pipeline", pipeline), ("data", data), ("expert", expert)];
        for (key, value) in degrees {
            super::super::at_least_one(key, value)?;
        }
        if !data.is_multiple_of(expert) {
            let (got, expected) = (format!("{expert} with data {data}"), "a divisor of data");
            return Err(WorkloadError::OutOfRange { key: "expert", got, expected });
        }
        let product = [tensor, pipeline, data].into_iter().map(u64::from).product::<u64>();
        u32::try_from(product).ok().filter(|&ranks| ranks <= max_ranks).ok_or_else(|| {
            let got = format!("{tensor} x {pipeline} x {data}, with GPUs for {max_ranks}");
            let expected = "a product no larger than the number of GPUs";
            WorkloadError::OutOfRange { key: "tensor x pipeline x data", got, expected }
        })
    }

    /// Returns the stage of a rank.
    pub(super) const fn stage(self, rank: u32) -> u32 {
        rank / self.stage_size()
    }

    /// Returns the number of ranks of a stage, which is also the distance to the same rank of the next stage.
    pub(super) const fn stage_size(self) -> u32 {
        self.tensor * self.data
    }

    /// Returns the groups of ranks that share layers.
    pub(super) fn tensor_groups(self) -> Groups {
        Groups::strided(self, 1, self.tensor)
    }

    /// Returns the groups of ranks that have the same part of the model.
    pub(super) fn data_groups(self) -> Groups {
        Groups::strided(self, self.tensor, self.data)
    }

    /// Returns the groups in which tokens are sent to experts.
    pub(super) fn expert_groups(self) -> Groups {
        Groups::strided(self, self.tensor, self.expert)
    }

    /// Returns the groups of ranks that have the same experts.
    pub(super) fn replicas_of_experts(self) -> Groups {
        Groups::strided(self, self.tensor * self.expert, self.data / self.expert)
    }
}

impl Groups {
    /// Returns groups of `count` ranks that are `stride` apart.
    fn strided(grid: Grid, stride: u32, count: u32) -> Self {
        let ranks = grid.stage_size() * grid.pipeline;
        let block = stride * count;
        let firsts = (0..ranks).filter(|rank| rank % block < stride);
        Self::new(firsts.map(|first| (0..count).map(|i| first + i * stride).collect()).collect())
    }

    /// Returns the partition into these groups, which together name every rank once.
    fn new(members: Vec<Vec<u32>>) -> Self {
        let mut of = vec![(0, 0); members.iter().map(Vec::len).sum()];
        for (group, ranks) in (0..).zip(&members) {
            for (place, &rank) in (0..).zip(ranks) {
                of[rank as usize] = (group, place);
            }
        }
        Self { members, of }
    }

    /// Returns the number of ranks of each group.
    pub(super) fn size(&self) -> usize {
        self.members[0].len()
    }

    /// Returns the group of a rank, and the rank's index in it.
    pub(super) fn of(&self, rank: u32) -> (&[u32], usize) {
        let (group, place) = self.of[rank as usize];
        (&self.members[group as usize], place as usize)
    }

    /// Returns each group split in two ways: its ranks by server, and its ranks of equal index in their servers.
    /// `None` unless all servers of all groups have equally many members of a group, at least two of each.
    pub(super) fn by_server(&self, gpus_per_server: u32) -> Option<(Self, Self)> {
        let server = |rank: &u32| rank / gpus_per_server;
        let together = |ranks: &Vec<u32>| {
            let runs: Vec<Vec<u32>> =
                ranks.chunk_by(|a, b| server(a) == server(b)).map(<[u32]>::to_vec).collect();
            runs
        };
        let groups: Vec<Vec<Vec<u32>>> = self.members.iter().map(together).collect();
        let (servers, local) = (groups[0].len(), groups[0][0].len());
        let alike = |runs: &Vec<Vec<u32>>| {
            runs.len() == servers && runs.iter().all(|run| run.len() == local)
        };
        if servers < 2 || local < 2 || !groups.iter().all(alike) {
            return None;
        }
        let across = groups.iter().flat_map(|runs| {
            (0..local).map(|place| runs.iter().map(|run| run[place]).collect()).collect::<Vec<_>>()
        });
        let across = Self::new(across.collect());
        Some((Self::new(groups.into_iter().flatten().collect()), across))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { tensor: 2, pipeline: 2, data: 4, expert: 2 };

    #[test]
    fn groups_are_those_of_megatron_lm() {
        assert_eq!(GRID.ranks(16), Ok(16));
        assert_eq!((GRID.stage(7), GRID.stage(8), GRID.stage_size()), (0, 1, 8));
        let of = |groups: &Groups, rank| groups.of(rank).0.to_vec();
        assert_eq!(of(&GRID.tensor_groups(), 3), [2, 3]);
        assert_eq!(of(&GRID.data_groups(), 3), [1, 3, 5, 7]);
        assert_eq!(of(&GRID.data_groups(), 8), [8, 10, 12, 14]);
        assert_eq!(of(&GRID.expert_groups(), 3), [1, 3]);
        assert_eq!(of(&GRID.expert_groups(), 5), [5, 7]);
        assert_eq!(of(&GRID.replicas_of_experts(), 3), [3, 7]);
        assert_eq!(GRID.data_groups().of(5).1, 2);
    }

    #[test]
    fn a_group_is_divided_where_its_servers_have_equally_many_of_it() {
        let (local, across) = GRID.data_groups().by_server(4).unwrap();
        assert_eq!((local.of(5).0, across.of(5).0), (&[5, 7][..], &[1, 5][..]));
        assert!(GRID.data_groups().by_server(2).is_none(), "one of each server");
        assert!(GRID.data_groups().by_server(8).is_none(), "one server");
        assert!(GRID.data_groups().by_server(6).is_none(), "three and one");
    }

    #[test]
    fn an_impossible_split_is_refused() {
        let error = |grid: Grid| grid.ranks(15).unwrap_err().to_string();
        assert!(
            error(GRID).starts_with("tensor x pipeline x data is 2 x 2 x 4"),
            "{}",
            error(GRID)
        );
        assert_eq!(
            error(Grid { expert: 3, ..GRID }),
            "expert is 3 with data 4, expected a divisor of data"
        );
        assert_eq!(error(Grid { data: 0, ..GRID }), "data is 0, expected at least 1");
    }
}
