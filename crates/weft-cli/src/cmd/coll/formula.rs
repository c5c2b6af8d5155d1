//! Size, count and bus bandwidth as nccl-tests defines them (its `doc/PERFORMANCE.md`).

use weft_comm::{Call, Collective, DataType, Op};

/// A call of one size, as nccl-tests counts it, with the numbers of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sized {
    pub(super) call: Call,
    /// Bytes of the row.
    pub(super) size: usize,
    /// Elements of the row.
    pub(super) count: usize,
}

impl Sized {
    /// Returns the largest call of at most `bytes` bytes.
    pub(super) fn of(
        collective: Collective,
        [data_type, root, ranks, bytes]: [usize; 4],
        op: Op,
    ) -> Self {
        let data_type = DataType::ALL[data_type];
        let wanted = bytes / data_type.size();
        // The count is of each rank's share, where ranks have shares.
        let (count, size, elements) = match collective {
            Collective::AllGather
            | Collective::ReduceScatter
            | Collective::Gather
            | Collective::Scatter => {
                let count = wanted / ranks;
                (count, count * ranks, count * ranks)
            }
            Collective::AllToAll => {
                let count = wanted / ranks;
                (count, count * ranks, 2 * count * ranks)
            }
            Collective::SendReceive => (wanted, wanted, 2 * wanted),
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce => {
                (wanted, wanted, wanted)
            }
            Collective::Barrier => (0, 0, 0),
        };
        let call = Call { collective, data_type, op, root, elements };
        Self { call, size: size * data_type.size(), count }
    }
}

/// Returns the bytes that a link carries for each byte of a collective's size.
pub(super) fn bus_factor(collective: Collective, ranks: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a number of ranks")]
    let ranks = ranks.max(1) as f64;
    match collective {
        Collective::AllReduce => 2.0 * (ranks - 1.0) / ranks,
        Collective::AllGather
        | Collective::ReduceScatter
        | Collective::AllToAll
        | Collective::Gather
        | Collective::Scatter => (ranks - 1.0) / ranks,
        Collective::Broadcast | Collective::Reduce | Collective::SendReceive => 1.0,
        Collective::Barrier => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_nccl_tests() {
        for (collective, want) in [
            (Collective::AllReduce, 1.5),
            (Collective::AllGather, 0.75),
            (Collective::ReduceScatter, 0.75),
            (Collective::AllToAll, 0.75),
            (Collective::Broadcast, 1.0),
            (Collective::Reduce, 1.0),
            (Collective::SendReceive, 1.0),
        ] {
            assert!((bus_factor(collective, 4) - want).abs() < 1e-12, "{collective:?}");
        }
        assert!(bus_factor(Collective::AllReduce, 1).abs() < 1e-12);
    }

    #[test]
    fn sizes_are_of_what_a_rank_ends_with_or_begins_with() {
        let of = |collective| Sized::of(collective, [0, 0, 4, 1000], Op::Sum);
        assert_eq!((of(Collective::AllReduce).count, of(Collective::AllReduce).size), (250, 1000));
        // 62 floats for each of four ranks.
        assert_eq!((of(Collective::AllGather).count, of(Collective::AllGather).size), (62, 992));
        assert_eq!(of(Collective::AllToAll).call.elements, 2 * 62 * 4);
        for collective in Collective::ALL {
            let Sized { call, .. } = of(*collective);
            call.check(4, call.bytes()).unwrap();
        }
    }
}
