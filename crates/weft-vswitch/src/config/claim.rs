//! Names, addresses and interfaces that only one port of a host may have.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::net::IpAddr;
use std::path::PathBuf;

use super::{ConfigError, Mac, Port, value};

/// One of the things that only one port of a host may have. A guest that may move has its addresses on two hosts, and
/// on each of them once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// A port's name.
    Name(String),
    /// An Ethernet address of a network.
    Mac(u32, Mac),
    /// An IP address of a network.
    Address(u32, IpAddr),
    /// An interface of a namespace.
    Tap(Option<String>, String),
    /// A vhost-user socket.
    Socket(PathBuf),
}

impl Port {
    /// Returns the claims of the port. The same IP address may be written with different prefix lengths.
    pub(crate) fn claims(&self) -> BTreeSet<Claim> {
        let addresses = self.prefixes().into_iter().flatten();
        let addresses = addresses.map(|(address, _)| Claim::Address(self.vni, address));
        let tap = self.tap.as_ref();
        let tap = tap.map(|tap| Claim::Tap(tap.namespace.clone(), tap.interface.clone()));
        let socket = self.vhost_user.as_ref().map(|vhost| Claim::Socket(vhost.socket.clone()));
        let own = [Claim::Name(self.name.clone()), Claim::Mac(self.vni, self.mac)];
        own.into_iter().chain(addresses).chain(tap).chain(socket).collect()
    }

    /// Returns `true` if the two ports cannot exist at the same time.
    pub(crate) fn clashes_with(&self, other: &Self) -> bool {
        !self.claims().is_disjoint(&other.claims())
    }
}

impl Claim {
    /// Returns the error of a port that claims what another one has.
    pub(super) fn is_taken(&self) -> ConfigError {
        let key = match self {
            Self::Name(_) => "port.name",
            Self::Mac(..) => "port.mac",
            Self::Address(..) => "port.addresses",
            Self::Tap(..) => "port.tap",
            Self::Socket(_) => "port.vhost-user",
        };
        value(key, self, "one port of this host that has it")
    }
}

impl Display for Claim {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Mac(vni, mac) => write!(f, "{} in network {vni}", mac.0),
            Self::Address(vni, address) => write!(f, "{address} in network {vni}"),
            Self::Tap(None, interface) => write!(f, "interface {interface}"),
            Self::Tap(Some(namespace), interface) => {
                write!(f, "interface {interface} of namespace {namespace}")
            }
            Self::Socket(socket) => write!(f, "{}", socket.display()),
        }
    }
}
