//! Size, count and bus bandwidth as nccl-tests defines them (its `doc/PERFORMANCE.md`).

use weft_comm::{Call, Collective, DataType, Layout, Op};

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
    /// Returns the largest call of at most `bytes` bytes. `data_type` is an index of [`DataType::ALL`].
    pub(super) fn of(
        collective: Collective,
        [data_type, root, ranks, bytes]: [usize; 4],
        op: Op,
    ) -> Self {
        let data_type = DataType::ALL[data_type];
        let wanted = bytes / data_type.size();
        // The count is of each rank's share, where ranks have shares.
        let share = wanted / ranks;
        let (count, size, elements) = match collective.layout() {
            Layout::Whole => (wanted, wanted, wanted),
            Layout::Shares => (share, share * ranks, share * ranks),
            Layout::SharesTwice => (share, share * ranks, 2 * share * ranks),
            Layout::Twice => (wanted, wanted, 2 * wanted),
            Layout::Empty => (0, 0, 0),
        };
        let call = Call { collective, data_type, op, root, elements };
        Self { call, size: size * data_type.size(), count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_larger_buffer_as_in_nccl_tests() {
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
