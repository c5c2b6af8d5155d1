//! The keys of one direction of a connection: the secret of the exchange, and the keys derived from
//! it.

use core::fmt;

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use weft_wire::Cipher;
use zeroize::Zeroizing;

/// A secret from which a key and the next secret are derived.
pub(crate) struct Secret(Zeroizing<[u8; 32]>);

/// A key and its number.
pub(crate) struct Key {
    /// The number of keys of this direction before this one, modulo 2^8.
    pub(crate) number: u8,
    secret: Secret,
    aead: LessSafeKey,
}

impl Secret {
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the secret after this one, from which this one cannot be computed.
    fn next(&self) -> Self {
        let mut next = Zeroizing::new([0; 32]);
        expand(&self.0, &[b"weft next secret"], &mut *next);
        Self(next)
    }

    /// Writes the key's bytes and returns their number, 16 or 32.
    fn derive(&self, cipher: Cipher, key: &mut [u8; 32]) -> usize {
        let len = algorithm(cipher).key_len();
        expand(&self.0, &[b"weft key", &[cipher.number()]], &mut key[..len]);
        len
    }
}

impl Key {
    /// Returns the key of this secret.
    pub(crate) fn new(number: u8, secret: Secret, cipher: Cipher) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        let len = secret.derive(cipher, &mut bytes);
        let key = UnboundKey::new(algorithm(cipher), &bytes[..len]);
        let aead = LessSafeKey::new(key.expect("as long as the cipher's keys are"));
        Self { number, secret, aead }
    }

    /// Returns the key after this one.
    pub(crate) fn next(&self, cipher: Cipher) -> Self {
        Self::new(self.number.wrapping_add(1), self.secret.next(), cipher)
    }

    /// Returns the key's bytes, for a log of keys, and their number.
    pub(crate) fn bytes(&self, cipher: Cipher) -> ([u8; 32], usize) {
        let mut bytes = [0; 32];
        let len = self.secret.derive(cipher, &mut bytes);
        (bytes, len)
    }

    /// Encrypts `text` in place and returns the tag. A nonce must never be used twice under one
    /// key.
    #[inline]
    pub(crate) fn seal(&self, nonce: (u32, u64), clear: &[u8], text: &mut [u8]) -> [u8; 16] {
        let sealed = self.aead.seal_in_place_separate_tag(as_nonce(nonce), Aad::from(clear), text);
        let tag = sealed.expect("a packet is shorter than 64 GiB");
        tag.as_ref().try_into().expect("AES-GCM's tags are 16 bytes")
    }

    /// Decrypts the bytes before the tag in place; returns the plaintext, or `None` if it is not
    /// authentic.
    #[inline]
    pub(crate) fn open<'a>(
        &self,
        nonce: (u32, u64),
        clear: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        self.aead.open_in_place(as_nonce(nonce), Aad::from(clear), sealed).ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Key({}, ..)", self.number)
    }
}

/// Returns the nonce: SPI, then IV (PSP; NIST SP 800-38D, section 8.2.1).
#[inline]
fn as_nonce((spi, iv): (u32, u64)) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&spi.to_be_bytes());
    nonce[4..].copy_from_slice(&iv.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Fills `out` with the output of HKDF-Expand (RFC 5869, section 2.3) with SHA-256.
pub(crate) fn expand(secret: &[u8; 32], info: &[&[u8]], out: &mut [u8]) {
    struct Len(usize);
    impl KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let secret = Prk::new_less_safe(HKDF_SHA256, secret);
    let material = secret.expand(info, Len(out.len()));
    material.and_then(|material| material.fill(out)).expect("shorter than 255 blocks");
}

const fn algorithm(cipher: Cipher) -> &'static Algorithm {
    match cipher {
        Cipher::Aes128Gcm => &AES_128_GCM,
        Cipher::Aes256Gcm => &AES_256_GCM,
    }
}
