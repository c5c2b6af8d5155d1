//! The Toeplitz hash of receive-side scaling.

/// The key of Microsoft's verification suite ("Verifying the RSS Hash Calculation"), the default of
/// most NICs and drivers.
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Maximum input of a 40-byte key in bytes: an IPv6 address pair with ports.
pub const MAX_INPUT: usize = MICROSOFT_KEY.len() - 4;

/// Returns the XOR, over every set bit of `bytes`, of the 32 bits of [`MICROSOFT_KEY`] that start at
/// that bit. The standard has no seed; `seed` is XORed into the result.
///
/// # Panics
/// Panics if `bytes` is longer than [`MAX_INPUT`].
pub fn toeplitz(seed: u32, bytes: &[u8]) -> u32 {
    assert!(bytes.len() <= MAX_INPUT, "the key covers {MAX_INPUT} bytes");
    let mut hash = seed;
    for (&byte, key) in bytes.iter().zip(MICROSOFT_KEY.windows(5)) {
        let window = key.iter().fold(0u64, |window, &byte| window << 8 | u64::from(byte));
        for bit in 0..8 {
            if byte & (0x80 >> bit) != 0 {
                #[expect(clippy::cast_possible_truncation, reason = "the 32 bits at this place")]
                let at_bit = (window >> (8 - bit)) as u32;
                hash ^= at_bit;
            }
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::FiveTuple;

    fn input(src: [u8; 4], src_port: u16, dst: [u8; 4], dst_port: u16) -> [u8; 13] {
        let (src, dst) = (u32::from_be_bytes(src), u32::from_be_bytes(dst));
        FiveTuple { src, dst, src_port, dst_port, protocol: 6 }.to_bytes()
    }

    #[test]
    fn hashes_are_those_of_microsofts_verification_suite() {
        for (source, source_port, destination, destination_port, addresses, with_ports) in [
            ([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, 0x323e_8fc2, 0x51cc_c178),
            ([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, 0xd718_262a, 0xc626_b0ea),
            ([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, 0xd2d0_a5de, 0x5c2b_394a),
            ([38, 27, 205, 30], 48228, [209, 142, 163, 6], 2217, 0x8298_9176, 0xafc7_327f),
            ([153, 39, 163, 191], 44251, [202, 188, 127, 2], 1303, 0x5d18_09c5, 0x10e8_28a2),
        ] {
            let bytes = input(source, source_port, destination, destination_port);
            assert_eq!(toeplitz(0, &bytes[..8]), addresses);
            assert_eq!(toeplitz(0, &bytes[..12]), with_ports);
        }
    }
}
