//! Elements of buffers and how they are reduced.

use half::{bf16, f16};

/// What a buffer's bytes are: little-endian elements.
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
    /// Two's complement.
    Int32,
    /// Two's complement.
    Int64,
    /// Unsigned.
    U8,
}

/// How elements become one. Integers wrap around, as in NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The least.
    Min,
    /// The greatest.
    Max,
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

impl DataType {
    /// Every type.
    pub const ALL: [Self; 6] =
        [Self::Fp32, Self::Fp16, Self::Bf16, Self::Int32, Self::Int64, Self::U8];

    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::Fp16 | Self::Bf16 => 2,
            Self::Fp32 | Self::Int32 => 4,
            Self::Int64 => 8,
        }
    }

    /// Reduces `with` into `into`, element by element. Halves are reduced as binary32 and rounded to
    /// nearest.
    ///
    /// # Panics
    /// If the lengths differ or are no multiple of the element's size.
    pub fn reduce(self, reduction: Reduction, into: &mut [u8], with: &[u8]) {
        assert!(
            into.len() == with.len() && into.len().is_multiple_of(self.size()),
            "as many whole elements"
        );
        match self {
            Self::Fp32 => reduce_as!(f32, into, with, |a, b| reduction.float(a, b)),
            Self::Fp16 => reduce_as!(f16, into, with, |a: f16, b: f16| {
                f16::from_f32(reduction.float(a.to_f32(), b.to_f32()))
            }),
            Self::Bf16 => reduce_as!(bf16, into, with, |a: bf16, b: bf16| {
                bf16::from_f32(reduction.float(a.to_f32(), b.to_f32()))
            }),
            Self::Int32 => {
                reduce_as!(i32, into, with, |a, b| {
                    reduction.whole(a, b, i32::wrapping_add, i32::wrapping_mul)
                });
            }
            Self::Int64 => {
                reduce_as!(i64, into, with, |a, b| {
                    reduction.whole(a, b, i64::wrapping_add, i64::wrapping_mul)
                });
            }
            Self::U8 => {
                reduce_as!(u8, into, with, |a, b| {
                    reduction.whole(a, b, u8::wrapping_add, u8::wrapping_mul)
                });
            }
        }
    }
}

impl Reduction {
    fn float(self, a: f32, b: f32) -> f32 {
        match self {
            Self::Sum => a + b,
            Self::Product => a * b,
            Self::Min => a.min(b),
            Self::Max => a.max(b),
        }
    }

    fn whole<T: Ord>(self, a: T, b: T, add: fn(T, T) -> T, multiply: fn(T, T) -> T) -> T {
        match self {
            Self::Sum => add(a, b),
            Self::Product => multiply(a, b),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
        }
    }
}
