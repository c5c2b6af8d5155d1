//! A container's network namespace: its interface, observed and removed, and the routes over it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use weft_ports::Namespace;
use weft_vswitch::config::Mac;

use crate::attachment::Attachment;
use crate::cidr::Cidr;
use crate::failure::{Code, Failure};
use crate::netlink::{Installed, Link, Netlink};

/// A container's network namespace.
#[derive(Debug)]
pub(crate) struct Container(PathBuf);

/// An interface as it is.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) link: Link,
    pub(crate) addresses: Vec<Cidr>,
    pub(crate) routes: Vec<Installed>,
}

impl Container {
    pub(crate) fn at(namespace: &Path) -> Self {
        Self(namespace.to_owned())
    }

    /// Returns an interface with its addresses and routes, if there is one of the name.
    ///
    /// # Errors
    /// Code 3 if the namespace is gone, 5 if the system refuses.
    pub(crate) fn observe(&self, interface: &str) -> Result<Option<Observed>, Failure> {
        self.run(&format!("read the interface {interface}"), |netlink| {
            let Some(link) = netlink.link(interface)? else { return Ok(None) };
            let (addresses, routes) = (netlink.addresses(link.index)?, netlink.routes(link.index)?);
            Ok(Some(Observed { link, addresses, routes }))
        })
    }

    /// Announces the addresses of an interface to its network, where another container may have had them before.
    ///
    /// # Errors
    /// Code 3 if the namespace is gone, 5 if the system refuses.
    pub(crate) fn announce(&self, interface: &str) -> Result<(), Failure> {
        self.run(&format!("announce the addresses of {interface}"), |netlink| {
            let link = netlink.link(interface)?.ok_or(io::ErrorKind::NotFound)?;
            // `/proc/sys/net` is that of this thread's namespace.
            let notify = ["ipv4/conf", "ipv6/conf"].into_iter().zip(["arp_notify", "ndisc_notify"]);
            for (family, setting) in notify {
                let file = format!("/proc/sys/net/{family}/{interface}/{setting}");
                match fs::write(file, "1") {
                    // The kernel has no IPv6, or the interface has none with this MTU.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    written => written?,
                }
            }
            netlink.set_mac(&link)
        })
    }

    /// Adds the routes of a result over an interface.
    ///
    /// # Errors
    /// Code 3 if the namespace is gone, 5 if the system refuses.
    pub(crate) fn add_routes(&self, interface: &str, of: &Attachment) -> Result<(), Failure> {
        if of.routes.is_empty() {
            return Ok(());
        }
        self.run(&format!("add the routes of {interface}"), |netlink| {
            let link = netlink.link(interface)?.ok_or(io::ErrorKind::NotFound)?;
            of.routes.iter().try_for_each(|route| {
                let named = |error: io::Error| {
                    io::Error::new(
                        error.kind(),
                        format!("{} via {:?}: {error}", route.dst, route.gw),
                    )
                };
                netlink.add_route(route, of.gateway_of(route), link.index).map_err(named)
            })
        })
    }

    /// Removes a TAP interface that has one of the Ethernet addresses. Another interface of the name is not the plugin's
    /// and stays.
    ///
    /// # Errors
    /// Code 3 if the namespace is gone, 5 if the system refuses.
    pub(crate) fn remove(&self, interface: &str, macs: &[Mac]) -> Result<(), Failure> {
        self.run(&format!("remove the interface {interface}"), |netlink| {
            let is_own = |link: &Link| link.is_tap && macs.iter().any(|mac| link.mac == mac.0.0);
            match netlink.link(interface)?.filter(is_own) {
                Some(link) => netlink.remove_link(link.index),
                None => Ok(()),
            }
        })
    }

    /// Runs an action on the kernel's tables of the namespace.
    fn run<T: Send>(
        &self,
        what: &str,
        action: impl FnOnce(&mut Netlink) -> io::Result<T> + Send,
    ) -> Result<T, Failure> {
        let path = self.0.display();
        if !self.0.exists() {
            let message = format!("there is no network namespace {path}");
            return Err(Failure::new(Code::UnknownContainer, message));
        }
        let namespace = Namespace::Path(self.0.clone());
        let done = namespace.run(|| Netlink::open().and_then(|mut netlink| action(&mut netlink)));
        let done = done.map_err(|error| Failure::new(Code::Io, error.to_string()))?;
        done.map_err(|error| Failure::new(Code::Io, format!("cannot {what} in {path}: {error}")))
    }
}
