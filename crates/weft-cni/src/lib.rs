//! A plugin of the Container Network Interface (CNI, specification 1.1.0): a container's interface is a port of the
//! overlay.
//!
//! The program `weft-cni` lives as long as one call of the container runtime. It reads the call ([`Config`] and the
//! variables of [`environment`]), runs the plugin for addresses, and asks the overlay's daemon over its control socket
//! for a port whose TAP interface is in the container's namespace. The daemon keeps the port in its state; the plugin
//! keeps nothing. A port's name has the network, the container and the interface in it.
//!
//! ```
//! use weft_cni::{Config, Version};
//!
//! let config = Config::parse(br#"{
//!     "cniVersion": "1.1.0", "name": "pods", "type": "weft-cni", "vni": 100,
//!     "ipam": { "type": "host-local", "subnet": "10.1.0.0/16" }
//! }"#);
//! let config = config.map_err(|(_, failure)| failure)?;
//! assert_eq!((config.version, config.vni()?), (Version::V1_1_0, 100));
//! assert_eq!(config.control().to_str(), Some("/run/weft/vpc.sock"));
//! # Ok::<(), weft_cni::Failure>(())
//! ```
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io::Read;

use serde_json::json;

mod attachment;
mod call;
mod cidr;
mod config;
mod container;
pub mod environment;
mod failure;
#[cfg(test)]
#[path = "../../weft-units/tests/inputs/mod.rs"]
mod inputs;
mod ipam;
mod netlink;
mod overlay;
#[cfg(any(test, fuzzing))]
mod parsing;
mod requested;
mod verbs;
mod version;

/// The functions that the fuzz targets of `fuzz/` call; no released build has them.
#[cfg(fuzzing)]
pub mod properties {
    pub use crate::parsing::cni_call;
}

pub use attachment::{Attachment, Dns, Interface, Ip, Route};
pub use cidr::Cidr;
pub use config::{AddressKind, Config};
pub use failure::{Code, Failure};
pub use version::Version;

use call::Call;
use environment::{Variables, Verb};

/// Returns a description of the program for people who start it by hand.
pub fn about() -> String {
    let versions = Version::ALL.map(Version::number).join(", ");
    format!(
        "weft-cni {}: a CNI plugin that container runtimes start (CNI_COMMAND is not set)\n\
         versions of the specification: {versions}",
        env!("CARGO_PKG_VERSION")
    )
}

/// Serves a call. Returns the text for standard output: a result, nothing, or the error.
///
/// # Errors
/// The text is an error.
pub fn serve(
    verb: &OsStr,
    variables: impl Fn(&str) -> Option<OsString>,
    input: impl Read,
) -> Result<String, String> {
    let text = |(version, failure): (Version, Failure)| format!("{:#}\n", failure.to_json(version));
    let verb = Verb::parse(verb).map_err(|failure| text((Version::NEWEST, failure)))?;
    if verb == Verb::Version {
        let supported = Version::ALL.map(Version::number);
        let version = config::version_of_any(input).number();
        let versions = json!({ "cniVersion": version, "supportedVersions": supported });
        return Ok(format!("{versions}\n"));
    }
    let config = Config::read(input).map_err(text)?;
    let version = config.version;
    serve_verb(verb, config, &variables).map_err(|failure| text((version, failure)))
}

fn serve_verb(verb: Verb, config: Config, variables: Variables<'_>) -> Result<String, Failure> {
    let (since, version) = (since(verb), config.version);
    if version < since {
        let message = format!("the configuration is of version {version}, without this verb");
        return Err(Failure::new(Code::IncompatibleVersion, message)
            .with_details(format!("cniVersion may be {since} or newer")));
    }
    let folders = || environment::plugin_folders(variables);
    match verb {
        Verb::Add => {
            let result = verbs::add::add(&Call::for_running(config, variables)?)?;
            return Ok(format!("{:#}\n", result.to_json(version)));
        }
        Verb::Del => verbs::del::del(&Call::for_any(config, variables)?)?,
        Verb::Check => verbs::check::check(&Call::for_running(config, variables)?)?,
        Verb::Status => verbs::status::status(&config, &folders())?,
        Verb::Gc => verbs::gc::gc(&config, &folders())?,
        Verb::Version => {}
    }
    Ok(String::new())
}

/// Returns the version that brought a verb.
fn since(verb: Verb) -> Version {
    match verb {
        Verb::Add | Verb::Del | Verb::Version => Version::V0_1_0,
        Verb::Check => Version::V0_4_0,
        Verb::Status | Verb::Gc => Version::V1_1_0,
    }
}
