//! The check of the machine's privileges, programs and kernel, which a lab requires.

use std::fs;

use serde::Serialize;

use crate::build::hash_seed_supported;
use crate::tool::{ETHTOOL, IP, NFT, TC, Tool};
use crate::{LabError, frr};

/// Bit numbers of Linux capabilities (`linux/capability.h`).
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// A requirement of a lab, its state, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Requirement {
    /// The name of the requirement.
    pub name: String,
    /// `true` if this machine meets it.
    pub met: bool,
    /// `true` if no lab can come up without it.
    pub essential: bool,
    /// The remedy if it is not met.
    pub fix: String,
}

/// Returns all requirements of a lab, in the order in which they are checked.
pub fn requirements() -> Vec<Requirement> {
    let mut all = vec![Requirement {
        name: "network namespaces (root)".into(),
        met: is_privileged(),
        essential: true,
        fix: "run with sudo".into(),
    }];
    all.extend([IP, TC, NFT, ETHTOOL].map(|Tool { name, package }| Requirement {
        name: name.into(),
        met: Tool { name, package }.is_installed(),
        essential: true,
        fix: format!("apt-get install {package}"),
    }));
    all.push(Requirement {
        name: "FRR".into(),
        met: frr::is_installed(),
        essential: false,
        fix: "apt-get install frr".into(),
    });
    all.push(Requirement {
        name: "settable multipath hash seed".into(),
        met: hash_seed_supported(),
        essential: false,
        fix: "Linux 6.11 or newer".into(),
    });
    all
}

/// Checks the essential requirements.
///
/// # Errors
/// Returns `NeedsRoot` or `MissingTool` for the first that is not met.
pub(crate) fn check() -> Result<(), LabError> {
    if !is_privileged() {
        return Err(LabError::NeedsRoot);
    }
    match [IP, TC, NFT, ETHTOOL].into_iter().find(|tool| !tool.is_installed()) {
        None => Ok(()),
        Some(Tool { name, package }) => Err(LabError::MissingTool { tool: name, package }),
    }
}

/// Returns `true` if the process has the capabilities for network namespaces, which root in a container may lack.
fn is_privileged() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_capabilities(&status)
        .is_some_and(|bits| [CAP_NET_ADMIN, CAP_SYS_ADMIN].iter().all(|bit| bits >> bit & 1 == 1))
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_process_status() {
        let status = "Name:\tweft\nCapEff:\t0000000000201000\n";
        assert_eq!(effective_capabilities(status), Some(1 << 21 | 1 << 12));
        assert_eq!(effective_capabilities("Name:\tweft\n"), None);
    }

    #[test]
    fn every_requirement_has_a_remedy() {
        assert!(requirements().iter().all(|requirement| !requirement.fix.is_empty()));
    }
}
