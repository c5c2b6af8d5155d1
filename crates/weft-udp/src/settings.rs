//! Settings of the transport of real packets: a profile, and values that replace those of the profile.
//! Programs read them from variables (`WEFT_PROFILE`), daemons from a file (`profile = "stellar"`),
//! commands from options; this module has the one table of keys and the one parser for all of them.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;
use std::{fmt, io};

use weft_seal::{ParseKeyError, UnknownMode};
use weft_transport::{Profile, Retransmission, TransportConfig, congestion, path};
use weft_units::{BitRate, Duration, UnknownName};

use crate::ethernet::ethernet;
use crate::sockets::Wire;

/// Permitted packet sizes, bytes: from the minimum that every network carries (IPv6, RFC 8200,
/// section 5) to a jumbo frame.
const MTUS: RangeInclusive<u32> = 1_280..=9_000;
/// Permitted numbers of paths. Each path is a socket.
const PATHS: RangeInclusive<u16> = 1..=4_096;
/// Permitted minimum retransmission timeouts, nanoseconds.
const RTOS: RangeInclusive<u64> = 1_000..=1_000_000_000;
/// Permitted rates, bits per second. Callers add the transmission time of a burst, 64 KB, to the base round-trip time,
/// which is at most 1 s: at the minimum rate it is 0.5 s.
const RATES: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

/// The configuration on which settings are based.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BaseProfile {
    /// [`AgentConfig::ethernet`](crate::AgentConfig::ethernet).
    #[default]
    Ethernet,
    /// [`AgentConfig::ethernet`](crate::AgentConfig::ethernet) on one path, chosen by the fabric's hash.
    Single,
    /// The profile of a published system.
    Published(Profile),
}

impl BaseProfile {
    /// Returns every profile.
    pub fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<BaseProfile>> = LazyLock::new(|| {
            let published = Profile::ALL.iter().copied().map(BaseProfile::Published);
            [BaseProfile::Ethernet, BaseProfile::Single].into_iter().chain(published).collect()
        });
        &ALL
    }

    /// Returns the profile's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Single => "single",
            Self::Published(profile) => profile.name(),
        }
    }

    /// Returns the profile's description in one line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Ethernet => {
                "for real packets on an Ethernet of 1500 bytes: bursts over the best paths, one window for all, RTO 4 ms"
            }
            Self::Single => "likewise on one path, as the fabric's hash chooses it",
            Self::Published(profile) => profile.about(),
        }
    }

    /// Returns the configuration for real packets. `paths` applies to [`Self::Ethernet`] only: [`Self::Single`] has one
    /// path, and a published system its own number.
    ///
    /// A published system's values of its own network (packet size, rate, round trip) are replaced
    /// by the host's; its path policy, congestion control, windows, acknowledgements and timeouts
    /// stay.
    pub fn config(self, paths: u16) -> TransportConfig {
        let host = ethernet(paths);
        match self {
            Self::Ethernet => host,
            Self::Single => TransportConfig { paths: 1, policy: path::Kind::Single, ..host },
            Self::Published(profile) => {
                let published = profile.config();
                let mtu = published.mtu.min(host.mtu);
                let TransportConfig { line_rate, base_rtt, .. } = host;
                TransportConfig { mtu, line_rate, base_rtt, ..published }
            }
        }
    }
}

impl fmt::Display for BaseProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for BaseProfile {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        static NAMES: LazyLock<Vec<&str>> =
            LazyLock::new(|| BaseProfile::all().iter().map(|profile| profile.name()).collect());
        let found = Self::all().iter().copied().find(|profile| profile.name() == name);
        found.ok_or_else(|| UnknownName::new("transport profile", name, &NAMES))
    }
}

/// The settings of the transport; `None` selects the value of the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportSettings {
    /// The profile.
    pub profile: Option<BaseProfile>,
    /// The path policy.
    pub policy: Option<path::Kind>,
    /// The congestion control.
    pub congestion: Option<congestion::Kind>,
    /// Number of paths of a connection.
    pub paths: Option<u16>,
    /// The minimum retransmission timeout.
    pub rto: Option<Duration>,
    /// Bytes of a packet with its IP header. The caller subtracts all headers from it.
    pub mtu: Option<u32>,
    /// Rate of the host's link.
    pub line_rate: Option<BitRate>,
    /// The way of datagrams to the interface, which the caller applies ([`Wire`]).
    pub wire: Option<Wire>,
}

