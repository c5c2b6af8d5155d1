//! The cyclic redundancy checks that switches use to choose a port.

/// A cyclic redundancy check in the parameters of Williams' "A painless guide to CRC error
/// detection algorithms" (1993), under which check values are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc {
    /// Length of the result in bits, 16 or 32.
    width: u32,
    /// The polynomial without its most significant term, bit-reversed if `reflected`.
    polynomial: u32,
    init: u32,
    reflected: bool,
    xor_out: u32,
}

/// CRC-16/IBM-3740, widely called CCITT-FALSE; `crc16cc` in Dell OS9, `CRC_CCITT` in SAI.
pub const CRC16_CCITT: Crc =
    Crc { width: 16, polynomial: 0x1021, init: 0xffff, reflected: false, xor_out: 0 };

/// CRC-16/ARC, also called BISYNC; Dell OS9 on Broadcom uses it for flow-based ECMP.
pub const CRC16_BISYNC: Crc =
    Crc { width: 16, polynomial: 0xa001, init: 0, reflected: true, xor_out: 0 };

/// CRC-32/ISO-HDLC, the CRC of Ethernet.
pub const CRC32: Crc =
    Crc { width: 32, polynomial: 0xedb8_8320, init: !0, reflected: true, xor_out: !0 };

/// CRC-32/ISCSI, the Castagnoli polynomial.
pub const CRC32C: Crc =
    Crc { width: 32, polynomial: 0x82f6_3b78, init: !0, reflected: true, xor_out: !0 };

impl Crc {
    /// Returns the CRC of `bytes`, with `seed` XORed into the register's initial value. Bits of the seed
    /// above the width are ignored.
    pub fn checksum(&self, seed: u32, bytes: &[u8]) -> u32 {
        let start = (self.init ^ seed) & self.mask();
        let end = bytes.iter().fold(start, |register, &byte| self.shift_in(register, byte));
        end ^ self.xor_out
    }

    fn shift_in(&self, register: u32, byte: u8) -> u32 {
        let mut register = if self.reflected {
            register ^ u32::from(byte)
        } else {
            register ^ u32::from(byte) << (self.width - 8)
        };
        let out_bit = if self.reflected { 1 } else { 1 << (self.width - 1) };
        for _ in 0..8 {
            let subtract = if register & out_bit == 0 { 0 } else { self.polynomial };
            let shifted = if self.reflected { register >> 1 } else { register << 1 };
            register = (shifted ^ subtract) & self.mask();
        }
        register
    }

    /// Returns the length of the result in bits.
    pub const fn width(&self) -> u32 {
        self.width
    }

    const fn mask(&self) -> u32 {
        !0 >> (32 - self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_are_the_published_ones() {
        // Catalogue of parametrised CRC algorithms (Cook): the CRC of "123456789".
        for (crc, check) in [
            (CRC16_CCITT, 0x29b1),
            (CRC16_BISYNC, 0xbb3d),
            (CRC32, 0xcbf4_3926),
            (CRC32C, 0xe306_9283),
        ] {
            assert_eq!(crc.checksum(0, b"123456789"), check, "{crc:?}");
        }
    }

    #[test]
    fn a_seed_is_the_initial_value_of_the_register() {
        // CRC-16/XMODEM is CCITT-FALSE with an initial value of zero; its check is 0x31c3.
        assert_eq!(CRC16_CCITT.checksum(0xffff, b"123456789"), 0x31c3);
        // CRC-16/MODBUS is ARC with an initial value of all ones; its check is 0x4b37.
        assert_eq!(CRC16_BISYNC.checksum(0xffff, b"123456789"), 0x4b37);
    }
}
