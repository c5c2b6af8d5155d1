//! What ranks ask for together, and whether it can be.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use weft_plan::collective::{DataType, Reduction};
use weft_units::unknown_name;

use crate::Error;

macro_rules! collectives {
    ($($(#[doc = $about:literal])+ $variant:ident, $name:literal;)+) => {
        /// What is done with every rank's buffer. Each works in place; a buffer is divided into equal chunks where ranks
        /// have their own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Collective {
            $($(#[doc = $about])+ $variant,)+
        }

        impl Collective {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name, as in nccl-tests.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

collectives! {
    /// The reduction of all buffers, to all.
    AllReduce, "all_reduce";
    /// A chunk for each rank; everybody's own, to all.
    AllGather, "all_gather";
    /// A chunk for each rank: its reduction, to that rank. Other chunks hold parts of results afterwards.
    ReduceScatter, "reduce_scatter";
    /// The root's buffer, to all.
    Broadcast, "broadcast";
    /// The reduction of all buffers, to the root. Other ranks' hold parts of results afterwards.
    Reduce, "reduce";
    /// Twice as many chunks as ranks: of the first half each goes to the rank of its number, where it lies in the second
    /// half at its sender's place.
    AllToAll, "alltoall";
    /// A chunk for each rank; everybody's own, to the root.
    Gather, "gather";
    /// A chunk for each rank; the root's, to the rank of its number.
    Scatter, "scatter";
    /// Two chunks: the first goes to the next rank's second.
    SendReceive, "sendrecv";
    /// Nobody is done before all have come. The buffer is empty.
    Barrier, "barrier";
}

impl Collective {
    /// Whether it computes.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether one rank is another's than the others.
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Equal chunks that its buffer is divided into by those who call.
    pub const fn parts(self, ranks: usize) -> usize {
        match self {
            Self::AllGather | Self::ReduceScatter | Self::Gather | Self::Scatter => ranks,
            Self::AllToAll => 2 * ranks,
            Self::SendReceive => 2,
            Self::AllReduce | Self::Broadcast | Self::Reduce | Self::Barrier => 1,
        }
    }
}

impl FromStr for Collective {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|collective| collective.name() == name);
        found.copied().ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|known| known.name()).collect();
            unknown_name("collective", name, &known)
        })
    }
}

/// How elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Their sum. Integers wrap around.
    Sum,
    /// Their product. Integers wrap around.
    Product,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// Their mean: of floats the sum of each divided by the number of ranks, of integers the sum divided, as NCCL does.
    Average,
}

impl Op {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Product, Self::Min, Self::Max, Self::Average];

    /// Its name, as in nccl-tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Average => "avg",
            Self::Sum | Self::Product | Self::Min | Self::Max => self.reduction().name(),
        }
    }

    /// What is done with two elements.
    pub const fn reduction(self) -> Reduction {
        match self {
            Self::Sum | Self::Average => Reduction::Sum,
            Self::Product => Reduction::Product,
            Self::Min => Reduction::Min,
            Self::Max => Reduction::Max,
        }
    }
}

/// What ranks ask for; all of a group ask for the same in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is done.
    pub collective: Collective,
    /// What elements are.
    pub data_type: DataType,
    /// How they are reduced, where they are.
    pub op: Op,
    /// The root, where there is one.
    pub root: usize,
    /// Elements of each rank's buffer.
    pub elements: usize,
}

/// Why a call was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no such rank.
    #[error("root {root}, but the group has {ranks} ranks")]
    Root {
        /// Who was named.
        root: usize,
        /// How many there are.
        ranks: usize,
    },
    /// The buffer has another length.
    #[error("a buffer of {got} bytes for {elements} elements of {size} bytes")]
    Length {
        /// Bytes of the buffer.
        got: usize,
        /// Elements that the call speaks of.
        elements: usize,
        /// Bytes of each.
        size: usize,
    },
    /// The buffer cannot be divided.
    #[error("{elements} elements cannot be divided into the {parts} equal chunks of {}", .collective.name())]
    Uneven {
        /// Elements of the buffer.
        elements: usize,
        /// Chunks.
        parts: usize,
        /// Of which collective.
        collective: Collective,
    },
    /// The group failed before; it takes no calls any more.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Call {
    /// One that all ranks have come to.
    pub const fn barrier() -> Self {
        Self {
            collective: Collective::Barrier,
            data_type: DataType::U8,
            op: Op::Sum,
            root: 0,
            elements: 0,
        }
    }

    /// Bytes of a rank's buffer.
    pub const fn bytes(&self) -> usize {
        self.elements * self.data_type.size()
    }

    /// Whether it can be asked for with a buffer of so many bytes.
    ///
    /// # Errors
    /// What does not fit.
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

/// As an error names it: `all_reduce of 1024 float, sum`.
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
