//! Settings of the device in the environment: its transport ([`TransportSettings`], common to all programs on real
//! packets), its encryption ([`EncryptionSettings`]), the limits of payload held for peers ([`HeldSettings`]),
//! shared memory between programs of one host (`WEFT_SAME_HOST`), and what a flow label does (`WEFT_PIN_FLOW_LABEL`).
//! An empty variable counts as not set.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use weft_rnic::Limits;
use weft_udp::{EncryptionSettings, SettingError, SettingFault, TransportSettings, read_variables};
use weft_units::{ByteCount, UnknownName};

use crate::errno::{Errno, Outcome};

/// The allowed values, bytes. Less than the longest packet of a neighbour would hold nothing; more would limit nothing.
const HELD: RangeInclusive<u64> = 64 << 10..=1 << 40;

/// Limits of out-of-order payload that the device holds for peers. `None` is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldSettings {
    /// Maximum for all peers together, bytes.
    pub bytes: Option<ByteCount>,
    /// Maximum from one peer's address, bytes.
    pub bytes_per_peer: Option<ByteCount>,
}

impl HeldSettings {
    /// Their keys in files. In the environment `held-bytes` is `WEFT_HELD_BYTES`.
    pub const KEYS: [&'static str; 2] = ["held-bytes", "held-bytes-per-peer"];

    /// Sets one value.
    ///
    /// # Errors
    /// The key is none of [`Self::KEYS`], or the value is not allowed.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let refused = |reason| SettingError { name: key.into(), value: value.into(), reason };
        let field = match key {
            "held-bytes" => &mut self.bytes,
            "held-bytes-per-peer" => &mut self.bytes_per_peer,
            _ => return Err(refused(UnknownName::new("setting", key, &Self::KEYS).into())),
        };
        let bytes = value.trim().parse().ok().filter(|bytes: &ByteCount| HELD.contains(&bytes.0));
        let reason = SettingFault::Expected("a size from 64KiB to 1024GiB, such as 256MiB");
        *field = Some(bytes.ok_or_else(|| refused(reason))?);
        Ok(())
    }

    fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        read_variables(&Self::KEYS, variable, |key, value| settings.set(key, value))?;
        Ok(settings)
    }

    /// Returns these settings, with those of `others` in place of missing ones.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            bytes: self.bytes.or(others.bytes),
            bytes_per_peer: self.bytes_per_peer.or(others.bytes_per_peer),
        }
    }

    /// Returns the limits with these values in place of their own.
    pub(crate) fn apply(self, limits: Limits) -> Limits {
        Limits {
            held_bytes: self.bytes.map_or(limits.held_bytes, |bytes| bytes.0),
            held_bytes_per_peer: self
                .bytes_per_peer
                .map_or(limits.held_bytes_per_peer, |bytes| bytes.0),
            ..limits
        }
    }
}

/// Returns the limits of payload held for peers, in rows of name and value.
pub(crate) fn describe_held(limits: &Limits) -> Vec<(String, String)> {
    let rows =
        [("held bytes", limits.held_bytes), ("held bytes per peer", limits.held_bytes_per_peer)];
    rows.map(|(name, bytes)| (name.to_owned(), ByteCount(bytes).to_string())).into()
}

const SAME_HOST: &str = "WEFT_SAME_HOST";
const PIN_FLOW_LABEL: &str = "WEFT_PIN_FLOW_LABEL";

/// The settings of the environment; `None` for a variable that is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) transport: TransportSettings,
    pub(crate) encryption: EncryptionSettings,
    pub(crate) held: HeldSettings,
    /// `true` if programs of one host may reach each other without the network.
    pub(crate) same_host: Option<bool>,
    /// `true` if the flow label of an address vector pins its queue pair to one source port.
    pub(crate) pin_flow_label: Option<bool>,
}

impl Settings {
    /// Returns the settings of this process's environment.
    ///
    /// # Errors
    /// `EINVAL`: a value is not allowed; standard error names it, once.
    pub(crate) fn from_environment() -> Outcome<Self> {
        static SETTINGS: LazyLock<Option<Settings>> = LazyLock::new(|| {
            // The program gets only an error number, which does not name the cause.
            let refused = |error| eprintln!("weft: {error}");
            Settings::read(|name| std::env::var_os(name)).map_err(refused).ok()
        });
        SETTINGS.clone().ok_or(Errno(libc::EINVAL))
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingError> {
        let transport = TransportSettings::from_environment(&variable)?;
        let encryption = EncryptionSettings::from_environment(&variable)?;
        let held = HeldSettings::from_environment(&variable)?;
        let [same_host, pin_flow_label] = [SAME_HOST, PIN_FLOW_LABEL].map(|name| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.map(|value| switch(name, &value)).transpose()
        });
        let (same_host, pin_flow_label) = (same_host?, pin_flow_label?);
        Ok(Self { transport, encryption, held, same_host, pin_flow_label })
    }
}

fn switch(name: &str, value: &OsStr) -> Result<bool, SettingError> {
    let value = value.to_string_lossy().into_owned();
    match value.trim() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => {
            let reason = SettingFault::Expected("on or off");
            Err(SettingError { name: name.into(), value, reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Settings, String> {
        let variable = |asked: &str| (asked == name).then(|| value.into());
        Settings::read(variable).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_are_read_and_invalid_values_refused() {
        assert_eq!(read(SAME_HOST, ""), Ok(Settings::default()));
        for (value, same_host) in [("on", true), (" off ", false)] {
            assert_eq!(
                read(SAME_HOST, value).map(|settings| settings.same_host),
                Ok(Some(same_host))
            );
        }
        assert_eq!(read(PIN_FLOW_LABEL, "on").unwrap().pin_flow_label, Some(true));
        let why = "WEFT_SAME_HOST=no: not on or off".to_owned();
        assert_eq!(read(SAME_HOST, "no"), Err(why));
        let held = read("WEFT_HELD_BYTES_PER_PEER", "2MiB").unwrap().held.apply(Limits::default());
        let default = Limits::default().held_bytes;
        assert_eq!((held.held_bytes, held.held_bytes_per_peer), (default, 2 << 20));
        for value in ["2", "63KiB", "-1MiB", "9999GiB"] {
            assert!(read("WEFT_HELD_BYTES", value).unwrap_err().contains("64KiB to"), "{value}");
        }
        assert!(read("WEFT_PROFILE", "stelar").unwrap_err().contains("stellar"));
    }
}
