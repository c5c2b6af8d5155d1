//! Keys that operators give to hosts: 32 bytes, written as 64 hexadecimal digits.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use core::fmt;
use core::str::FromStr;

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Dh;
use zeroize::ZeroizeOnDrop;

/// The error of a text that is not a key. It does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseKeyError {
    /// The text is not 32 bytes.
    #[error("a key is 64 hexadecimal digits; got {len} characters")]
    Digits {
        /// Length of the text, characters.
        len: usize,
    },
    /// The key is a point of low order: the shared secret with it is not secret.
    #[error("this public key belongs to no private key that is a secret")]
    LowOrder,
}

/// A host's identity, an X25519 key (RFC 7748). `Debug` does not show it.
#[derive(Clone, ZeroizeOnDrop)]
pub struct PrivateKey(pub(crate) [u8; 32]);

/// The public key that identifies a host to its peers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub(crate) [u8; 32]);

/// A key shared by two hosts. `Debug` does not show it.
#[derive(Clone, ZeroizeOnDrop)]
pub struct PresharedKey(pub(crate) [u8; 32]);

impl PrivateKey {
    /// Returns the key of these bytes, which must be random and secret.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the public key of this key.
    pub fn public(&self) -> PublicKey {
        let mut dh = x25519();
        dh.set(&self.0);
        PublicKey(dh.pubkey().try_into().expect("an X25519 key is 32 bytes"))
    }

    /// Returns the key as 64 hexadecimal digits, for a file that only its owner can read.
    pub fn to_hex(&self) -> String {
        Hex(&self.0).to_string()
    }
}

impl PresharedKey {
    /// Returns the key of these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PrivateKey(..)")
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PresharedKey(..)")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(out)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PublicKey({self})")
    }
}

impl FromStr for PrivateKey {
    type Err = ParseKeyError;
    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        parse(text).map(Self)
    }
}

impl FromStr for PublicKey {
    type Err = ParseKeyError;
    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let key = parse(text)?;
        // A private key is a multiple of the curve's cofactor, so that such points yield zeros (RFC
        // 7748, section 6.1).
        let mut shared = [0; 32];
        let mut dh = x25519();
        dh.set(&[1; 32]);
        dh.dh(&key, &mut shared).map_err(|_| ParseKeyError::LowOrder)?;
        if shared == [0; 32] { Err(ParseKeyError::LowOrder) } else { Ok(Self(key)) }
    }
}

impl FromStr for PresharedKey {
    type Err = ParseKeyError;
    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        parse(text).map(Self)
    }
}

fn x25519() -> Box<dyn Dh> {
    DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("the resolver was built with X25519")
}

/// Bytes as hexadecimal digits.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

fn parse(text: &str) -> Result<[u8; 32], ParseKeyError> {
    let wrong = ParseKeyError::Digits { len: text.chars().count() };
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
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7748, section 6.1.
    #[test]
    fn a_public_key_is_x25519_of_the_private_one() {
        for (private, public) in [
            (
                "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
                "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            ),
            (
                "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
                "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            ),
        ] {
            let private: PrivateKey = private.parse().unwrap();
            assert_eq!(private.public().to_string(), public);
        }
    }

    #[test]
    fn keys_are_read_and_private_ones_never_shown() {
        let text = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";
        let private: PrivateKey = text.parse().unwrap();
        let preshared: PresharedKey = text.parse().unwrap();
        let shown = format!("{private:?} {preshared:?}");
        assert_eq!(shown, "PrivateKey(..) PresharedKey(..)");
        let public: PublicKey = text.parse().unwrap();
        assert_eq!(public.to_string(), text.to_lowercase());
        assert_eq!("00".repeat(32).parse::<PublicKey>(), Err(ParseKeyError::LowOrder));
        assert_eq!(
            ("01".to_owned() + &"00".repeat(31)).parse::<PublicKey>(),
            Err(ParseKeyError::LowOrder)
        );
        for wrong in ["", "00", &text[1..], &text.replace('A', "g"), &"+1".repeat(32)] {
            let error = wrong.parse::<PublicKey>().unwrap_err().to_string();
            assert!(error.starts_with("a key is 64 hexadecimal digits; got "), "{error}");
        }
    }
}
