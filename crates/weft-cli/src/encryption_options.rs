//! Options of encryption, and the variables that apply where an option is left out.

use std::path::PathBuf;

use anyhow::{Result, bail};
use weft_udp::{EncryptionMode, EncryptionSettings, KeyLog, SealConfig, parse_cipher};
use weft_wire::Cipher;

/// Options of encryption: mode, keys and accepted peers.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    next_help_heading = "Encryption (docs/encryption.md); variables WEFT_ENCRYPTION, WEFT_IDENTITY and so on"
)]
pub(crate) struct EncryptionOptions {
    /// The mode of encryption: off, preferred or required [default: preferred; required with peers or a
    /// pre-shared key]
    #[arg(long, value_name = "MODE")]
    encryption: Option<EncryptionMode>,
    /// File with this host's private key (`weft key new`) [default: a key of this process's own]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// File with the public keys that are accepted, one a line [default: any]
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// File with a key that both ends share (`weft key psk`)
    #[arg(long, value_name = "FILE")]
    preshared_key: Option<PathBuf>,
    /// Cipher to send with: aes-128-gcm or aes-256-gcm [default: aes-128-gcm]
    #[arg(long, value_parser = parse_cipher)]
    cipher: Option<Cipher>,
    /// File that keys are appended to, for the dissector: anyone who reads it can decrypt everything
    #[arg(long, value_name = "FILE")]
    key_log: Option<PathBuf>,
}

impl EncryptionOptions {
    fn settings(&self) -> EncryptionSettings {
        EncryptionSettings {
            mode: self.encryption,
            cipher: self.cipher,
            identity: self.identity.clone(),
            peers: self.peers.clone(),
            preshared_key: self.preshared_key.clone(),
            key_log: self.key_log.clone(),
        }
    }

    /// Returns the configuration, and the file for keys, if one is named.
    ///
    /// # Errors
    /// Returns an error if a variable's value is not allowed, or a file cannot be read or holds no key.
    pub(crate) fn config(&self) -> Result<(SealConfig, Option<KeyLog>)> {
        let variables = EncryptionSettings::from_environment(|name| std::env::var_os(name))?;
        let settings = self.settings().or(variables);
        Ok((settings.config()?, settings.open_key_log()?))
    }

    /// Checks that no option was given. With the option `with`, the RDMA device opens the connections, and it reads
    /// variables only.
    ///
    /// # Errors
    /// Returns an error if an option was given.
    pub(crate) fn refuse(&self, with: &str) -> Result<()> {
        if self.settings() != EncryptionSettings::default() {
            bail!(
                "with {with} the RDMA device encrypts; set WEFT_ENCRYPTION, WEFT_IDENTITY and so on instead of options"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_set_mode_and_cipher() {
        let options = EncryptionOptions {
            encryption: Some(EncryptionMode::Required),
            cipher: Some(Cipher::Aes256Gcm),
            ..EncryptionOptions::default()
        };
        let (config, log) = options.config().unwrap();
        assert_eq!((config.mode, config.cipher), (EncryptionMode::Required, Cipher::Aes256Gcm));
        assert!(log.is_none() && !config.key_log);
        assert!(options.refuse("--messages").is_err());
        assert!(EncryptionOptions::default().refuse("--messages").is_ok());
    }

    #[test]
    fn a_missing_file_is_named() {
        let options = EncryptionOptions {
            identity: Some("/no/such/key".into()),
            ..EncryptionOptions::default()
        };
        let error = format!("{:#}", options.config().unwrap_err());
        assert!(error.contains("/no/such/key"), "{error}");
    }
}
