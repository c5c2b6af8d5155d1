//! Settings of encryption: the mode, the keys and the accepted peers. Like the transport's settings
//! they come from variables (`WEFT_ENCRYPTION`), files (`encryption = "required"`) or options; the
//! keys themselves are in files that only their owner can read.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use weft_seal::{Mode, ParseKeyError, PublicKey, SealConfig, Seals};
use weft_units::UnknownName;
use weft_wire::{Cipher, DataHeader, MessageHeader};

use crate::settings::{SettingError, SettingFault, TransportSettings, read_variables};

/// The settings of encryption; `None` selects the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncryptionSettings {
    /// The mode. `None` with a pre-shared key or peers is [`Mode::Required`].
    pub mode: Option<Mode>,
    /// The cipher for sent packets.
    pub cipher: Option<Cipher>,
    /// The file with this host's private key; without it each process generates its own.
    pub identity: Option<PathBuf>,
    /// The file with the accepted public keys, one a line; without it any key is accepted.
    pub peers: Option<PathBuf>,
    /// The file with the pre-shared key.
    pub preshared_key: Option<PathBuf>,
    /// The file to which keys are appended, for a dissector.
    pub key_log: Option<PathBuf>,
}

impl EncryptionSettings {
    /// The keys of these settings in files. In the environment `preshared-key` is
    /// `WEFT_PRESHARED_KEY`.
    pub const KEYS: [&'static str; 6] =
        ["encryption", "cipher", "identity", "peers", "preshared-key", "key-log"];

    /// Sets one value.
    ///
    /// # Errors
    /// The key is none of [`Self::KEYS`], or the value is not allowed.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let value = value.trim();
        self.try_set(key, value).map_err(|reason| SettingError {
            name: key.to_owned(),
            value: value.to_owned(),
            reason,
        })
    }

    fn try_set(&mut self, key: &str, value: &str) -> Result<(), SettingFault> {
        match key {
            "encryption" => self.mode = Some(value.parse()?),
            "cipher" => self.cipher = Some(parse_cipher(value)?),
            "identity" => self.identity = Some(value.into()),
            "peers" => self.peers = Some(value.into()),
            "preshared-key" => self.preshared_key = Some(value.into()),
            "key-log" => self.key_log = Some(value.into()),
            _ => return Err(UnknownName::new("setting", key, &Self::KEYS).into()),
        }
        Ok(())
    }

    /// Returns the settings in environment variables, which `variable` returns by name.
    ///
    /// # Errors
    /// A value is not allowed.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        read_variables(&Self::KEYS, variable, |key, value| settings.set(key, value))?;
        Ok(settings)
    }

    /// Returns these settings, completed with those of `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            mode: self.mode.or(others.mode),
            cipher: self.cipher.or(others.cipher),
            identity: self.identity.or(others.identity),
            peers: self.peers.or(others.peers),
            preshared_key: self.preshared_key.or(others.preshared_key),
            key_log: self.key_log.or(others.key_log),
        }
    }

    /// Returns the configuration, with the keys read from their files.
    ///
    /// # Errors
    /// A file cannot be read, holds no key, or holds a secret and others than its owner have permissions.
    pub fn config(&self) -> Result<SealConfig, SettingError> {
        let secret =
            |key, file: &Option<PathBuf>| file.as_deref().map(|file| read_secret(key, file));
        let identity = secret("identity", &self.identity).transpose()?;
        let preshared_key = secret("preshared-key", &self.preshared_key).transpose()?;
        let default = SealConfig::default();
        let config = SealConfig {
            identity: identity
                .map(|text| parse_key("identity", &self.identity, &text))
                .transpose()?,
            preshared_key: preshared_key
                .map(|text| parse_key("preshared-key", &self.preshared_key, &text))
                .transpose()?,
            peers: self.peers.as_deref().map(read_peers).transpose()?,
            cipher: self.cipher.unwrap_or(default.cipher),
            key_log: self.key_log.is_some(),
            ..default
        };
        let default_mode = if config.authenticates() { Mode::Required } else { Mode::default() };
        Ok(SealConfig { mode: self.mode.unwrap_or(default_mode), ..config })
    }

    /// Opens the key log file, which only its owner may read; `None` if the settings have none. A new file gets mode
    /// 600.
    ///
    /// # Errors
    /// The file cannot be opened, or others than its owner have permissions.
    pub fn open_key_log(&self) -> Result<Option<KeyLog>, SettingError> {
        let Some(path) = &self.key_log else { return Ok(None) };
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = file.map_err(|error| unreadable("key-log", path, error))?;
        let metadata = file.metadata().map_err(|error| unreadable("key-log", path, error))?;
        refuse_readable("key-log", path, metadata.mode())?;
        Ok(Some(KeyLog(file)))
    }
}

