//! The calls that ranks make together.

use core::fmt;

use weft_plan::collective::{Collective, DataType, Reduction};

/// The reduction of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// The sum. Integers wrap around.
    Sum,
    /// The product. Integers wrap around.
    Product,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The mean. Floats are divided by the number of ranks before they are summed, integers after, as in NCCL.
    Average,
    /// The bitwise conjunction.
    BitAnd,
    /// The bitwise disjunction.
    BitOr,
    /// The bitwise exclusive disjunction.
    BitXor,
}

impl Op {
    /// All reductions.
    pub const ALL: [Self; 8] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::Average,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
    ];

    /// Returns the name, for the reductions of NCCL that in nccl-tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Average => "avg",
            _ => self.reduction().name(),
        }
    }

    /// Returns the operation on two elements.
    pub const fn reduction(self) -> Reduction {
        match self {
            Self::Sum | Self::Average => Reduction::Sum,
            Self::Product => Reduction::Product,
            Self::Min => Reduction::Min,
            Self::Max => Reduction::Max,
            Self::BitAnd => Reduction::BitAnd,
            Self::BitOr => Reduction::BitOr,
            Self::BitXor => Reduction::BitXor,
        }
    }

    /// Returns `true` if elements of the type can be reduced: floats have no bitwise reductions, truth values no mean.
    pub const fn fits(self, data_type: DataType) -> bool {
        match self {
            Self::Average => !matches!(data_type, DataType::Bool),
            _ => data_type.has(self.reduction()),
        }
    }
}

/// A call; all ranks of a group make the same calls in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The collective.
    pub collective: Collective,
    /// The type of elements.
    pub data_type: DataType,
    /// The reduction, for collectives that reduce.
    pub op: Op,
    /// The root's rank, for collectives that have a root.
    pub root: usize,
    /// Number of elements of each rank's buffer.
    pub elements: usize,
}

impl Call {
    /// Returns a barrier, which completes when all ranks have made the call.
    pub const fn barrier() -> Self {
        Self {
            collective: Collective::Barrier,
            data_type: DataType::U8,
            op: Op::Sum,
            root: 0,
            elements: 0,
        }
    }

    /// Returns the length of a rank's buffer in bytes. [`check`](Self::check) refuses a call for which it overflows.
    pub const fn bytes(&self) -> usize {
        self.elements * self.data_type.size()
    }
}

/// Formats the call for error messages: `all_reduce of 1024 float, sum`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collective, data_type, op, root, elements } = self;
        if *collective == Collective::Barrier {
            return f.write_str(collective.name());
        }
        write!(f, "{} of {elements} {}", collective.name(), data_type.name())?;
        if collective.reduces() {
            write!(f, ", {}", op.name())?;
        }
        if collective.has_root() {
            write!(f, ", root {root}")?;
        }
        Ok(())
    }
}
