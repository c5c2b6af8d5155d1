//! Rate limits of a lab's links.

use std::str::FromStr;

use anyhow::{Result, bail};
use weft_lab::{Direction, Impairment, Lab, LabSpec};
use weft_units::BitRate;

#[derive(Debug, clap::Args)]
pub(super) struct Rates {
    /// Rate of every link, such as 100Mbps [default: the rate that the machine carries]
    #[arg(long)]
    rate: Option<BitRate>,
    /// Rates of single spines' links
    #[arg(long, value_name = "SPINE=RATE,…", value_delimiter = ',')]
    spine_rate: Vec<SpineRate>,
}

/// A spine and its rate, such as `4=10Mbps`.
#[derive(Clone, Copy, Debug)]
struct SpineRate {
    spine: usize,
    rate: BitRate,
}

impl FromStr for SpineRate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a spine and its rate, such as 4=10Mbps");
        let (spine, rate) = text.split_once('=').ok_or_else(wrong)?;
        let spine = spine.trim().trim_start_matches('s').parse().map_err(|_| wrong())?;
        Ok(Self { spine, rate: rate.parse().map_err(|_| wrong())? })
    }
}

impl Rates {
    /// Checks that the lab will have every spine that is named.
    ///
    /// # Errors
    /// Returns an error that names the first other spine.
    pub(super) fn check(&self, spec: &LabSpec) -> Result<()> {
        match self.spine_rate.iter().find(|one| one.spine >= spec.spines) {
            None => Ok(()),
            Some(SpineRate { spine, .. }) => {
                bail!("--spine-rate {spine}: the lab has spines 0 to {}", spec.spines - 1)
            }
        }
    }

    /// Sets the rates of a lab's links, in both directions.
    pub(super) fn apply(&self, lab: &mut Lab) -> Result<()> {
        let fabric = lab.fabric().clone();
        for (index, link) in fabric.links.iter().enumerate() {
            let spine = index.checked_sub(fabric.hosts()).map(|uplink| uplink % fabric.spines());
            let own = self.spine_rate.iter().find(|one| Some(one.spine) == spine);
            if let Some(rate) = own.map(|one| one.rate).or(self.rate) {
                let limited = Impairment { rate: Some(rate), ..Impairment::default() };
                lab.impair(&link.name, Direction::Both, &limited)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spine_is_named_by_its_number_or_its_name() {
        for text in ["4=10Mbps", "s4=10Mbps"] {
            let SpineRate { spine, rate } = text.parse().unwrap();
            assert_eq!((spine, rate.as_bps()), (4, 10_000_000));
        }
        for text in ["4", "4=fast", "x=10Mbps", "=10Mbps"] {
            assert!(text.parse::<SpineRate>().is_err(), "{text} passed");
        }
    }
}
