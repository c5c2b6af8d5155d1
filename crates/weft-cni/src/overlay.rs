//! The overlay's daemon, as a plugin needs it: ports of containers are added, removed and listed.

use std::path::PathBuf;
use std::time::Duration;

use weft_vswitch::Status;
use weft_vswitch::config::Port;
use weft_vswitch::control::{Answer, Request, RequestError, send_within};

use crate::environment::Endpoint;
use crate::failure::{Code, Failure};

/// The longest time that the daemon is waited for.
const LIMIT: Duration = Duration::from_secs(20);

/// The first part of the names of containers' ports.
const PREFIX: &str = "cni";

/// The daemon at a control socket.
#[derive(Debug)]
pub(crate) struct Overlay(PathBuf);

/// Returns the name of a container's port. None of the three parts contains a slash.
pub(crate) fn port_name(network: &str, Endpoint { container, interface }: &Endpoint) -> String {
    format!("{PREFIX}/{network}/{container}/{interface}")
}

/// Returns the container's interface that a port of a network belongs to; `None` for other ports.
fn endpoint_of(network: &str, port: &str) -> Option<Endpoint> {
    let mut parts = port.split('/');
    let own = parts.next() == Some(PREFIX) && parts.next() == Some(network);
    let (container, interface) = (parts.next()?, parts.next()?);
    let endpoint = Endpoint::new(container.into(), interface.into()).ok()?;
    (own && parts.next().is_none()).then_some(endpoint)
}

impl Overlay {
    pub(crate) fn at(control: PathBuf) -> Self {
        Self(control)
    }

    /// Returns the daemon's status.
    ///
    /// # Errors
    /// Code 11 if it does not answer, 100 if it refuses.
    pub(crate) fn status(&self) -> Result<Status, Failure> {
        match self.send(&Request::Status)? {
            Answer::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the ports that a network's containers have, those among them whose interface is gone too.
    ///
    /// # Errors
    /// Code 11 if the daemon does not answer, 100 if it refuses.
    pub(crate) fn ports(&self, network: &str) -> Result<Vec<(Endpoint, Port)>, Failure> {
        let changes = match self.send(&Request::Changes)? {
            Answer::Changes(changes) => changes,
            other => return Err(unexpected(&other)),
        };
        let port = |request| match request {
            Request::AddPort { port } => Some((endpoint_of(network, &port.name)?, *port)),
            _ => None,
        };
        Ok(changes.into_iter().filter_map(port).collect())
    }

    /// Returns the port of a container, if it has one.
    ///
    /// # Errors
    /// Code 11 if the daemon does not answer, 100 if it refuses.
    pub(crate) fn port(&self, network: &str, of: &Endpoint) -> Result<Option<Port>, Failure> {
        let mut ports = self.ports(network)?.into_iter();
        Ok(ports.find(|(endpoint, _)| endpoint == of).map(|(_, port)| port))
    }

    /// Adds a port.
    ///
    /// # Errors
    /// Code 11 if the daemon does not answer, 100 if it refuses.
    pub(crate) fn add(&self, port: Port) -> Result<(), Failure> {
        self.send(&Request::AddPort { port: port.into() }).map(drop)
    }

    /// Removes a container's port, and returns it; `None` if there was none.
    ///
    /// # Errors
    /// Code 11 if the daemon does not answer, 100 if it refuses.
    pub(crate) fn remove(&self, network: &str, of: &Endpoint) -> Result<Option<Port>, Failure> {
        let Some(port) = self.port(network, of)? else { return Ok(None) };
        match self.send(&Request::RemovePort { name: port.name.clone() }) {
            // Another call has removed it meanwhile.
            Err(refused) if refused.code == Code::Refused && self.port(network, of)?.is_some() => {
                Err(refused)
            }
            Err(failure) if failure.code != Code::Refused => Err(failure),
            _ => Ok(Some(port)),
        }
    }

    fn send(&self, request: &Request) -> Result<Answer, Failure> {
        match send_within(&self.0, request, Some(LIMIT)) {
            Ok(Answer::Refused(why)) => {
                let message = format!("the overlay's daemon refuses: {why}");
                Err(Failure::new(Code::Refused, message))
            }
            Ok(answer) => Ok(answer),
            Err(error) => Err(no_answer(&error)),
        }
    }
}

fn no_answer(error: &RequestError) -> Failure {
    let code = match error {
        RequestError::NoDaemon { .. } | RequestError::Ended { .. } => Code::TryAgainLater,
        _ => Code::Io,
    };
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    let message = format!("{error}{}", cause.unwrap_or_default());
    Failure::new(code, message).with_details("`control` in the configuration names its socket")
}

fn unexpected(answer: &Answer) -> Failure {
    let message = format!("the overlay's daemon sent a response of the wrong kind: {answer:?}");
    Failure::new(Code::Io, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ports_name_names_the_network_the_container_and_the_interface() {
        let endpoint = Endpoint::new("4f-1_a".into(), "net1".into()).unwrap();
        let name = port_name("pods", &endpoint);
        assert_eq!(name, "cni/pods/4f-1_a/net1");
        assert_eq!(endpoint_of("pods", &name), Some(endpoint));
        for other in ["cni/pod/4f-1_a/net1", "web", "cni/pods/4f", "cni/pods/4f/a/b", "cni/pods//a"]
        {
            assert_eq!(endpoint_of("pods", other), None, "{other}");
        }
    }
}
