//! The repetitions in a program: ranges in which every operation is that of one period earlier.
//!
//! Where a program repeats, a rank that advances by whole periods finds the same operations ahead, so a state of the
//! job stays valid: messages in flight name lanes and groups, not operations.

use super::op::Op;

/// The repetitions of one lane with one period.
#[derive(Debug)]
pub(super) struct Repeats {
    /// Number of operations of a period; zero if there is none.
    pub period: usize,
    /// For each operation the end of its run: each operation before it equals the one a period earlier, if that is in the
    /// run.
    until: Vec<usize>,
    /// For each operation the number of its run, from one on; zero if it is in none.
    run: Vec<u32>,
}

/// Returns the difference between the numbers of two operations' records, `Some(None)` if they have none, and `None` if
/// the operations differ in anything else.
fn shift(one: Op, later: Op) -> Option<Option<usize>> {
    match (one, later) {
        (Op::Record(a), Op::Record(b)) | (Op::Await(a), Op::Await(b)) => b.checked_sub(a).map(Some),
        (one, later) => (one == later).then_some(None),
    }
}

impl Repeats {
    /// Returns the runs of a program of at least two periods.
    pub(super) fn new(ops: &[Op], period: usize) -> Self {
        let (mut until, mut run) = ((0..ops.len()).collect::<Vec<_>>(), vec![0; ops.len()]);
        let (mut start, mut runs) = (0, 0);
        while period > 0 && start + period < ops.len() {
            let mut of_run = None;
            let mut end = start;
            while let Some(Some(found)) = ops.get(end + period).map(|later| shift(ops[end], *later))
            {
                if found.is_some() && of_run.is_some() && found != of_run {
                    break;
                }
                of_run = of_run.or(found);
                end += 1;
            }
            if end >= start + period {
                runs += 1;
                until[start..end + period].fill(end + period);
                run[start..end + period].fill(runs);
            }
            start = end.max(start + 1);
        }
        Self { period, until, run }
    }

    /// Returns the run of an operation, numbered from one in the order of the program; zero if it is in none.
    pub(super) fn run(&self, op: usize) -> u32 {
        self.run.get(op).copied().unwrap_or(0)
    }

    /// Returns the number of periods by which ranks at `first` to `last` can advance within a run; zero if they are not in
    /// one.
    pub(super) fn periods_left(&self, first: usize, last: usize) -> usize {
        let (Some(&until), Some(&other)) = (self.until.get(first), self.until.get(last)) else {
            return 0;
        };
        if until == other && self.run(last) > 0 { (until - 1 - last) / self.period } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SimSpan;

    const COMPUTE: Op = Op::Compute(SimSpan::from_picos(7));

    #[test]
    fn a_run_ends_a_period_before_something_else() {
        let ops = [
            Op::Exchange(9),
            COMPUTE,
            Op::Record(0),
            COMPUTE,
            Op::Record(1),
            COMPUTE,
            Op::Record(2),
            Op::Exchange(1),
        ];
        let repeats = Repeats::new(&ops, 2);
        let runs: Vec<u32> = (0..9).map(|op| repeats.run(op)).collect();
        assert_eq!(runs, [0, 1, 1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(repeats.periods_left(1, 1), 2);
        assert_eq!(repeats.periods_left(1, 3), 1);
        assert_eq!(repeats.periods_left(4, 5), 0);
        assert_eq!(repeats.periods_left(0, 1), 0, "in different runs");
        assert_eq!(repeats.periods_left(8, 8), 0, "past the end");
    }

    #[test]
    fn records_must_be_equally_far_apart() {
        let ops = [Op::Record(0), Op::Record(1), Op::Record(2), Op::Record(5), Op::Record(8)];
        let repeats = Repeats::new(&ops, 1);
        assert_eq!((repeats.periods_left(0, 0), repeats.periods_left(3, 3)), (2, 1));
        assert_eq!(Repeats::new(&ops, 2).periods_left(0, 0), 0);
    }
}
