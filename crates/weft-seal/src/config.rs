//! What an endpoint agrees to.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use weft_units::Duration;
use weft_wire::Cipher;

use crate::{PresharedKey, PrivateKey, PublicKey};

/// Whether connections are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Never.
    Off,
    /// With peers that can.
    #[default]
    Preferred,
    /// Always: a peer that cannot is refused.
    Required,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Off, Self::Preferred, Self::Required];

    /// Returns its name.
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

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| format!("expected off, preferred or required, got {name:?}"))
    }
}

/// How an endpoint encrypts.
#[derive(Clone, Debug)]
pub struct SealConfig {
    /// Whether connections are encrypted.
    pub mode: Mode,
    /// The cipher to send with. Both are received.
    pub cipher: Cipher,
    /// This host's identity; `None` draws one that lasts as long as the endpoint.
    pub identity: Option<PrivateKey>,
    /// A key that both ends have; who has another cannot connect.
    pub preshared_key: Option<PresharedKey>,
    /// The identities that are accepted; `None` accepts any.
    pub peers: Option<BTreeSet<PublicKey>>,
    /// How long a key is sent with. A peer that receives nothing for eight of them is lost; retransmission timeouts are
    /// shorter by far.
    pub key_lifetime: Duration,
    /// Whether keys are kept for [`Seals::poll_key_log`](crate::Seals::poll_key_log).
    pub key_log: bool,
}

impl Default for SealConfig {
    /// Encrypts with whoever can, as WireGuard does with keys of two minutes.
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

    /// Returns `true` if the configuration says who the peer must be.
    pub const fn authenticates(&self) -> bool {
        self.preshared_key.is_some() || self.peers.is_some()
    }
}
