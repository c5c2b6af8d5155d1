//! The hashes that XOR a packet's words or bytes.

use super::crc::CRC16_BISYNC;

/// Returns the XOR of the 16-bit words of `bytes` in network order; an odd last byte is the upper half
/// of a word. This is Dell OS9's `xor16`.
pub fn xor16(seed: u32, bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    words.fold(seed & 0xffff, |fold, word| fold ^ word)
}

/// Returns Dell OS9's `xor8`: the upper eight bits of CRC16-BISYNC, then the XOR of all bytes in the lower
/// eight. The seed initialises the CRC's register; its low eight bits also initialise the XOR.
pub fn crc16_xor8(seed: u32, bytes: &[u8]) -> u32 {
    let fold = bytes.iter().fold(seed & 0xff, |fold, &byte| fold ^ u32::from(byte));
    CRC16_BISYNC.checksum(seed, bytes) & 0xff00 | fold
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_equal_values_computed_by_hand() {
        assert_eq!(xor16(0, &[0x12, 0x34, 0x00, 0xff, 0x80]), 0x1234 ^ 0x00ff ^ 0x8000);
        assert_eq!(xor16(0x1_0001, &[]), 1);
        // 0xbb3d is the check value of CRC-16/ARC; the bytes '1'..='9' fold to 0x31.
        assert_eq!(crc16_xor8(0, b"123456789"), 0xbb31);
    }
}
