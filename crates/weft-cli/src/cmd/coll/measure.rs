//! A rank's part in a measurement. All ranks execute the same steps, and agree on the next one by collectives.

use std::mem;

use anyhow::{Result, anyhow};
use weft_coll::pattern;
use weft_comm::{Call, Collective, Communicator, DataType, Op, Share};
use weft_units::Duration;

use super::formula::Sized;
use super::report::Row;

/// Parameters that are the same for all rows of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    /// The type of the elements.
    pub(super) data_type: DataType,
    /// The reduction of the elements.
    pub(super) op: Op,
    /// The root, for collectives that have one.
    pub(super) root: usize,
    /// Number of iterations before the measurement.
    pub(super) warm_up: u32,
    /// Maximum number of measured iterations.
    pub(super) max_iterations: u32,
    /// The time for the iterations of a size.
    pub(super) time: Duration,
    /// `true` if the results are checked.
    pub(super) checks: bool,
    /// Time limit for a call that makes no progress.
    pub(super) timeout: Duration,
    /// `true` if rows have the share of blocks that went over the network.
    pub(super) shares: bool,
}

pub(super) struct Measurement {
    group: Communicator<Vec<u8>>,
    parameters: Parameters,
}

impl Measurement {
    pub(super) const fn new(group: Communicator<Vec<u8>>, parameters: Parameters) -> Self {
        Self { group, parameters }
    }

    /// Measures a collective of at most `bytes` bytes: warms up, then measures.
    pub(super) fn row(&mut self, collective: Collective, bytes: usize) -> Result<Row> {
        let (ranks, rank) = (self.group.ranks(), self.group.rank());
        let Parameters { data_type, op, root, warm_up, .. } = self.parameters;
        let type_index =
            DataType::ALL.iter().position(|one| *one == data_type).expect("one of them");
        let Sized { call, size, count } =
            Sized::of(collective, [type_index, root, ranks, bytes], op);

        let mut buffer = vec![0; call.bytes()];
        pattern::fill(&call, ranks, rank, &mut buffer);
        buffer = self.run(call, buffer)?;
        let wrong = if self.parameters.checks {
            let wrong = pattern::count_mismatches(&call, ranks, rank, &buffer);
            Some(self.agree(wrong, Op::Sum)?)
        } else {
            None
        };
        // From here on only time is measured, and the buffer's contents do not change it.
        buffer.fill(0);
        let began = self.group.now();
        for _ in 0..warm_up {
            buffer = self.run(call, buffer)?;
        }
        let took = self.group.now().since(began);
        let estimate = took.as_nanos() / u64::from(warm_up.max(1));
        let before = self.group.share();
        let (iterations, all) = self.measure(call, &mut buffer, estimate)?;
        let share = self.group.share();
        let mean = all as f64 / iterations as f64;
        let algbw = if mean > 0.0 { size as f64 / mean } else { 0.0 };
        Ok(Row {
            collective: collective.name(),
            size,
            count,
            data_type: data_type.name(),
            redop: if collective.reduces() { op.name() } else { "none" },
            root: if collective.has_root() { root.try_into().unwrap_or(-1) } else { -1 },
            iterations,
            time_us: mean / 1e3,
            algbw,
            busbw: algbw * collective.bus_factor(ranks),
            wrong,
            over_network: self.parameters.shares.then(|| over_network(before, share)),
        })
    }

    /// Runs a call in rounds until the time limit or the maximum number of iterations is reached. `estimate` is this
    /// rank's time for an iteration in nanoseconds. Returns the number of iterations, and their time in nanoseconds as
    /// the mean of all ranks.
    fn measure(&mut self, call: Call, buffer: &mut Vec<u8>, estimate: u64) -> Result<(u64, u64)> {
        let (limit, most) =
            (self.parameters.time.as_nanos(), self.parameters.max_iterations.into());
        let (mut iterations, mut all, mut each) = (0, 0, estimate);
        // The agreement and the barrier of a further round are not worth the last tenth.
        while iterations == 0 || (iterations < most && all < limit / 10 * 9) {
            let fitting = ((limit - all) / each.max(1)).clamp(1, most - iterations);
            let round = self.agree(fitting, Op::Min)?;
            self.barrier()?;
            let began = self.group.now();
            for _ in 0..round {
                *buffer = self.run(call, mem::take(buffer))?;
            }
            let took = self.group.now().since(began);
            all += self.agree(took.as_nanos(), Op::Average)?;
            iterations += round;
            each = all / iterations;
        }
        Ok((iterations, all))
    }

    fn run(&mut self, call: Call, buffer: Vec<u8>) -> Result<Vec<u8>> {
        let rank = self.group.rank();
        self.group.run(call, buffer, Some(self.parameters.timeout)).map_err(|error| {
            self.group.abort(&error.to_string());
            anyhow!("rank {rank}: {error}")
        })
    }

    fn barrier(&mut self) -> Result<()> {
        self.run(Call::barrier(), Vec::new()).map(drop)
    }

    /// Returns the reduction of all ranks' numbers, which is the same at each rank.
    fn agree(&mut self, own: u64, op: Op) -> Result<u64> {
        let call = Call {
            collective: Collective::AllReduce,
            data_type: DataType::Int64,
            op,
            root: 0,
            elements: 1,
        };
        let agreed = self.run(call, own.to_le_bytes().to_vec())?;
        Ok(u64::from_le_bytes(agreed.as_slice().try_into()?))
    }

    pub(super) fn leave(self) {
        self.group.leave();
    }
}

/// Returns the share of blocks since `before` that went over the network.
fn over_network(before: Share, after: Share) -> f64 {
    let network = (after.network - before.network) as f64;
    let inner = (after.inner - before.inner) as f64;
    if network + inner > 0.0 { network / (network + inner) } else { 0.0 }
}
