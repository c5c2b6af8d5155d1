//! Floats of eight bits (Micikevicius et al., arXiv 2209.05433, table 1), which are converted to binary32 for arithmetic.

use half::f16;

/// Four bits of exponent and three of mantissa. There is no infinity; the largest number is 448, and a number beyond
/// it becomes NaN, as in PyTorch's `float8_e4m3fn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct E4m3(u8);

/// Five bits of exponent and two of mantissa, the upper half of binary16. A number beyond 57,344 becomes infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct E5m2(u8);

/// The layout of a format.
struct Format {
    mantissa_bits: u32,
    bias: i32,
    /// The code without its sign that follows the largest number.
    overflow: u32,
}

/// The code without its sign of a number that is none.
const NAN: u8 = 0x7f;
const E4M3: Format = Format { mantissa_bits: 3, bias: 7, overflow: 0x7f };
const E5M2: Format = Format { mantissa_bits: 2, bias: 15, overflow: 0x7c };

/// Returns the nearest number of the format; ties go to the even code.
fn encode(value: f32, format: &Format) -> u8 {
    let bits = value.to_bits();
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    if value.is_nan() {
        return sign | NAN;
    }
    let magnitude = bits & 0x7fff_ffff;
    // Numbers that are subnormal in binary32 are below half of the smallest code, so a wrong leading bit does not matter.
    let significand = (magnitude & 0x007f_ffff) | 0x0080_0000;
    let exponent = i32::try_from(magnitude >> 23).expect("eight bits") - 127;
    let smallest = 1 - format.bias;
    let dropped = (23 - format.mantissa_bits) + (smallest - exponent).max(0).unsigned_abs();
    // Of 24 bits none is left, and what is dropped is below half of the smallest code.
    if dropped > 24 {
        return sign;
    }
    let (kept, rest, half) =
        (significand >> dropped, significand & ((1 << dropped) - 1), 1 << (dropped - 1));
    let rounded = kept + u32::from(rest > half || (rest == half && kept % 2 == 1));
    // A normal number's leading bit counts as one exponent; a carry into the exponent is right as it is.
    let above = (exponent - smallest).max(0).unsigned_abs();
    let code = (above << format.mantissa_bits) + rounded;
    sign | u8::try_from(code.min(format.overflow)).expect("seven bits")
}

impl E4m3 {
    /// Returns the number with this code.
    pub const fn from_le_bytes([code]: [u8; 1]) -> Self {
        Self(code)
    }

    /// Returns the code.
    pub const fn to_le_bytes(self) -> [u8; 1] {
        [self.0]
    }

    /// Returns the nearest number; ties go to even.
    pub fn from_f32(value: f32) -> Self {
        Self(encode(value, &E4M3))
    }

    /// Returns the number, which binary32 represents exactly.
    pub fn to_f32(self) -> f32 {
        let (exponent, mantissa) = (u32::from(self.0 >> 3 & 0xf), u32::from(self.0 & 7));
        let magnitude = match exponent {
            0xf if mantissa == 7 => f32::NAN,
            0 => f32::from(self.0 & 7) / 512.0,
            _ => f32::from_bits((exponent + 127 - 7) << 23 | mantissa << 20),
        };
        if self.0 & 0x80 == 0 { magnitude } else { -magnitude }
    }
}

impl E5m2 {
    /// Returns the number with this code.
    pub const fn from_le_bytes([code]: [u8; 1]) -> Self {
        Self(code)
    }

    /// Returns the code.
    pub const fn to_le_bytes(self) -> [u8; 1] {
        [self.0]
    }

    /// Returns the nearest number; ties go to even.
    pub fn from_f32(value: f32) -> Self {
        Self(encode(value, &E5M2))
    }

    /// Returns the number, which binary32 represents exactly.
    pub fn to_f32(self) -> f32 {
        f16::from_bits(u16::from(self.0) << 8).to_f32()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the table 1 in the paper.
    #[test]
    fn codes_have_the_values_of_the_paper() {
        let of = |code| E4m3(code).to_f32();
        assert_eq!(
            [of(0x7e), of(0x08), of(0x07), of(0x01)],
            [448.0, 0.015_625, 0.013_671_875, 0.001_953_125]
        );
        assert!(of(0x7f).is_nan() && of(0xff).is_nan());
        let of = |code| E5m2(code).to_f32();
        assert_eq!(
            [of(0x7b), of(0x7c), of(0x04), of(0x01)],
            [57_344.0, f32::INFINITY, 2.0_f32.powi(-14), 2.0_f32.powi(-16)]
        );
        assert!([0x7d, 0x7e, 0x7f].into_iter().all(|code| of(code).is_nan()));
    }

    /// Returns the code of the nearest number by comparison with all numbers of a format; ties go to even.
    fn nearest(value: f32, of: impl Fn(u8) -> f32, last: u8) -> u8 {
        let distance = |code: u8| (f64::from(of(code)) - f64::from(value.abs())).abs();
        let best = (0..=last)
            .min_by(|a, b| distance(*a).total_cmp(&distance(*b)).then((a % 2).cmp(&(b % 2))));
        best.expect("a code") | if value.is_sign_negative() { 0x80 } else { 0 }
    }

    #[test]
    fn every_number_is_rounded_to_the_nearest_and_ties_to_even() {
        let mut rng = weft_units::Seed(1).child("float8", 0).rng();
        let mut values: Vec<f32> = Vec::new();
        for code in 0..0x7e {
            // Every number, the middle between it and the next, and the neighbours of both.
            for of in [
                E4m3(code).to_f32(),
                E5m2(code).to_f32(),
                f32::midpoint(E4m3(code).to_f32(), E4m3(code + 1).to_f32()),
            ] {
                values.extend([of, of.next_up(), of.next_down()]);
            }
        }
        values.extend(
            (0..5_000).map(|_| f32::from_bits(u32::try_from(rng.below(1 << 32)).expect("32 bits"))),
        );
        for value in values.into_iter().flat_map(|value| [value, -value]) {
            if value.abs() <= 448.0 {
                let got = E4m3::from_f32(value).0;
                assert_eq!(got, nearest(value, |code| E4m3(code).to_f32(), 0x7e), "{value}");
            }
            if value.abs() <= 57_344.0 {
                let got = E5m2::from_f32(value).0;
                assert_eq!(got, nearest(value, |code| E5m2(code).to_f32(), 0x7b), "{value}");
            }
        }
    }

    #[test]
    fn larger_numbers_become_nan_or_infinity() {
        assert_eq!(
            [464.0, 464.1, f32::INFINITY].map(|value| E4m3::from_f32(value).0),
            [0x7e, 0x7f, 0x7f]
        );
        assert_eq!(
            [61_439.0, 61_440.0, -f32::INFINITY].map(|value| E5m2::from_f32(value).0),
            [0x7b, 0x7c, 0xfc]
        );
        assert_eq!(
            [E4m3::from_f32(f32::NAN).0 & 0x7f, E5m2::from_f32(f32::NAN).0 & 0x7f],
            [NAN, NAN]
        );
    }
}
