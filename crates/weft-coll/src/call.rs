//! The calls that ranks make together, and their validation.

use core::fmt;

use weft_plan::collective::{Collective, DataType, Reduction};

use crate::Error;

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
}

impl Op {
    /// All reductions.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Product, Self::Min, Self::Max, Self::Average];

    /// Returns the name in nccl-tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Average => "avg",
            Self::Sum | Self::Product | Self::Min | Self::Max => self.reduction().name(),
        }
    }

    /// Returns the operation on two elements.
    pub const fn reduction(self) -> Reduction {
        match self {
            Self::Sum | Self::Average => Reduction::Sum,
            Self::Product => Reduction::Product,
            Self::Min => Reduction::Min,
            Self::Max => Reduction::Max,
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

/// The reason why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The root is no rank of the group.
    #[error("root {root}, but the group has {ranks} ranks")]
    Root {
        /// The call's root.
        root: usize,
        /// Number of ranks of the group.
        ranks: usize,
    },
    /// The length of the buffer does not match the call.
    #[error("a buffer of {got} bytes for {elements} elements of {size} bytes")]
    Length {
        /// Length of the buffer in bytes.
        got: usize,
        /// Number of elements of the call.
        elements: usize,
        /// Size of an element in bytes.
        size: usize,
    },
    /// The buffer cannot be divided.
    #[error("{elements} elements cannot be divided into the {parts} equal chunks of {}", .collective.name())]
    Uneven {
        /// Number of elements of the buffer.
        elements: usize,
        /// Number of chunks.
        parts: usize,
        /// The collective.
        collective: Collective,
    },
    /// The group failed earlier and accepts no more calls.
    #[error(transparent)]
    Failed(#[from] Error),
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

    /// Checks the call for a group of `ranks` ranks and a buffer of `bytes` bytes.
    ///
    /// # Errors
    /// Returns the first parameter that does not fit.
    pub fn check(&self, ranks: usize, bytes: usize) -> Result<(), CallError> {
        let Self { collective, root, elements, .. } = *self;
        if collective.has_root() && root >= ranks {
            return Err(CallError::Root { root, ranks });
        }
        let size = self.data_type.size();
        if elements.checked_mul(size) != Some(bytes) {
            return Err(CallError::Length { got: bytes, elements, size });
        }
        let parts = collective.parts(ranks);
        if !elements.is_multiple_of(parts) {
            return Err(CallError::Uneven { elements, parts, collective });
        }
        Ok(())
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
