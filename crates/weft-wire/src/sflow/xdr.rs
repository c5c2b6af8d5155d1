//! The reader of XDR (RFC 4506) from borrowed bytes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::SflowError;

/// A reader over the bytes that have not been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Xdr<'a>(pub(super) &'a [u8]);

/// An entry of a list of samples or records: its format and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Number of the enterprise that defined the format; 0 is the standard.
    pub(super) enterprise: u32,
    pub(super) format: u32,
    pub(super) body: Xdr<'a>,
}

impl<'a> Xdr<'a> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], SflowError> {
        let Some((taken, rest)) = self.0.split_first_chunk() else {
            return Err(SflowError::Truncated { needed: N, got: self.0.len() });
        };
        self.0 = rest;
        Ok(*taken)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, SflowError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, SflowError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads `N` consecutive words.
    #[inline]
    pub(super) fn words<const N: usize>(&mut self) -> Result<[u32; N], SflowError> {
        let needed = 4 * N;
        let Some((taken, rest)) = self.0.split_at_checked(needed) else {
            return Err(SflowError::Truncated { needed, got: self.0.len() });
        };
        self.0 = rest;
        let (words, _) = taken.as_chunks::<4>();
        Ok(core::array::from_fn(|at| u32::from_be_bytes(words[at])))
    }

    /// Reads a length, that many bytes and their padding, and returns the bytes.
    #[inline]
    pub(super) fn opaque(&mut self) -> Result<&'a [u8], SflowError> {
        let length = self.u32()? as usize;
        let truncated = SflowError::Truncated { needed: length, got: self.0.len() };
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(truncated)?;
        // Some agents omit the last padding, which carries no information.
        let padding = length.wrapping_neg() % 4;
        self.0 = rest.get(padding..).unwrap_or_default();
        Ok(bytes)
    }

    /// Reads an address with its type.
    #[inline]
    pub(super) fn address(&mut self) -> Result<IpAddr, SflowError> {
        match self.u32()? {
            1 => self.array().map(|octets| Ipv4Addr::from_octets(octets).into()),
            2 => self.array().map(|octets| Ipv6Addr::from_octets(octets).into()),
            got => Err(SflowError::UnknownAddressType { got }),
        }
    }

    /// Reads the number of entries that follow. Each needs at least eight bytes, so a count above an eighth of the
    /// bytes left is invalid.
    #[inline]
    pub(super) fn count(&mut self) -> Result<u32, SflowError> {
        let announced = self.u32()?;
        if announced as usize > self.0.len() / 8 {
            return Err(SflowError::TooMany { announced, got: self.0.len() });
        }
        Ok(announced)
    }

    /// Reads the format and the bytes of an entry.
    #[inline]
    pub(super) fn entry(&mut self) -> Result<Entry<'a>, SflowError> {
        let tag = self.u32()?;
        let body = Self(self.opaque()?);
        Ok(Entry { enterprise: tag >> 12, format: tag & 0xfff, body })
    }
}