/// The error of a setting that is refused.
#[derive(Debug, thiserror::Error)]
#[error("{name}={value}: {reason}")]
pub struct SettingError {
    /// The variable's or the key's name.
    pub name: String,
    /// The value.
    pub value: String,
    /// The reason, with the permitted values.
    pub reason: SettingFault,
}

/// The reason that a setting is refused.
#[derive(Debug, thiserror::Error)]
pub enum SettingFault {
    /// No setting, profile, policy, congestion control or cipher has the name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The congestion control works only in the simulator.
    #[error(transparent)]
    Telemetry(#[from] congestion::NeedsTelemetry),
    /// No mode of encryption has the name.
    #[error(transparent)]
    Mode(#[from] UnknownMode),
    /// The value is not a number, or it is outside the range.
    #[error("not a number of {of} from {min} to {max}")]
    Number {
        /// The unit.
        of: &'static str,
        /// The smallest permitted number.
        min: u32,
        /// The largest permitted number.
        max: u32,
    },
    /// The value is not of this kind.
    #[error("not {0}")]
    Expected(&'static str),
    /// The file that the setting names cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Others than the owner have permissions for a file with a secret.
    #[error("others can read it (mode {mode:03o}); chmod 600 {}", file.display())]
    Permissions {
        /// The permissions.
        mode: u32,
        /// The file.
        file: PathBuf,
    },
    /// The file holds no key.
    #[error(transparent)]
    Key(#[from] ParseKeyError),
    /// A line of the file holds no key.
    #[error("line {line}: {cause}")]
    KeyInLine {
        /// The number of the line, from 1.
        line: usize,
        /// The reason.
        cause: ParseKeyError,
    },
}

/// Calls `set` with the variable of each key that is set and not empty. The error names the
/// variable instead of the key.
///
/// # Errors
/// Those of `set`.
pub fn read_variables(
    keys: &[&str],
    variable: impl Fn(&str) -> Option<OsString>,
    mut set: impl FnMut(&str, &str) -> Result<(), SettingError>,
) -> Result<(), SettingError> {
    for key in keys {
        let name = TransportSettings::variable(key);
        let Some(value) = variable(&name).filter(|value| !value.is_empty()) else { continue };
        set(key, &value.to_string_lossy()).map_err(|error| SettingError { name, ..error })?;
    }
    Ok(())
}

impl TransportSettings {
    /// The keys in files. In the environment `line-rate` is `WEFT_LINE_RATE`.
    pub const KEYS: [&'static str; 8] =
        ["profile", "policy", "congestion", "paths", "rto", "mtu", "line-rate", "wire"];

    /// Returns the environment variable of a key.
    pub fn variable(key: &str) -> String {
        format!("WEFT_{}", key.replace('-', "_").to_uppercase())
    }

    /// Sets one value.
    ///
    /// # Errors
    /// The key is none of [`Self::KEYS`], or the value is not allowed.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        self.try_set(key, value.trim()).map_err(|reason| SettingError {
            name: key.to_owned(),
            value: value.to_owned(),
            reason,
        })
    }

    fn try_set(&mut self, key: &str, value: &str) -> Result<(), SettingFault> {
        match key {
            "profile" => self.profile = Some(value.parse()?),
            "policy" => self.policy = Some(value.parse()?),
            "congestion" => self.congestion = Some(congestion_control(value)?),
            "paths" => self.paths = Some(within(value, PATHS, "paths")?),
            "rto" => self.rto = Some(rto(value)?),
            "mtu" => self.mtu = Some(within(value, MTUS, "bytes")?),
            "line-rate" => self.line_rate = Some(rate(value)?),
            "wire" => self.wire = Some(value.parse()?),
            _ => return Err(UnknownName::new("setting", key, &Self::KEYS).into()),
        }
        Ok(())
    }

    /// Reads the variables of an environment. An empty variable sets nothing.
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
            profile: self.profile.or(others.profile),
            policy: self.policy.or(others.policy),
            congestion: self.congestion.or(others.congestion),
            paths: self.paths.or(others.paths),
            rto: self.rto.or(others.rto),
            mtu: self.mtu.or(others.mtu),
            line_rate: self.line_rate.or(others.line_rate),
            wire: self.wire.or(others.wire),
        }
    }

