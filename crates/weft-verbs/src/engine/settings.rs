//! What the environment says of the network: how long packets are (`WEFT_MTU`), how many paths a connection has
//! (`WEFT_PATHS`), how fast the host's link is (`WEFT_LINE_RATE`), whether programs of one host use it (`WEFT_SAME_HOST`).
//! A variable that is empty says nothing.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use weft_units::BitRate;

use crate::device::WIDEST_MTU;
use crate::errno::{Errno, Outcome};

const MTU: &str = "WEFT_MTU";
const PATHS: &str = "WEFT_PATHS";
const LINE_RATE: &str = "WEFT_LINE_RATE";
const SAME_HOST: &str = "WEFT_SAME_HOST";

/// Bytes of the shortest packet that every network carries (IPv6, RFC 8200, section 5), and of the longest.
const MTUS: RangeInclusive<u32> = 1_280..=WIDEST_MTU;
/// Each path is a socket.
pub(super) const MOST_PATHS: u16 = 4_096;
/// Bits a second. The time that a burst takes counts as a round trip's, which is a second at most.
const RATES: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

/// What was said; nothing where a variable is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Bytes of a packet, with its IP header.
    pub(super) mtu: Option<u32>,
    pub(super) paths: Option<u16>,
    pub(super) line_rate: Option<BitRate>,
    /// Whether programs of one host may reach each other without the network.
    pub(super) same_host: Option<bool>,
}

/// Why a variable's value cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value}: not {allowed}")]
struct Refused {
    name: &'static str,
    value: String,
    allowed: String,
}

impl Settings {
    /// What this process's environment says.
    ///
    /// # Errors
    /// `EINVAL`: a value cannot be; standard error says which, once.
    pub(super) fn from_environment() -> Outcome<Self> {
        static SETTINGS: LazyLock<Option<Settings>> = LazyLock::new(|| {
            // A program is told a number only, and would not know what of.
            let refused = |error| eprintln!("weft: {error}");
            Settings::read(std::env::var_os).map_err(refused).ok()
        });
        SETTINGS.ok_or(Errno(libc::EINVAL))
    }

    fn read(variable: impl Fn(&'static str) -> Option<OsString>) -> Result<Self, Refused> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let read = |name| set(name).map(|value| (name, value.to_string_lossy().into_owned()));
        Ok(Self {
            mtu: read(MTU).map(|said| within(said, MTUS, "bytes")).transpose()?,
            paths: read(PATHS).map(|said| within(said, 1..=MOST_PATHS, "paths")).transpose()?,
            line_rate: read(LINE_RATE).map(rate).transpose()?,
            same_host: read(SAME_HOST).map(switch).transpose()?,
        })
    }
}

fn within<N>(
    (name, value): (&'static str, String),
    range: RangeInclusive<N>,
    of: &str,
) -> Result<N, Refused>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let number = value.trim().parse().ok().filter(|number| range.contains(number));
    let allowed = || format!("a number of {of} from {} to {}", range.start(), range.end());
    number.ok_or_else(|| Refused { name, value, allowed: allowed() })
}

fn rate((name, value): (&'static str, String)) -> Result<BitRate, Refused> {
    let rate = value.parse().ok().filter(|rate: &BitRate| RATES.contains(&rate.as_bps()));
    let allowed = || "a rate from 1Mbps to 1000Gbps, such as 200Mbps".to_owned();
    rate.ok_or_else(|| Refused { name, value, allowed: allowed() })
}

fn switch((name, value): (&'static str, String)) -> Result<bool, Refused> {
    match value.trim() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Refused { name, value, allowed: "on or off".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: &[(&str, &str)]) -> Result<Settings, String> {
        let value = |name| said.iter().find(|(other, _)| *other == name);
        Settings::read(|name| value(name).map(|(_, value)| value.into()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_set_or_empty_says_nothing() {
        assert_eq!(read(&[]), Ok(Settings::default()));
        assert_eq!(read(&[(MTU, ""), (PATHS, ""), (LINE_RATE, "")]), Ok(Settings::default()));
        let set = [(MTU, "9000"), (PATHS, " 8 "), (LINE_RATE, "200Mbps"), (SAME_HOST, "off")];
        let line_rate = BitRate::bps(200_000_000);
        let same_host = Some(false);
        let all = Settings { mtu: Some(9_000), paths: Some(8), line_rate, same_host };
        assert_eq!(read(&set), Ok(all));
    }

    #[test]
    fn what_cannot_be_is_named_with_what_can() {
        let refusals = [
            (MTU, "jumbo", "WEFT_MTU=jumbo: not a number of bytes from 1280 to 9000"),
            (MTU, "9216", "WEFT_MTU=9216: not a number of bytes from 1280 to 9000"),
            (MTU, "-1", "WEFT_MTU=-1: not a number of bytes from 1280 to 9000"),
            (PATHS, "0", "WEFT_PATHS=0: not a number of paths from 1 to 4096"),
            (PATHS, "4097", "WEFT_PATHS=4097: not a number of paths from 1 to 4096"),
            (PATHS, "8 9", "WEFT_PATHS=8 9: not a number of paths from 1 to 4096"),
            (SAME_HOST, "no", "WEFT_SAME_HOST=no: not on or off"),
        ];
        for (name, value, why) in refusals {
            assert_eq!(read(&[(name, value)]), Err(why.to_owned()));
        }
        for value in ["fast", "200", "0bps", "999Kbps", "1001Gbps"] {
            let why = format!(
                "WEFT_LINE_RATE={value}: not a rate from 1Mbps to 1000Gbps, such as 200Mbps"
            );
            assert_eq!(read(&[(LINE_RATE, value)]), Err(why));
        }
    }
}
