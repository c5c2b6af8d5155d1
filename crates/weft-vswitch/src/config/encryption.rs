//! The table `[host.encryption]`: the encryption between hosts, and the accepted hosts.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_udp::{EncryptionMode, EncryptionSettings, SettingError, cipher_name};
use weft_wire::Cipher;

use super::ConfigError;

/// The encryption of packets between hosts. Keys are in files that only their owner may read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Encryption {
    /// `off`, `preferred` or `required`. By default `preferred`, or `required` if a pre-shared key or peers are
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = EncryptionMode::ALL.map(EncryptionMode::name)))]
    pub mode: Option<String>,
    /// The cipher for sending, `aes-128-gcm` or `aes-256-gcm`. Both are accepted on receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [Cipher::Aes128Gcm, Cipher::Aes256Gcm].map(cipher_name)))]
    pub cipher: Option<String>,
    /// The file with this host's private key; without one each start generates a new key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<PathBuf>,
    /// The file with the public keys of the accepted hosts, one a line; without one every host is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<PathBuf>,
    /// The file with a key that all hosts share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preshared_key: Option<PathBuf>,
    /// The file to which keys are appended for a dissector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_log: Option<PathBuf>,
}

impl Encryption {
    /// Returns a table with only the mode.
    pub fn of_mode(mode: &str) -> Self {
        Self { mode: Some(mode.to_owned()), ..Self::default() }
    }

    /// Returns the settings. No file is read.
    ///
    /// # Errors
    /// A value is invalid.
    pub fn settings(&self) -> Result<EncryptionSettings, ConfigError> {
        let mut settings = EncryptionSettings {
            identity: self.identity.clone(),
            peers: self.peers.clone(),
            preshared_key: self.preshared_key.clone(),
            key_log: self.key_log.clone(),
            ..EncryptionSettings::default()
        };
        for (key, value) in [("encryption", &self.mode), ("cipher", &self.cipher)] {
            value.iter().try_for_each(|value| settings.set(key, value))?;
        }
        Ok(settings)
    }

    /// Returns `true` if nothing may leave unencrypted.
    pub fn is_required(&self) -> bool {
        let required = EncryptionMode::Required.name();
        let implied = self.preshared_key.is_some() || self.peers.is_some();
        self.mode.as_deref().map_or(implied, |mode| mode == required)
    }

    /// Returns `true` if nothing is encrypted. An invalid mode counts as one that encrypts.
    pub fn is_off(&self) -> bool {
        self.mode.as_deref() == Some(EncryptionMode::Off.name())
    }
}

impl From<SettingError> for ConfigError {
    fn from(error: SettingError) -> Self {
        let SettingError { name, value, reason } = error;
        let key = if name == "encryption" { "mode".to_owned() } else { name };
        Self::Encryption { key, got: value, reason }
    }
}