    /// Returns the configuration of these settings except `mtu` and `line_rate`, which the caller applies, since they
    /// depend on its headers and bursts. `paths` applies if neither the settings nor the profile has a number, as in
    /// [`BaseProfile::config`].
    pub fn config(&self, paths: u16) -> TransportConfig {
        // The policy of `ethernet` depends on the number.
        let paths = self.paths.unwrap_or(paths);
        let base = self.profile.unwrap_or_default().config(paths);
        let Retransmission { rto_min, rto_max, .. } = base.retransmission;
        let rto_min = self.rto.unwrap_or(rto_min);
        let retransmission =
            Retransmission { rto_min, rto_max: rto_max.max(rto_min), ..base.retransmission };
        TransportConfig {
            policy: self.policy.unwrap_or(base.policy),
            congestion: self.congestion.unwrap_or(base.congestion),
            paths: self.paths.unwrap_or(base.paths),
            retransmission,
            ..base
        }
    }

    /// Returns `config` as rows of name and value, the first of which is the profile of these settings.
    pub fn describe(&self, config: &TransportConfig) -> Vec<(String, String)> {
        let Retransmission { rto_min, rto_max, backoff, .. } = config.retransmission;
        let doubling = if backoff { ", doubling" } else { "" };
        let rows = [
            ("profile", self.profile.unwrap_or_default().to_string()),
            ("policy", config.policy.to_string()),
            ("congestion", config.congestion.to_string()),
            ("paths", config.paths.to_string()),
            ("packets a burst", config.spray_unit.to_string()),
            ("rto", format!("{rto_min} to {rto_max}{doubling}")),
            ("payload", format!("{} bytes", config.mtu)),
            ("line rate", config.line_rate.to_string()),
            ("base rtt", config.base_rtt.to_string()),
            ("wire", self.wire.unwrap_or_default().to_string()),
        ];
        rows.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Returns the profile of these settings and `config` in one line, such as `ethernet (rtt-groups, swift, 128
    /// paths)`.
    pub fn label(&self, config: &TransportConfig) -> String {
        let TransportConfig { policy, congestion, paths, .. } = config;
        let profile = self.profile.unwrap_or_default();
        format!("{profile} ({policy}, {congestion}, {paths} paths)")
    }
}

/// Parses the name of a congestion control that works with real packets.
///
/// # Errors
/// `Telemetry` for one that does not, `Unknown` with the names of those that do.
fn congestion_control(name: &str) -> Result<congestion::Kind, SettingFault> {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
        congestion::Kind::all_on_real_packets().map(congestion::Kind::name).collect()
    });
    match name.parse::<congestion::Kind>() {
        Ok(kind) => Ok(kind.on_real_packets()?),
        Err(_) => Err(UnknownName::new("congestion control", name, &NAMES).into()),
    }
}

