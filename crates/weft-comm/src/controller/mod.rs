//! The route controller (`weft route serve`) that plans a group's order, blocks and source ports: its address, and a rank's
//! requests to it.
//!
//! | subject | file |
//! | --- | --- |
//! | requests | here |
//! | HTTP | `http.rs` |
//! | the device's source ports | `device.rs` |
//! | the thread that follows the plan while the group runs | `follower.rs` |

mod device;
mod follower;
mod http;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use weft_guard::Token;

pub(crate) use device::PlannedDevice;
pub(crate) use follower::{Follower, Task};

use crate::ControllerError;

/// The environment variable with the controller's token; the variable with the suffix `_FILE` names a file with it.
pub const CONTROLLER_TOKEN_VARIABLE: &str = "WEFT_CONTROLLER_TOKEN";

/// The address of a route controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerAddress {
    /// `HOST:PORT` of the page of `weft route serve`; several with commas between, of controllers that share a store.
    pub at: String,
    /// `true` if the group fails without the controller; otherwise its packets then leave from the device's own ports.
    pub is_required: bool,
}

/// The error for a text that is no controller's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerAddressError {
    /// It is not a host and a port.
    #[error(
        "not HOST:PORT of `weft route serve --page`, several with commas between, or require:HOST:PORT"
    )]
    Malformed,
    /// It is a URL with TLS.
    #[error("TLS is not supported here: give HOST:PORT in a management network, or of a tunnel")]
    Tls,
}

/// Parses `HOST:PORT`, several with commas between, or `require:` before them.
impl FromStr for ControllerAddress {
    type Err = ControllerAddressError;

    fn from_str(text: &str) -> Result<Self, ControllerAddressError> {
        let (at, is_required) =
            text.strip_prefix("require:").map_or((text, false), |at| (at, true));
        let servers: Result<Vec<&str>, _> = at.split(',').map(|at| server(at.trim())).collect();
        Ok(Self { at: servers?.join(","), is_required })
    }
}

/// Returns `HOST:PORT` of one controller.
fn server(at: &str) -> Result<&str, ControllerAddressError> {
    if at.starts_with("https://") {
        return Err(ControllerAddressError::Tls);
    }
    let at = at.strip_prefix("http://").unwrap_or(at).trim_end_matches('/');
    let (host, port) = at.rsplit_once(':').ok_or(ControllerAddressError::Malformed)?;
    if host.is_empty() || host.contains('/') || port.parse::<u16>().is_err() {
        return Err(ControllerAddressError::Malformed);
    }
    Ok(at)
}

impl fmt::Display for ControllerAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let require = if self.is_required { "require:" } else { "" };
        write!(out, "{require}{}", self.at)
    }
}

/// The source ports of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct SenderPorts {
    /// The number of the plan.
    pub(crate) plan: u64,
    /// The ports; none if the plan is the one that the rank has.
    #[serde(default)]
    pub(crate) ports: Option<Vec<SenderPort>>,
}

/// One source port, and the destination of the packets that leave from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct SenderPort {
    pub(crate) destination: IpAddr,
    pub(crate) port: u16,
}

/// The arrangement of a group's ranks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Arrangement {
    /// The ranks in the order of rings.
    pub(crate) order: Vec<usize>,
    /// The number of each rank's block, by rank; empty if the controller is older than blocks.
    #[serde(default)]
    pub(crate) blocks: Vec<u32>,
}

impl Arrangement {
    /// Checks that the order names each of `ranks` ranks once, and that all of them have a block or none has.
    ///
    /// # Errors
    /// Returns the fault in words.
    pub(crate) fn check(&self, ranks: usize) -> Result<(), String> {
        let Self { order, blocks } = self;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..ranks) {
            return Err(format!("its order {order:?} is not one of these ranks"));
        }
        if !blocks.is_empty() && blocks.len() != ranks {
            return Err(format!("its blocks are those of {} ranks, not of {ranks}", blocks.len()));
        }
        Ok(())
    }
}

/// A job as announced to a controller.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    /// The port at which all ranks' devices receive.
    pub(crate) to_port: u16,
    /// Source and destination of each queue pair.
    pub(crate) pairs: Vec<(Ipv4Addr, Ipv4Addr)>,
}

/// The connection data of a controller, for requests about one job.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    pub(crate) at: String,
    pub(crate) token: Option<Token>,
    /// The job's name.
    pub(crate) job: String,
}

