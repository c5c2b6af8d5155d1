//! GC: removes the ports, addresses and interfaces of containers that the runtime does not list any more.

use std::path::PathBuf;

use crate::config::Config;
use crate::environment::Endpoint;
use crate::failure::Failure;
use crate::ipam::Ipam;
use crate::overlay::Overlay;

use super::del::remove_interface;

/// Removes what is left of containers.
///
/// # Errors
/// The first error; the other ports are removed all the same.
pub(crate) fn gc(config: &Config, folders: &[PathBuf]) -> Result<(), Failure> {
    let (valid, ipam) = (config.valid()?, Ipam::of(config, folders)?);
    let overlay = Overlay::at(config.control());
    let ports = overlay.ports(&config.name)?;
    let left = ports.into_iter().map(|(endpoint, _)| endpoint).filter(|it| !valid.contains(it));
    let done: Vec<_> =
        left.map(|endpoint| remove(config, &overlay, ipam.as_ref(), &endpoint)).collect();
    // The plugin would free the addresses of a port that could not be removed.
    done.into_iter().collect::<Result<(), _>>()?;
    // It has addresses of containers that have no port, too.
    ipam.map_or(Ok(()), |ipam| ipam.call_newest("GC"))
}

fn remove(
    config: &Config,
    overlay: &Overlay,
    ipam: Option<&Ipam>,
    endpoint: &Endpoint,
) -> Result<(), Failure> {
    let port = overlay.remove(&config.name, endpoint)?;
    ipam.map_or(Ok(()), |ipam| ipam.del_of(endpoint))?;
    remove_interface(endpoint, None, port.as_ref(), &[])
}
