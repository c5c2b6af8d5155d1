//! The encryption settings of an endpoint.

use alloc::collections::BTreeSet;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use weft_units::Duration;
use weft_wire::Cipher;

use crate::{PresharedKey, PrivateKey, PublicKey};

/// The mode of encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// No connection is encrypted.
    Off,
    /// Connections with peers that support encryption are encrypted.
    #[default]
    Preferred,
    /// Every connection is encrypted: a peer that does not support encryption is refused.
    Required,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Off, Self::Preferred, Self::Required];

    /// Returns the mode's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Preferred => "preferred",
            Self::Required => "required",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// The error for a name that no mode has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected off, preferred or required, got {name:?}")]
pub struct UnknownMode {
    name: String,
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| UnknownMode { name: name.into() })
    }
}

/// The encryption settings of an endpoint.
#[derive(Clone, Debug)]
pub struct SealConfig {
    /// The mode of encryption.
    pub mode: Mode,
    /// The cipher for sent packets. Both ciphers are accepted.
    pub cipher: Cipher,
    /// This host's identity; `None` generates one for the lifetime of the endpoint.
    pub identity: Option<PrivateKey>,
    /// A key that both ends must have; a peer with another cannot connect.
    pub preshared_key: Option<PresharedKey>,
    /// The identities that are accepted; `None` accepts any.
    pub peers: Option<BTreeSet<PublicKey>>,
    /// The time for which a key is used to send. A peer that receives nothing during more than eight lifetimes cannot
    /// open later packets; retransmission timeouts are far shorter.
    pub key_lifetime: Duration,
    /// `true` if keys are kept for [`Seals::poll_key_log`](crate::Seals::poll_key_log).
    pub key_log: bool,
}

impl Default for SealConfig {
    /// Returns the configuration that encrypts with every peer that supports it, with a key lifetime of two minutes, as
    /// in WireGuard.
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            cipher: Cipher::default(),
            identity: None,
            preshared_key: None,
            peers: None,
            key_lifetime: Duration::from_secs(120),
            key_log: false,
        }
    }
}

impl SealConfig {
    /// Returns a configuration that encrypts nothing.
    pub fn off() -> Self {
        Self { mode: Mode::Off, ..Self::default() }
    }

    /// Returns `true` if a peer with this identity is accepted.
    pub(crate) fn accepts(&self, peer: PublicKey) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.contains(&peer))
    }

    /// Returns `true` if the configuration restricts the peer's identity.
    pub const fn authenticates(&self) -> bool {
        self.preshared_key.is_some() || self.peers.is_some()
    }
}