/// Parses a number in a range.
///
/// # Errors
/// `Number` with the unit `of` and the range.
fn within<N>(value: &str, range: RangeInclusive<N>, of: &'static str) -> Result<N, SettingFault>
where
    N: Copy + FromStr + PartialOrd + Into<u32>,
{
    let number = value.parse().ok().filter(|number| range.contains(number));
    let [min, max] = [*range.start(), *range.end()].map(N::into);
    number.ok_or(SettingFault::Number { of, min, max })
}

fn rto(value: &str) -> Result<Duration, SettingFault> {
    let rto = value.parse().ok().filter(|rto: &Duration| RTOS.contains(&rto.as_nanos()));
    rto.ok_or(SettingFault::Expected("a time from 1us to 1s, such as 4ms"))
}

fn rate(value: &str) -> Result<BitRate, SettingFault> {
    let rate = value.parse().ok().filter(|rate: &BitRate| RATES.contains(&rate.as_bps()));
    rate.ok_or(SettingFault::Expected("a rate from 1Mbps to 1000Gbps, such as 200Mbps"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<TransportSettings, String> {
        let value = |name: &str| variables.iter().find(|(other, _)| *other == name);
        TransportSettings::from_environment(|name| value(name).map(|(_, value)| value.into()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_control_that_needs_telemetry_is_refused() {
        let error = read(&[("WEFT_CONGESTION", "hpcc")]).unwrap_err();
        let expected = "hpcc needs telemetry of switches, which only simulated ones write";
        assert!(error.contains("WEFT_CONGESTION") && error.contains(expected), "{error}");
        let error = read(&[("WEFT_CONGESTION", "hpc")]).unwrap_err();
        let known = "(known: fixed-window, stellar, swift, dctcp, dcqcn, timely, weft, mp-rdma, nscc, rccc)";
        assert!(error.ends_with(known), "{error}");
    }

    #[test]
    fn variables_that_are_not_set_or_empty_set_nothing() {
        assert_eq!(read(&[]), Ok(TransportSettings::default()));
        assert_eq!(read(&[("WEFT_MTU", ""), ("WEFT_PROFILE", "")]), read(&[]));
        let set = [
            ("WEFT_PROFILE", "stellar"),
            ("WEFT_POLICY", "round-robin"),
            ("WEFT_CONGESTION", "dctcp"),
            ("WEFT_PATHS", " 8 "),
            ("WEFT_RTO", "2ms"),
            ("WEFT_MTU", "9000"),
            ("WEFT_LINE_RATE", "200Mbps"),
            ("WEFT_WIRE", "af-xdp"),
        ];
        let all = TransportSettings {
            profile: Some(BaseProfile::Published(Profile::Stellar)),
            policy: Some(path::Kind::RoundRobin),
            congestion: Some(congestion::Kind::Dctcp),
            paths: Some(8),
            rto: Some(Duration::from_millis(2)),
            mtu: Some(9_000),
            line_rate: Some(BitRate::bps(200_000_000).unwrap()),
            wire: Some(Wire::AfXdp),
        };
        assert_eq!(read(&set), Ok(all));
        assert_eq!(TransportSettings::default().or(all), all);
    }

    #[test]
    fn an_invalid_value_is_refused_with_the_nearest_name_or_the_range() {
        let paths = "not a number of paths from 1 to 4096";
        let rates = "not a rate from 1Mbps to 1000Gbps, such as 200Mbps";
        let times = "not a time from 1us to 1s, such as 4ms";
        for (name, value, reason) in [
            ("WEFT_MTU", "jumbo", "not a number of bytes from 1280 to 9000"),
            ("WEFT_MTU", "9216", "not a number of bytes from 1280 to 9000"),
            ("WEFT_PATHS", "0", paths),
            ("WEFT_PATHS", "4097", paths),
            ("WEFT_PATHS", "8 9", paths),
            ("WEFT_LINE_RATE", "200", rates),
            ("WEFT_LINE_RATE", "1001Gbps", rates),
            ("WEFT_RTO", "4", times),
            ("WEFT_RTO", "2s", times),
            ("WEFT_PROFILE", "stelar", "did you mean \"stellar\"?"),
            ("WEFT_POLICY", "dwr", "did you mean \"dwrr\"?"),
            ("WEFT_CONGESTION", "swift2", "did you mean \"swift\"?"),
            ("WEFT_WIRE", "af-xpd", "did you mean \"af-xdp\"?"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
            assert!(error.contains(reason), "{error}");
        }
        let error = TransportSettings::default().set("profil", "stellar").unwrap_err().to_string();
        assert!(error.contains("did you mean \"profile\"?"), "{error}");
    }

    #[test]
    fn every_profile_is_found_by_its_name_and_valid_on_ethernet() {
        for &profile in BaseProfile::all() {
            assert_eq!(profile.name().parse(), Ok(profile));
            let settings = TransportSettings { profile: Some(profile), ..Default::default() };
            let config = settings.config(128);
            assert_eq!(config.validate(), Ok(()), "{profile}");
            assert!(config.mtu <= 1_440, "{profile}");
            assert_eq!(settings.describe(&config)[0].1, profile.name());
        }
    }

    #[test]
    fn settings_replace_the_profiles_values() {
        let mut settings = TransportSettings::default();
        assert_eq!(settings.config(4), ethernet(4));
        let many = TransportSettings { paths: Some(128), ..settings };
        assert_eq!(many.config(4), ethernet(128));
        for (key, value) in [("profile", "stellar"), ("paths", "16"), ("rto", "10ms")] {
            settings.set(key, value).unwrap();
        }
        let config = settings.config(4);
        assert_eq!((config.paths, config.policy), (16, path::Kind::Oblivious));
        let Retransmission { rto_min, rto_max, .. } = config.retransmission;
        assert_eq!((rto_min, rto_max), (Duration::from_millis(10), Duration::from_millis(10)));
        assert_eq!(settings.label(&config), "stellar (oblivious, stellar, 16 paths)");
    }
}
