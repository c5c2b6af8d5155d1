//! STATUS: whether ADD can be served.

use std::path::PathBuf;

use crate::config::Config;
use crate::failure::{Code, Failure};
use crate::ipam::Ipam;
use crate::overlay::Overlay;

/// Checks that the daemon answers, that it has the network, and that the plugin for addresses is ready.
///
/// # Errors
/// Code 51 if the daemon does not answer: it carries the frames of present containers too. Code 50 if the network is
/// missing, and those of the plugin for addresses.
pub(crate) fn status(config: &Config, folders: &[PathBuf]) -> Result<(), Failure> {
    let vni = config.vni()?;
    let cut_off = |failure: Failure| match failure.code {
        Code::TryAgainLater => Failure { code: Code::NotConnected, ..failure },
        _ => Failure { code: Code::NotAvailable, ..failure },
    };
    let status = Overlay::at(config.control()).status().map_err(cut_off)?;
    if !status.networks.iter().any(|known| known.network.vni == vni) {
        let message = format!("the overlay's daemon has no network {vni}");
        let remedy = "add a `[[network]]` of this number to its configuration";
        return Err(Failure::new(Code::NotAvailable, message).with_details(remedy));
    }
    Ipam::of(config, folders)?.map_or(Ok(()), |ipam| ipam.call_newest("STATUS"))
}