/// A file to which keys are appended.
#[derive(Debug)]
pub struct KeyLog(File);

impl KeyLog {
    /// Appends the keys first used since the last call. If the write fails, as on a full disk, they are lost.
    pub fn append(&mut self, seals: &mut Seals) {
        while let Some(line) = seals.poll_key_log() {
            let _ = writeln!(self.0, "{line}");
        }
    }
}

/// Returns the encryption settings as rows of name and value.
pub fn describe_encryption(config: &SealConfig) -> Vec<(String, String)> {
    let mode = match config.mode {
        Mode::Off => "off: everything is sent in the clear",
        Mode::Preferred => "preferred: in the clear with peers that cannot",
        Mode::Required => "required: peers that cannot are refused",
    };
    let mut rows = vec![("encryption".to_owned(), mode.to_owned())];
    if config.mode != Mode::Off {
        let peers = match (&config.peers, &config.preshared_key) {
            _ if config.authenticates() && config.mode == Mode::Preferred => {
                "anybody who says that it cannot encrypt; else those that are listed or have the key".to_owned()
            }
            (Some(peers), None) => format!("{} listed identities", peers.len()),
            (Some(peers), Some(_)) => {
                format!("{} listed identities with the pre-shared key", peers.len())
            }
            (None, Some(_)) => "all that have the pre-shared key".to_owned(),
            (None, None) => "anybody: nothing says who a peer must be".to_owned(),
        };
        rows.push(("cipher".to_owned(), cipher_name(config.cipher).to_owned()));
        rows.push(("accepted peers".to_owned(), peers));
    }
    rows
}

/// Returns the cipher's name in settings.
pub const fn cipher_name(cipher: Cipher) -> &'static str {
    match cipher {
        Cipher::Aes128Gcm => "aes-128-gcm",
        Cipher::Aes256Gcm => "aes-256-gcm",
    }
}

/// Returns the cipher of a name.
///
/// # Errors
/// No cipher has the name.
pub fn parse_cipher(name: &str) -> Result<Cipher, UnknownName> {
    const CIPHERS: [Cipher; 2] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm];
    const NAMES: &[&str] = &[cipher_name(CIPHERS[0]), cipher_name(CIPHERS[1])];
    let found = CIPHERS.into_iter().find(|&cipher| cipher_name(cipher) == name);
    found.ok_or_else(|| UnknownName::new("cipher", name, NAMES))
}

/// Returns the error of a setting that names a file.
fn refused(key: &str, file: &Path, reason: SettingFault) -> SettingError {
    SettingError { name: key.to_owned(), value: file.display().to_string(), reason }
}

fn unreadable(key: &str, file: &Path, error: std::io::Error) -> SettingError {
    refused(key, file, error.into())
}

/// Returns the text of a file for which only its owner has permissions.
///
/// # Errors
/// The file cannot be read, or others have permissions.
fn read_secret(key: &str, file: &Path) -> Result<String, SettingError> {
    let mode = fs::metadata(file).map_err(|error| unreadable(key, file, error))?.mode();
    refuse_readable(key, file, mode)?;
    fs::read_to_string(file).map_err(|error| unreadable(key, file, error))
}

/// Returns an error if others than the owner have permissions for a file of this mode.
fn refuse_readable(key: &str, file: &Path, mode: u32) -> Result<(), SettingError> {
    if mode & 0o077 != 0 {
        let reason = SettingFault::Permissions { mode: mode & 0o777, file: file.to_owned() };
        return Err(refused(key, file, reason));
    }
    Ok(())
}

