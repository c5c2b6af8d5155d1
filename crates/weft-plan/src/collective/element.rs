//! Elements of buffers and their reductions.

use half::{bf16, f16};

use super::float8::{E4m3, E5m2};

/// The type of a buffer's elements, which are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum DataType {
    /// IEEE 754 binary32.
    Fp32,
    /// IEEE 754 binary16.
    Fp16,
    /// The upper half of binary32.
    Bf16,
    /// Two's complement of 32 bits.
    Int32,
    /// Two's complement of 64 bits.
    Int64,
    /// Unsigned, 8 bits.
    U8,
    /// IEEE 754 binary64.
    Fp64,
    /// Two's complement of 8 bits.
    Int8,
    /// Two's complement of 16 bits.
    Int16,
    /// A byte that is 0 or not. A sum is true if any element is, a product if all are.
    Bool,
    /// OCP's E4M3: 8 bits, four of them exponent, without infinity.
    E4m3,
    /// OCP's E5M2: 8 bits, five of them exponent.
    E5m2,
}

/// The operation that combines elements. Integers wrap around, as in NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The bitwise conjunction, of integers and truth values.
    BitAnd,
    /// The bitwise disjunction.
    BitOr,
    /// The bitwise exclusive disjunction.
    BitXor,
}

macro_rules! reduce_as {
    ($type:ty, $into:expr, $with:expr, $combine:expr) => {{
        const SIZE: usize = size_of::<$type>();
        for (into, with) in $into.chunks_exact_mut(SIZE).zip($with.chunks_exact(SIZE)) {
            let read = |bytes: &[u8]| {
                <$type>::from_le_bytes(bytes.try_into().expect("a chunk has the element's size"))
            };
            let value: $type = $combine(read(into), read(with));
            into.copy_from_slice(&value.to_le_bytes());
        }
    }};
}

macro_rules! change_as {
    ($type:ty, $elements:expr, $change:expr) => {{
        for element in $elements.chunks_exact_mut(size_of::<$type>()) {
            let value = <$type>::from_le_bytes(
                (&*element).try_into().expect("a chunk has the element's size"),
            );
            let value: $type = $change(value);
            element.copy_from_slice(&value.to_le_bytes());
        }
    }};
}

macro_rules! divide_as {
    ($type:ty, $elements:expr, $ranks:expr) => {
        // If the number of ranks exceeds the type's range, every quotient is zero.
        match $ranks {
            Some(ranks) => change_as!($type, $elements, |a: $type| a / ranks),
            None => $elements.fill(0),
        }
    };
}

// Each reduction has its own loop, so that the compiler vectorises each.
macro_rules! reduce_floats {
    ($type:ty, $reduction:expr, $into:expr, $with:expr) => {
        match $reduction {
            Reduction::Sum => reduce_as!($type, $into, $with, |a: $type, b: $type| a + b),
            Reduction::Product => reduce_as!($type, $into, $with, |a: $type, b: $type| a * b),
            Reduction::Min => reduce_as!($type, $into, $with, |a: $type, b: $type| a.min(b)),
            Reduction::Max => reduce_as!($type, $into, $with, |a: $type, b: $type| a.max(b)),
            Reduction::BitAnd | Reduction::BitOr | Reduction::BitXor => unreachable!("asserted"),
        }
    };
}

macro_rules! reduce_halves {
    ($type:ty, $reduction:expr, $into:expr, $with:expr) => {{
        let combine = |a: f32, b: f32| match $reduction {
            Reduction::Sum => a + b,
            Reduction::Product => a * b,
            Reduction::Min => a.min(b),
            Reduction::Max => a.max(b),
            Reduction::BitAnd | Reduction::BitOr | Reduction::BitXor => unreachable!("asserted"),
        };
        reduce_as!($type, $into, $with, |a: $type, b: $type| {
            <$type>::from_f32(combine(a.to_f32(), b.to_f32()))
        });
    }};
}

macro_rules! reduce_integers {
    ($type:ty, $reduction:expr, $into:expr, $with:expr) => {
        match $reduction {
            Reduction::Sum => reduce_as!($type, $into, $with, <$type>::wrapping_add),
            Reduction::Product => reduce_as!($type, $into, $with, <$type>::wrapping_mul),
            Reduction::Min => reduce_as!($type, $into, $with, Ord::min),
            Reduction::Max => reduce_as!($type, $into, $with, Ord::max),
            Reduction::BitAnd => reduce_as!($type, $into, $with, |a: $type, b: $type| a & b),
            Reduction::BitOr => reduce_as!($type, $into, $with, |a: $type, b: $type| a | b),
            Reduction::BitXor => reduce_as!($type, $into, $with, |a: $type, b: $type| a ^ b),
        }
    };
}

/// Reduces truth values; the result is 0 or 1.
fn reduce_bools(reduction: Reduction, into: &mut [u8], with: &[u8]) {
    for (into, with) in into.iter_mut().zip(with) {
        let (a, b) = (*into != 0, *with != 0);
        *into = u8::from(match reduction {
            Reduction::Sum | Reduction::Max | Reduction::BitOr => a | b,
            Reduction::Product | Reduction::Min | Reduction::BitAnd => a & b,
            Reduction::BitXor => a ^ b,
        });
    }
}