/// The lease of a job in seconds: a controller forgets a job whose ranks do not ask for their ports for this long.
const LEASE_SECONDS: u64 = 15;

impl Controller {
    /// Returns the ranks in the order of a ring, and their blocks.
    ///
    /// # Errors
    /// Returns the errors of [`post`](Self::post).
    pub(crate) fn order(&self, hosts: &[Ipv4Addr]) -> Result<Arrangement, ControllerError> {
        let body: String = hosts.iter().map(|host| format!("{host}\n")).collect();
        self.post("/v1/order", &body)
    }

    /// Announces the job.
    ///
    /// # Errors
    /// Returns the errors of [`post`](Self::post).
    pub(crate) fn announce(&self, job: &Announcement) -> Result<(), ControllerError> {
        #[derive(Deserialize)]
        struct Planned {
            flows: usize,
        }
        let mut body = String::from("source,destination\n");
        body.extend(job.pairs.iter().map(|(from, to)| format!("{from},{to}\n")));
        let (name, to_port) = (&self.job, job.to_port);
        let path = format!("/v1/jobs?job={name}&to_port={to_port}&lease={LEASE_SECONDS}s");
        let Planned { flows } = self.post(&path, &body)?;
        tracing::info!(at = self.at, job = name, flows, "the controller has planned the ports");
        Ok(())
    }

    /// Returns a rank's ports if the job has another plan than this one, and renews the job's lease.
    ///
    /// # Errors
    /// Returns the errors of [`post`](Self::post).
    pub(crate) fn ports(
        &self,
        source: Ipv4Addr,
        plan: u64,
    ) -> Result<SenderPorts, ControllerError> {
        self.post(&format!("/v1/ports?job={}&source={source}&plan={plan}", self.job), "")
    }

    /// Ends the job.
    ///
    /// # Errors
    /// Returns the errors of [`post`](Self::post).
    pub(crate) fn withdraw(&self) -> Result<(), ControllerError> {
        self.post(&format!("/v1/withdraw?job={}", self.job), "").map(|_: serde::de::IgnoredAny| ())
    }

    /// Posts a request and returns its answer.
    ///
    /// # Errors
    /// Returns `Unreachable`, `Refused` or `Malformed`.
    fn post<T: DeserializeOwned>(&self, path: &str, body: &str) -> Result<T, ControllerError> {
        let token = self.token.as_ref();
        let answer = http::post(&self.at, path, token, body.as_bytes())?;
        serde_json::from_slice(&answer)
            .map_err(|error| ControllerError::Malformed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrangement_is_checked_and_may_have_no_blocks() {
        let read = |text: &str| serde_json::from_str::<Arrangement>(text).unwrap();
        let old = read(r#"{"order":[0,2,1]}"#);
        assert_eq!((old.check(3), &old.blocks), (Ok(()), &vec![]));
        assert_eq!(read(r#"{"order":[0,2,1],"blocks":[0,1,0]}"#).check(3), Ok(()));
        for (text, why) in [
            (r#"{"order":[0,2,2]}"#, "its order [0, 2, 2] is not one of these ranks"),
            (r#"{"order":[0,1]}"#, "its order [0, 1] is not"),
            (r#"{"order":[0,2,1],"blocks":[0]}"#, "its blocks are those of 1 ranks, not of 3"),
        ] {
            let error = read(text).check(3).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(serde_json::from_str::<Arrangement>(r#"{"order":[0],"blocks":[-1]}"#).is_err());
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let parse = |text: &str| text.parse::<ControllerAddress>();
        for (text, at, is_required) in [
            ("10.9.0.1:7490", "10.9.0.1:7490", false),
            ("require:route.example:7490", "route.example:7490", true),
            ("http://[fd00::1]:7490/", "[fd00::1]:7490", false),
            ("require:10.9.0.1:7490, 10.9.0.2:7490", "10.9.0.1:7490,10.9.0.2:7490", true),
        ] {
            assert_eq!(parse(text), Ok(ControllerAddress { at: at.into(), is_required }));
        }
        for text in [
            "",
            "10.9.0.1:7490,",
            "10.9.0.1",
            ":7490",
            "10.9.0.1:http",
            "ftp://10.9.0.1:1",
            "require:",
        ] {
            assert_eq!(parse(text), Err(ControllerAddressError::Malformed), "{text}");
        }
        assert_eq!(parse("https://10.9.0.1:7490"), Err(ControllerAddressError::Tls));
    }
}
