//! Sources of tables: a running lab, the routers of a configuration, a file.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use weft_lab::Lab;
use weft_route::{Fabric, Installed};
use weft_steer::{Inventory, SteerConfig};
use weft_trial::routers_of;

/// A source of tables, one of three.
#[derive(Debug, clap::Args)]
pub(super) struct Source {
    /// A running lab
    #[arg(long, value_name = "NAME", visible_alias = "from-lab", conflicts_with_all = ["config", "installed"])]
    lab: Option<String>,
    /// The routers of a controller's configuration
    #[arg(long, value_name = "FILE", conflicts_with = "installed")]
    config: Option<PathBuf>,
    /// Tables in a file, TOML or JSON
    #[arg(long, value_name = "FILE")]
    installed: Option<PathBuf>,
}

impl Source {
    /// Returns the running routers of the source.
    ///
    /// # Errors
    /// Returns an error if the source is a file of tables, or if the lab or the configuration cannot be read.
    pub(super) fn inventory(&self) -> Result<Inventory> {
        match (&self.lab, &self.config) {
            (Some(lab), _) => Ok(routers_of(&Lab::open(lab)?)),
            (None, Some(config)) => Ok(weft_trial::inventory(&SteerConfig::read(config)?)?),
            (None, None) => bail!("which routers? --lab NAME or --config FILE"),
        }
    }

    /// Returns the installed tables.
    pub(super) fn installed(&self) -> Result<Installed> {
        let Some(path) = &self.installed else {
            if self.lab.is_none() && self.config.is_none() {
                bail!("whose tables? --lab NAME, --config FILE or --installed FILE");
            }
            return Ok(self.inventory()?.read_tables()?);
        };
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let is_json = text.trim_start().starts_with('{');
        if is_json {
            serde_json::from_str(&text).with_context(|| format!("{} is no tables", path.display()))
        } else {
            toml::from_str(&text).with_context(|| format!("{} is no tables", path.display()))
        }
    }

    /// Returns the fabric that the tables describe.
    pub(super) fn fabric(&self) -> Result<Fabric> {
        Ok(Fabric::new(self.installed()?)?)
    }
}
