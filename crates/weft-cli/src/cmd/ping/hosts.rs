//! Hosts that ping each other, and the ToR above each.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use serde::Deserialize;
use weft_units::unknown_name;

use super::address;

/// A host of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// The name that the user wrote.
    pub(super) name: String,
    pub(super) at: SocketAddr,
    /// The ToR's name; empty without a file.
    pub(super) tor: String,
}

/// All hosts, ToR after ToR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hosts(pub(super) Vec<Host>);

/// The file of hosts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::cmd) struct File {
    /// The hosts below each ToR, by its name: names or addresses, each with a port if it is not the default.
    tor: BTreeMap<String, Vec<String>>,
}

impl Hosts {
    /// Returns the hosts of these names.
    ///
    /// # Errors
    /// Returns an error if a name has no address, a host is named twice, or there are fewer than two.
    pub(super) fn of(names: &[String]) -> Result<Self> {
        Self::resolve(names.iter().map(|name| (String::new(), name.as_str())))
    }

    /// Returns the hosts of a file, of all its ToRs or of some.
    ///
    /// # Errors
    /// As [`of`](Self::of); also if the file cannot be read or has no such ToR.
    pub(super) fn read(file: &Path, tors: &[String]) -> Result<Self> {
        let shown = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
        Self::parse(&text, tors).with_context(|| format!("in {shown}"))
    }

    fn parse(text: &str, tors: &[String]) -> Result<Self> {
        let found: File = toml::from_str(text)?;
        let known: Vec<&str> = found.tor.keys().map(String::as_str).collect();
        if let Some(unknown) = tors.iter().find(|tor| !found.tor.contains_key(*tor)) {
            bail!(unknown_name("ToR", unknown, &known));
        }
        let wanted = |tor: &String| tors.is_empty() || tors.contains(tor);
        let of_tor = |(tor, hosts): (&String, &'_ Vec<String>)| {
            let hosts: Vec<_> = hosts.iter().map(|host| (tor.clone(), host.clone())).collect();
            hosts
        };
        let all: Vec<_> =
            found.tor.iter().filter(|(tor, _)| wanted(tor)).flat_map(of_tor).collect();
        Self::resolve(all.iter().map(|(tor, name)| (tor.clone(), name.as_str())))
    }

    fn resolve<'a>(named: impl Iterator<Item = (String, &'a str)>) -> Result<Self> {
        let mut hosts: Vec<Host> = Vec::new();
        for (tor, name) in named {
            let host = Host { name: name.to_owned(), at: address(name)?, tor };
            if let Some(other) = hosts.iter().find(|other| other.at == host.at) {
                bail!("{} and {} are one host ({})", other.name, host.name, host.at);
            }
            hosts.push(host);
        }
        if hosts.len() < 2 {
            bail!("{} of at least two hosts that ping each other", hosts.len());
        }
        Ok(Self(hosts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, tors: &[&str]) -> Result<Hosts> {
        let tors: Vec<String> = tors.iter().map(|&tor| tor.into()).collect();
        Hosts::parse(text, &tors)
    }

    const FILE: &str = "[tor]\nb = ['10.0.1.1']\na = ['10.0.0.1', '10.0.0.2:99']\n";

    #[test]
    fn hosts_come_tor_after_tor() {
        let hosts = parse(FILE, &[]).unwrap().0;
        let found: Vec<_> = hosts.iter().map(|host| (host.tor.as_str(), host.at.port())).collect();
        assert_eq!(found, [("a", 4792), ("a", 99), ("b", 4792)]);
        assert_eq!(parse(FILE, &["a"]).unwrap().0.len(), 2);
    }

    #[test]
    fn errors_name_the_fault() {
        for (text, tors, want) in [
            (FILE, &["c"][..], "\"c\""),
            (FILE, &["b"], "at least two"),
            ("[tor]\na = ['10.0.0.1', '10.0.0.1']", &[], "one host"),
            ("[rack]\na = []", &[], "rack"),
        ] {
            let error = format!("{:#}", parse(text, tors).unwrap_err());
            assert!(error.contains(want), "{error}");
        }
        let error = Hosts::read(Path::new("/nowhere"), &[]).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere"));
    }
}
