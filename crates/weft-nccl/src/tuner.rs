//! The tuner: it changes NCCL's table of costs where a plan (`weft plan ring --tuner`) knows better, and leaves everything else to
//! NCCL.
//!
//! Nothing here fails a call: NCCL would end the program. Without a plan, or with a bad one, NCCL's table stays as it is.

use std::ffi::OsStr;
use std::path::Path;
use std::{env, fs};

use weft_nccl_abi::tuner::{algorithm, function, protocol};
use weft_plan::collective::Collective;
use weft_plan::tuner::{TunedAlgorithm, TunedProtocol, TunerRow, read_tuner_csv};

use crate::log;

/// The environment variable with the path of the plan.
const PLAN: &str = "WEFT_NCCL_TUNER";

/// The factor between costs above which NCCL forbids an algorithm and does not compare it. It makes rings 1,024 times dearer for
/// 8-bit floating-point numbers on more than 8 ranks, because sums along a ring lose their precision.
const FORBIDDEN: f32 = 256.0;

/// The factor by which a cost is raised above another.
const ABOVE: f32 = 1.01;

/// The answers for one communicator.
#[derive(Debug)]
pub(crate) struct Tuner(Vec<TunerRow>);

/// NCCL's table: a row of costs, microseconds, for each algorithm; a negative cost is that of a combination it will not use.
pub(crate) struct Costs<'a> {
    costs: &'a mut [f32],
    protocols: usize,
}

/// The content of a row, in NCCL's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) algorithm: Option<usize>,
    pub(crate) protocol: Option<usize>,
    pub(crate) channels: Option<i32>,
}

impl Tuner {
    /// Returns the answers of the plan that the environment names, for a communicator. The log has what was found.
    pub(crate) fn open(ranks: usize, servers: usize) -> Self {
        match env::var_os(PLAN) {
            Some(file) if !file.is_empty() => Self::read(&file, ranks, servers),
            _ => {
                log::tuning_info(&format!("{PLAN} names no plan: NCCL chooses"));
                Self(Vec::new())
            }
        }
    }

    fn read(file: &OsStr, ranks: usize, servers: usize) -> Self {
        let file = Path::new(file);
        let text = fs::read_to_string(file).map_err(|error| error.to_string());
        let rows = text.and_then(|text| read_tuner_csv(&text).map_err(|error| error.to_string()));
        match rows {
            Ok(rows) => {
                let is_ours = |row: &TunerRow| {
                    usize::try_from(row.ranks) == Ok(ranks)
                        && usize::try_from(row.servers) == Ok(servers)
                };
                let ours: Vec<TunerRow> = rows.into_iter().filter(is_ours).collect();
                log::tuning_info(&format!(
                    "{}: {} rows for {ranks} ranks on {servers} servers",
                    file.display(),
                    ours.len()
                ));
                Self(ours)
            }
            Err(reason) => {
                log::tuning_warn(&format!("{}: {reason}; NCCL chooses", file.display()));
                Self(Vec::new())
            }
        }
    }

    /// Returns the answer for a call; one without content if the plan has none. The first row that fits is taken.
    pub(crate) fn answer(&self, of: i32, bytes: usize) -> Answer {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let fits =
            |row: &&TunerRow| function_of(row.collective) == Some(of) && row.bytes.contains(&bytes);
        let Some(row) = self.0.iter().find(fits) else { return Answer::default() };
        Answer {
            algorithm: row.algorithm.map(number_of),
            protocol: row.protocol.map(column_of),
            channels: row.channels.map(i32::from),
        }
    }
}

fn function_of(collective: Collective) -> Option<i32> {
    match collective {
        Collective::AllReduce => Some(function::ALL_REDUCE),
        Collective::AllGather => Some(function::ALL_GATHER),
        Collective::ReduceScatter => Some(function::REDUCE_SCATTER),
        Collective::Broadcast => Some(function::BROADCAST),
        Collective::Reduce => Some(function::REDUCE),
        _ => None,
    }
}

fn number_of(tuned: TunedAlgorithm) -> usize {
    let number = match tuned {
        TunedAlgorithm::Ring => algorithm::RING,
        TunedAlgorithm::Tree => algorithm::TREE,
    };
    usize::try_from(number).expect("numbers of NCCL's algorithms are small")
}

fn column_of(tuned: TunedProtocol) -> usize {
    let number = match tuned {
        TunedProtocol::Ll => protocol::LL,
        TunedProtocol::Ll128 => protocol::LL128,
        TunedProtocol::Simple => protocol::SIMPLE,
    };
    usize::try_from(number).expect("numbers of NCCL's protocols are small")
}

impl<'a> Costs<'a> {
    /// Returns the table with this number of protocols in each row.
    pub(crate) fn new(costs: &'a mut [f32], protocols: usize) -> Self {
        Self { costs, protocols }
    }

    /// Makes NCCL choose as the answer says, as far as it can choose that at all. Costs are only raised: those of the other one of
    /// ring and tree, and those of other protocols. Algorithms that a plan does not compare, such as NVLS, keep their costs.
    pub(crate) fn apply(&mut self, answer: Answer) {
        let compared = [number_of(TunedAlgorithm::Ring), number_of(TunedAlgorithm::Tree)];
        if let Some(column) = answer.protocol {
            for row in compared {
                self.prefer_protocol(row, column);
            }
        }
        if let Some(better) = answer.algorithm {
            let others = compared.into_iter().filter(|&row| row != better);
            others.for_each(|other| self.prefer_algorithm(better, other));
        }
    }

