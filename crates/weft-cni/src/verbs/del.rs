//! DEL: removes a container's port, frees its addresses, and removes its interface. It succeeds again, and after the end
//! of the container's namespace.

use std::path::Path;

use weft_vswitch::config::{Mac, Port};

use crate::call::Call;
use crate::container::Container;
use crate::environment::Endpoint;
use crate::failure::{Code, Failure};

/// Disconnects a container.
///
/// # Errors
/// Code 11 if the daemon does not answer: the port is still its tenant's, and the addresses stay reserved.
pub(crate) fn del(call: &Call) -> Result<(), Failure> {
    let port = call.overlay().remove(&call.config.name, &call.endpoint)?;
    if let Some(ipam) = call.ipam()? {
        ipam.del()?;
    }
    let namespace = call.namespace.as_deref();
    remove_interface(&call.endpoint, namespace, port.as_ref(), &macs_before(call))
}

/// Removes the interface of a port that was removed, wherever its namespace is named, if that is still there.
///
/// # Errors
/// Code 5: the system refuses.
pub(super) fn remove_interface(
    endpoint: &Endpoint,
    namespace: Option<&Path>,
    port: Option<&Port>,
    others: &[Mac],
) -> Result<(), Failure> {
    let of_port = port.and_then(|port| port.tap.as_ref()?.namespace.as_deref()).map(Path::new);
    let Some(namespace) = namespace.or(of_port).filter(|path| path.exists()) else { return Ok(()) };
    let macs: Vec<_> =
        port.map(|port| port.mac).into_iter().chain(others.iter().copied()).collect();
    match Container::at(namespace).remove(&endpoint.interface, &macs) {
        // It ended meanwhile, or its file is left without it.
        Err(gone) if gone.code == Code::UnknownContainer || !is_namespace(namespace) => Ok(()),
        done => done,
    }
}

/// Returns `false` for a file that a namespace has left when it ended.
fn is_namespace(file: &Path) -> bool {
    Container::at(file).observe("lo").is_ok()
}

/// Returns the Ethernet addresses that the interface had by the result of ADD.
fn macs_before(call: &Call) -> Vec<Mac> {
    let interfaces = call.config.previous.iter().flat_map(|result| &result.interfaces);
    let own = interfaces.filter(|it| it.name == call.endpoint.interface && !it.sandbox.is_empty());
    own.filter_map(|it| it.mac.parse().ok()).collect()
}
