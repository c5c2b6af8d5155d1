//! The secret of two hosts, the keys derived from it, and what names a key in a packet.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use ring::aead::{AES_128_GCM, AES_256_GCM, Algorithm, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use thiserror::Error;
use weft_wire::{Cipher, U24};

/// What two hosts were given to encrypt with: 256 bits, made by a generator for keys. It is not
/// shown.
#[derive(Clone)]
pub struct SealSecret([u8; 32]);

/// A text that is not a secret. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a secret is 64 hexadecimal digits, such as `openssl rand -hex 32` prints; got {len} characters"
)]
pub struct ParseSecretError {
    len: usize,
}

impl SealSecret {
    /// These 256 bits.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    #[cfg(test)]
    pub(super) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SealSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SealSecret(..)")
    }
}

impl FromStr for SealSecret {
    type Err = ParseSecretError;
    fn from_str(text: &str) -> Result<Self, ParseSecretError> {
        let wrong = ParseSecretError { len: text.chars().count() };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0; 32];
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(wrong);
        }
        for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
            let digit = |letter: u8| char::from(letter).to_digit(16).ok_or(wrong);
            let value = digit(high)? << 4 | digit(low)?;
            *byte = u8::try_from(value).expect("two hexadecimal digits");
        }
        Ok(Self(bytes))
    }
}

pub(super) fn spi(number: u8, sender: U24) -> u32 {
    u32::from(number) << 24 | u32::from(sender)
}

pub(super) const fn number_of(spi: u32) -> u8 {
    spi.to_be_bytes()[0]
}

pub(super) fn nonce(spi: u32, iv: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&spi.to_be_bytes());
    nonce[4..].copy_from_slice(&iv.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// The key of packets from the first of `ends` to the second.
pub(super) fn derive(
    secret: &SealSecret,
    cipher: Cipher,
    ends: (IpAddr, IpAddr),
    spi: u32,
) -> LessSafeKey {
    let mut key = [0; 32];
    let key = &mut key[..algorithm(cipher).key_len()];
    derive_bytes(secret, cipher, ends, spi, key);
    let key = UnboundKey::new(algorithm(cipher), key).expect("as long as the cipher's keys are");
    LessSafeKey::new(key)
}

pub(super) fn derive_bytes(
    secret: &SealSecret,
    cipher: Cipher,
    (from, to): (IpAddr, IpAddr),
    spi: u32,
    out: &mut [u8],
) {
    struct Len(usize);
    impl ring::hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    // Addresses as IPv6, so that all are of one length and no two contexts read the same.
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let info =
        [&b"weft seal"[..], &[cipher.number()], &octets(from), &octets(to), &spi.to_be_bytes()];
    let pseudo_random = Salt::new(HKDF_SHA256, &[]).extract(&secret.0);
    let material = pseudo_random.expand(&info, Len(out.len()));
    material.and_then(|material| material.fill(out)).expect("a key is shorter than 255 blocks");
}

const fn algorithm(cipher: Cipher) -> &'static Algorithm {
    match cipher {
        Cipher::Aes128Gcm => &AES_128_GCM,
        Cipher::Aes256Gcm => &AES_256_GCM,
    }
}
