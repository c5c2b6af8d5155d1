//! Options of the transport: a profile, the four most important settings, and `--set` for
//! all others.

use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use weft_transport::{TransportConfig, congestion, path};
use weft_udp::{BaseProfile, TransportSettings};
use weft_units::Duration;

use crate::overrides;

/// Number of a connection's paths, unless a published profile or an option sets it.
const PATHS: u16 = 4;

/// A profile that a configuration starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start(BaseProfile);

static STARTS: LazyLock<Vec<Start>> =
    LazyLock::new(|| BaseProfile::all().iter().copied().map(Start).collect());

impl ValueEnum for Start {
    fn value_variants<'a>() -> &'a [Self] {
        &STARTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.about()))
    }
}

/// Options of connections.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Transport")]
pub(crate) struct TransportOptions {
    /// The profile that the other options change
    #[arg(long, value_enum, default_value_t)]
    pub(crate) profile: Start,
    /// Paths (source ports) of each connection
    #[arg(long)]
    pub(crate) paths: Option<u16>,
    /// The policy that chooses the path of each packet: `weft list policies`
    #[arg(long)]
    policy: Option<path::Kind>,
    /// The congestion control, which limits the bytes in flight: `weft list congestion`
    #[arg(long)]
    congestion: Option<congestion::Kind>,
    /// Shortest retransmission timeout, such as 4ms
    #[arg(long)]
    rto: Option<Duration>,
    /// Largest payload of one packet, bytes
    #[arg(long)]
    mtu: Option<u16>,
    /// Any other value, such as retransmission.rto_min=2ms; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl TransportOptions {
    /// Returns the name of the profile.
    pub(crate) fn profile_name(&self) -> &'static str {
        self.profile.0.name()
    }

    /// Returns the checked configuration.
    ///
    /// # Errors
    /// Returns an error if a key is unknown (the error has the nearest known one), or a value is out of its range.
    pub(crate) fn config(&self) -> Result<TransportConfig> {
        if self.profile.0 == BaseProfile::Single && self.paths.is_some_and(|paths| paths != 1) {
            bail!("--profile single has one path; leave --paths out");
        }
        let settings = TransportSettings {
            profile: Some(self.profile.0),
            policy: self.policy,
            congestion: self.congestion,
            paths: self.paths,
            rto: self.rto,
            ..TransportSettings::default()
        };
        let mut config = settings.config(PATHS);
        config.mtu = self.mtu.unwrap_or(config.mtu);
        let config = overrides::apply(&config, &self.set)?;
        config.validate().context("the transport's configuration cannot be used")?;
        config.congestion.on_real_packets()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_valid() {
        for &profile in Start::value_variants() {
            let options = TransportOptions { profile, ..TransportOptions::default() };
            assert!(options.config().is_ok(), "{profile:?}");
        }
    }

    #[test]
    fn options_override_the_profile_and_set_overrides_both() {
        let options = TransportOptions {
            paths: Some(8),
            policy: Some(path::Kind::Oblivious),
            set: vec!["policy=dwrr".into(), "retransmission.rto_min=2ms".into()],
            ..TransportOptions::default()
        };
        let config = options.config().unwrap();
        assert_eq!((config.paths, config.policy), (8, path::Kind::Dwrr));
        assert_eq!(config.retransmission.rto_min, Duration::from_millis(2));
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        let options = TransportOptions { set: vec!["ack_every=0".into()], ..Default::default() };
        let error = format!("{:#}", options.config().unwrap_err());
        assert!(error.ends_with("ack_every is 0, expected 1 to 256 packets"), "{error}");
    }
}