impl DataType {
    /// Every type.
    pub const ALL: [Self; 12] = [
        Self::Fp32,
        Self::Fp16,
        Self::Bf16,
        Self::Int32,
        Self::Int64,
        Self::U8,
        Self::Fp64,
        Self::Int8,
        Self::Int16,
        Self::Bool,
        Self::E4m3,
        Self::E5m2,
    ];

    /// Returns the type's name, for those of NCCL the name in nccl-tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "float",
            Self::Fp16 => "half",
            Self::Bf16 => "bfloat16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::U8 => "uint8",
            Self::Fp64 => "double",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Bool => "bool",
            Self::E4m3 => "f8e4m3",
            Self::E5m2 => "f8e5m2",
        }
    }

    /// Returns the size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::Int8 | Self::Bool | Self::E4m3 | Self::E5m2 => 1,
            Self::Fp16 | Self::Bf16 | Self::Int16 => 2,
            Self::Fp32 | Self::Int32 => 4,
            Self::Int64 | Self::Fp64 => 8,
        }
    }

    /// Returns `true` if the type has the reduction: floats have no bitwise ones.
    pub const fn has(self, reduction: Reduction) -> bool {
        !(self.is_float()
            && matches!(reduction, Reduction::BitAnd | Reduction::BitOr | Reduction::BitXor))
    }

    /// Reduces `with` into `into`, element by element. Floats of 16 and 8 bits are reduced as binary32 and rounded to
    /// nearest.
    ///
    /// # Panics
    /// If the lengths differ or are no multiple of the element's size, or the type does not have the reduction.
    pub fn reduce(self, reduction: Reduction, into: &mut [u8], with: &[u8]) {
        assert!(
            into.len() == with.len() && into.len().is_multiple_of(self.size()),
            "as many whole elements"
        );
        assert!(self.has(reduction), "{} of {}", reduction.name(), self.name());
        match self {
            Self::Fp32 => reduce_floats!(f32, reduction, into, with),
            Self::Fp64 => reduce_floats!(f64, reduction, into, with),
            Self::Fp16 => reduce_halves!(f16, reduction, into, with),
            Self::Bf16 => reduce_halves!(bf16, reduction, into, with),
            Self::Int32 => reduce_integers!(i32, reduction, into, with),
            Self::Int64 => reduce_integers!(i64, reduction, into, with),
            Self::U8 => reduce_integers!(u8, reduction, into, with),
            Self::Int8 => reduce_integers!(i8, reduction, into, with),
            Self::Int16 => reduce_integers!(i16, reduction, into, with),
            Self::Bool => reduce_bools(reduction, into, with),
            Self::E4m3 => reduce_halves!(E4m3, reduction, into, with),
            Self::E5m2 => reduce_halves!(E5m2, reduction, into, with),
        }
    }

    /// Divides every element by `ranks`, as NCCL averages: floats by multiplication with the inverse, in at
    /// least binary32, integers with truncation towards zero.
    ///
    /// # Panics
    /// If the length is no multiple of the element's size, `ranks` is zero, or the elements are truth values.
    pub fn divide(self, ranks: u32, elements: &mut [u8]) {
        assert!(
            ranks > 0 && elements.len().is_multiple_of(self.size()),
            "whole elements and some ranks"
        );
        let inverse = 1.0 / f64::from(ranks);
        #[expect(clippy::cast_possible_truncation, reason = "the nearest binary32")]
        let inverse32 = inverse as f32;
        match self {
            Self::Fp32 => change_as!(f32, elements, |a: f32| a * inverse32),
            Self::Fp64 => change_as!(f64, elements, |a: f64| a * inverse),
            Self::Fp16 => change_as!(f16, elements, |a: f16| f16::from_f32(a.to_f32() * inverse32)),
            Self::Bf16 => {
                change_as!(bf16, elements, |a: bf16| bf16::from_f32(a.to_f32() * inverse32))
            }
            Self::Int32 => divide_as!(i32, elements, i32::try_from(ranks).ok()),
            Self::Int64 => divide_as!(i64, elements, Some(i64::from(ranks))),
            Self::U8 => divide_as!(u8, elements, u8::try_from(ranks).ok()),
            Self::Int8 => divide_as!(i8, elements, i8::try_from(ranks).ok()),
            Self::Int16 => divide_as!(i16, elements, i16::try_from(ranks).ok()),
            Self::E4m3 => {
                change_as!(E4m3, elements, |a: E4m3| E4m3::from_f32(a.to_f32() * inverse32))
            }
            Self::E5m2 => {
                change_as!(E5m2, elements, |a: E5m2| E5m2::from_f32(a.to_f32() * inverse32))
            }
            Self::Bool => unreachable!("truth values have no mean"),
        }
    }

    /// Returns `true` for floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Fp32 | Self::Fp16 | Self::Bf16 | Self::Fp64 | Self::E4m3 | Self::E5m2)
    }
}

impl Reduction {
    /// Returns the reduction's name, for those of NCCL the name in nccl-tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::BitAnd => "band",
            Self::BitOr => "bor",
            Self::BitXor => "bxor",
        }
    }
}
