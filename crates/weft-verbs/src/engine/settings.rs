//! Settings of the device in the environment: those of its transport, which all programs on real packets share
//! ([`TransportSettings`]), and whether programs of one host use the network (`WEFT_SAME_HOST`). A variable that is empty
//! says nothing.

use std::ffi::OsString;
use std::sync::LazyLock;

use weft_agent::{SettingError, TransportSettings};

use crate::errno::{Errno, Outcome};

const SAME_HOST: &str = "WEFT_SAME_HOST";

/// What was said; nothing where a variable is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) transport: TransportSettings,
    /// Whether programs of one host may reach each other without the network.
    pub(crate) same_host: Option<bool>,
}

impl Settings {
    /// Returns what this process's environment says.
    ///
    /// # Errors
    /// `EINVAL`: a value is not allowed; standard error says which, once.
    pub(crate) fn from_environment() -> Outcome<Self> {
        static SETTINGS: LazyLock<Option<Settings>> = LazyLock::new(|| {
            // A program is told a number only, and would not know what of.
            let refused = |error| eprintln!("weft: {error}");
            Settings::read(|name| std::env::var_os(name)).map_err(refused).ok()
        });
        SETTINGS.ok_or(Errno(libc::EINVAL))
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingError> {
        let transport = TransportSettings::from_environment(&variable)?;
        let same_host = variable(SAME_HOST).filter(|value| !value.is_empty());
        Ok(Self { transport, same_host: same_host.map(switch).transpose()? })
    }
}

fn switch(value: OsString) -> Result<bool, SettingError> {
    let value = value.to_string_lossy().into_owned();
    match value.trim() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(SettingError { name: SAME_HOST.into(), value, reason: "not on or off".into() }),
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
    fn neighbours_are_spoken_to_over_the_network_where_that_is_said() {
        assert_eq!(read(SAME_HOST, ""), Ok(Settings::default()));
        for (value, same_host) in [("on", true), (" off ", false)] {
            assert_eq!(
                read(SAME_HOST, value).map(|settings| settings.same_host),
                Ok(Some(same_host))
            );
        }
        let why = "WEFT_SAME_HOST=no: not on or off".to_owned();
        assert_eq!(read(SAME_HOST, "no"), Err(why));
        assert!(read("WEFT_PROFILE", "stelar").unwrap_err().contains("stellar"));
    }
}