fn parse_key<K>(key: &str, file: &Option<PathBuf>, text: &str) -> Result<K, SettingError>
where
    K: FromStr<Err = ParseKeyError>,
{
    let file = file.as_deref().unwrap_or_else(|| Path::new(""));
    text.trim().parse().map_err(|error: ParseKeyError| refused(key, file, error.into()))
}

/// Returns the public keys in a file, one a line. Text after a key is a comment, as is a line that
/// begins with #.
fn read_peers(file: &Path) -> Result<BTreeSet<PublicKey>, SettingError> {
    let text = fs::read_to_string(file).map_err(|error| unreadable("peers", file, error))?;
    let lines = text.lines().map(str::trim_start).zip(1..);
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(text, line)| {
            let key = text.split_whitespace().next().unwrap_or_default();
            let failed = |cause| refused("peers", file, SettingFault::KeyInLine { line, cause });
            key.parse().map_err(failed)
        })
        .collect()
}

/// Bytes before a packet's payload that are encrypted with it.
const HEADERS: usize = DataHeader::LEN + MessageHeader::LEN;

/// Bytes of an AES block. With a partial last block the library takes 35 ns more (`weft-seal --bench seal`), the time
/// of 160 further bytes.
const BLOCK: u16 = 16;

const _: () = assert!(
    HEADERS.is_multiple_of(BLOCK as usize),
    "payload of whole blocks makes packets of whole blocks"
);

/// Returns the transport's configuration for packets that may be encrypted. Its MTU is smaller by the overhead of
/// encryption, and such that full packets are whole cipher blocks; its packet overhead is larger. With [`Mode::Off`] it
/// is unchanged.
#[must_use]
pub fn reserve_overhead(
    transport: weft_transport::TransportConfig,
    encryption: &SealConfig,
) -> weft_transport::TransportConfig {
    if encryption.mode == Mode::Off {
        return transport;
    }
    weft_transport::TransportConfig {
        mtu: (transport.mtu.saturating_sub(Seals::OVERHEAD) / BLOCK * BLOCK).max(64),
        packet_overhead: (transport.packet_overhead + Seals::OVERHEAD).min(256),
        ..transport
    }
}

impl EncryptionSettings {
    /// Returns the environment variable of a key.
    pub fn variable(key: &str) -> String {
        TransportSettings::variable(key)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(name: &str, mode: u32, text: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("weft-encryption-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn secrets_are_read_only_from_files_that_others_cannot_read() {
        let key = "11".repeat(32);
        let identity = file("identity", 0o600, &format!("{key}\n"));
        let peers = file(
            "peers",
            0o644,
            &format!("# the two of us\n{key} alice\n\n  # and\n{} bob\n", "22".repeat(32)),
        );
        let mut settings = EncryptionSettings::default();
        assert_eq!(settings.config().unwrap().mode, Mode::Preferred);
        settings.set("identity", identity.to_str().unwrap()).unwrap();
        settings.set("peers", peers.to_str().unwrap()).unwrap();
        let config = settings.config().unwrap();
        assert_eq!((config.mode, config.peers.map(|peers| peers.len())), (Mode::Required, Some(2)));
        settings.set("encryption", "preferred").unwrap();
        assert_eq!(settings.config().unwrap().mode, Mode::Preferred);

        fs::set_permissions(&identity, fs::Permissions::from_mode(0o640)).unwrap();
        let error = settings.config().unwrap_err().to_string();
        assert!(error.contains("others can read it (mode 640); chmod 600"), "{error}");
        fs::write(&peers, "1234\n").unwrap();
        settings.identity = None;
        let error = settings.config().unwrap_err().to_string();
        assert!(error.contains("line 1: a key is 64 hexadecimal digits; got 4"), "{error}");
        let error = settings.set("encryption", "on").unwrap_err().to_string();
        assert!(error.contains("expected off, preferred or required"), "{error}");
    }
}