    /// Raises the costs of the other protocols of an algorithm above that of one, if NCCL can use it.
    fn prefer_protocol(&mut self, row: usize, column: usize) {
        let Some(costs) = self.row(row) else { return };
        let Some(&wanted) = costs.get(column).filter(|&&cost| cost >= 0.0) else { return };
        for (other, cost) in costs.iter_mut().enumerate() {
            if other != column && (0.0..=wanted).contains(cost) {
                *cost = wanted * ABOVE;
            }
        }
    }

    /// Raises the costs of an algorithm above the least one of a better algorithm, if NCCL can use that.
    fn prefer_algorithm(&mut self, better: usize, other: usize) {
        let (Some(wanted), Some(least)) = (self.least(better), self.least(other)) else { return };
        // A cost of zero has no multiple above another.
        if least <= 0.0 || least > wanted || wanted > least * FORBIDDEN {
            return;
        }
        let factor = wanted / least * ABOVE;
        let costs = self.row(other).into_iter().flatten();
        costs.filter(|cost| **cost >= 0.0).for_each(|cost| *cost *= factor);
    }

    /// Returns the least cost of an algorithm that NCCL can use.
    fn least(&mut self, row: usize) -> Option<f32> {
        let costs = self.row(row)?.iter().copied().filter(|&cost| cost >= 0.0);
        costs.min_by(f32::total_cmp)
    }

    fn row(&mut self, row: usize) -> Option<&mut [f32]> {
        let start = row.checked_mul(self.protocols)?;
        self.costs.get_mut(start..start.checked_add(self.protocols)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: usize = 0;
    const RING: usize = 1;
    const NVLS: usize = 4;

    /// Costs by algorithm (tree, ring, two of CollNet, NVLS, its tree, PAT) and protocol (LL, LL128, Simple).
    fn table() -> [f32; 21] {
        let mut costs = [-1.0; 21];
        costs[..6].copy_from_slice(&[20.0, -1.0, 40.0, 10.0, -1.0, 30.0]);
        costs[14] = 15.0;
        costs
    }

    /// Returns the algorithm and protocol that NCCL would take: the least cost that is not negative.
    fn least(costs: &[f32]) -> (usize, usize) {
        let usable = costs.iter().enumerate().filter(|(_, cost)| **cost >= 0.0);
        let (at, _) = usable.min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        (at / 3, at % 3)
    }

    fn applied(mut costs: [f32; 21], answer: Answer) -> [f32; 21] {
        Costs::new(&mut costs, 3).apply(answer);
        costs
    }

    fn of(algorithm: Option<usize>, protocol: Option<usize>) -> Answer {
        Answer { algorithm, protocol, channels: None }
    }

    #[test]
    fn the_other_of_ring_and_tree_is_raised_and_its_protocols_keep_their_order() {
        let costs = applied(table(), of(Some(TREE), None));
        assert_eq!(costs[..3], table()[..3], "the tree keeps its costs");
        assert!(costs[3] > 20.0 && costs[5] > costs[3] && costs[4] == -1.0, "{costs:?}");
        assert_eq!(least(&costs), (NVLS, 2), "which the plan does not compare");
        // What NCCL would choose anyway stays as it is.
        assert_eq!(applied(table(), of(Some(RING), None)), table());
        assert_eq!(applied(table(), Answer::default()), table());
    }

    #[test]
    fn a_protocol_is_preferred_within_its_algorithm() {
        let mut without_nvls = table();
        without_nvls[14] = -1.0;
        assert_eq!(least(&applied(without_nvls, of(None, Some(2)))), (RING, 2));
        assert_eq!(least(&applied(without_nvls, of(Some(TREE), Some(2)))), (TREE, 2));
        assert_eq!(applied(without_nvls, of(None, Some(1))), without_nvls, "not to be had");
    }

    #[test]
    fn what_nccl_cannot_use_or_forbids_is_not_chosen() {
        let mut no_tree = table();
        no_tree[..3].fill(-1.0);
        assert_eq!(applied(no_tree, of(Some(TREE), None)), no_tree);
        // 8-bit floats on many ranks.
        let mut dear_ring = table();
        dear_ring[3..6].iter_mut().for_each(|cost| *cost *= 1024.0);
        dear_ring[4] = -1.0;
        assert_eq!(applied(dear_ring, of(Some(RING), None)), dear_ring);
    }

    #[test]
    fn costs_of_zero_stay() {
        let mut free = table();
        free[..6].fill(0.0);
        assert_eq!(applied(free, of(Some(TREE), None)), free);
    }

    #[test]
    fn a_table_of_another_shape_is_not_overrun() {
        let mut costs = [1.0; 4];
        Costs::new(&mut costs, 0).apply(of(Some(TREE), Some(2)));
        Costs::new(&mut costs[..0], 3).apply(of(Some(TREE), Some(2)));
        Costs::new(&mut costs[..3], 3).apply(of(Some(TREE), None));
        assert_eq!(costs[..3], [1.0; 3]);
    }
}
