//! Settings of a daemon's file: the transport's keys and the daemon's own.

use std::path::PathBuf;
use std::sync::LazyLock;

use weft_udp::{EncryptionSettings, SettingError, TransportSettings};
use weft_units::UnknownName;

use super::quotas::QuotaSettings;
use crate::engine::HeldSettings;

/// Settings of a daemon; a key that is not set has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonSettings {
    /// The transport of all connections.
    pub transport: TransportSettings,
    /// The encryption of connections.
    pub encryption: EncryptionSettings,
    /// The limits of payload that is held for peers.
    pub held: HeldSettings,
    /// The quotas of each user.
    pub quotas: QuotaSettings,
    /// The file that keeps the devices for the next daemon; without one they end with this daemon.
    pub state: Option<PathBuf>,
}

/// The key of the file that keeps the devices.
const STATE: &str = "state";

impl DaemonSettings {
    /// Returns every key.
    pub fn keys() -> Vec<&'static str> {
        [
            &TransportSettings::KEYS[..],
            &EncryptionSettings::KEYS,
            &HeldSettings::KEYS,
            &QuotaSettings::KEYS,
            &[STATE],
        ]
        .concat()
    }

    /// Sets one value.
    ///
    /// # Errors
    /// The key is none of [`Self::keys`], or the value is not allowed.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        if TransportSettings::KEYS.contains(&key) {
            self.transport.set(key, value)
        } else if EncryptionSettings::KEYS.contains(&key) {
            self.encryption.set(key, value)
        } else if HeldSettings::KEYS.contains(&key) {
            self.held.set(key, value)
        } else if QuotaSettings::KEYS.contains(&key) {
            self.quotas.set(key, value)
        } else if key == STATE {
            self.state = Some(value.into());
            Ok(())
        } else {
            static KEYS: LazyLock<Vec<&str>> = LazyLock::new(DaemonSettings::keys);
            let reason = UnknownName::new("setting", key, &KEYS).into();
            Err(SettingError { name: key.into(), value: value.into(), reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_keys_of_the_transport_and_of_the_daemon() {
        let mut settings = DaemonSettings::default();
        for (key, value) in [("paths", "4"), ("held-bytes", "1GiB"), ("devices-per-user", "5")] {
            settings.set(key, value).unwrap();
        }
        assert_eq!(settings.transport.paths, Some(4));
        assert_ne!(settings.quotas, QuotaSettings::default());
        settings.set("state", "/var/lib/weft/a.state").unwrap();
        assert_eq!(settings.state, Some("/var/lib/weft/a.state".into()));
        assert_eq!(settings.held.bytes, Some("1GiB".parse().unwrap()));
        let refused = |key, value| DaemonSettings::default().set(key, value).unwrap_err();
        assert!(refused("held-byte", "1GiB").to_string().contains("held-bytes"));
        assert!(refused("held-bytes", "much").to_string().contains("256MiB"));
    }
}
