//! The transport's knobs on the command line: a profile, the four that matter most, and `--set` for
//! all others.

use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use weft_agent::AgentConfig;
use weft_transport::{Profile, TransportConfig, congestion, path};

use crate::overrides;

/// Where a configuration starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Start {
    /// What the agent does by itself.
    #[default]
    Ethernet,
    /// The same on one path.
    Single,
    /// A published system.
    Published(Profile),
}

static STARTS: LazyLock<Vec<Start>> = LazyLock::new(|| {
    let published = Profile::ALL.iter().copied().map(Start::Published);
    [Start::Ethernet, Start::Single].into_iter().chain(published).collect()
});

impl ValueEnum for Start {
    fn value_variants<'a>() -> &'a [Self] {
        &STARTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, about) = match self {
            Self::Ethernet => {
                ("ethernet", "for real packets on an Ethernet of 1500 bytes: bursts over the paths")
            }
            Self::Single => ("single", "likewise on one path, as the fabric's hash chooses it"),
            Self::Published(profile) => (profile.name(), profile.about()),
        };
        Some(PossibleValue::new(name).help(about))
    }
}

/// How connections behave.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Transport")]
pub(crate) struct TransportOptions {
    /// Where the other values start from
    #[arg(long, value_enum, default_value_t)]
    pub(crate) profile: Start,
    /// Paths (source ports) of each connection
    #[arg(long)]
    pub(crate) paths: Option<u16>,
    /// How the path of a packet is chosen: `weft list policies`
    #[arg(long)]
    policy: Option<path::Kind>,
    /// How much may be in flight: `weft list congestion`
    #[arg(long)]
    congestion: Option<congestion::Kind>,
    /// Largest payload of one packet, bytes
    #[arg(long)]
    mtu: Option<u16>,
    /// Any other value, such as retransmission.rto_min=2ms; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl TransportOptions {
    /// The configuration, checked.
    ///
    /// # Errors
    /// An unknown key with the nearest known one, or a value out of its range.
    pub(crate) fn config(&self) -> Result<TransportConfig> {
        let mut config = match self.profile {
            Start::Ethernet => AgentConfig::ethernet(self.paths.unwrap_or(4)),
            Start::Single => single_path(),
            Start::Published(profile) => profile.config(),
        };
        if self.profile == Start::Single && self.paths.is_some_and(|paths| paths != 1) {
            bail!("--profile single has one path; leave --paths out");
        }
        config.paths = self.paths.unwrap_or(config.paths);
        config.policy = self.policy.unwrap_or(config.policy);
        config.congestion = self.congestion.unwrap_or(config.congestion);
        config.mtu = self.mtu.unwrap_or(config.mtu);
        let config = overrides::apply(&config, &self.set)?;
        config.validate().context("the transport's configuration cannot be used")?;
        Ok(config)
    }
}

/// The same as on several paths, but for the paths: what a comparison needs.
pub(crate) fn single_path() -> TransportConfig {
    TransportConfig { policy: path::Kind::Single, ..AgentConfig::ethernet(1) }
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
        assert_eq!(config.retransmission.rto_min, weft_units::Duration::from_millis(2));
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        let options = TransportOptions { set: vec!["ack_every=0".into()], ..Default::default() };
        let error = format!("{:#}", options.config().unwrap_err());
        assert!(error.ends_with("ack_every is 0, expected 1 to 256 packets"), "{error}");
    }
}
