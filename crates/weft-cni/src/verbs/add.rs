//! ADD: reserves addresses, has the daemon make the interface in the container's namespace, and adds the routes.

use weft_vswitch::config::{Mac, Port, Tap};
use weft_wire::MacAddr;

use crate::attachment::{Attachment, Interface, Ip};
use crate::call::Call;
use crate::cidr::Cidr;
use crate::container::Container;
use crate::failure::{Code, Failure};
use crate::ipam::Ipam;
use crate::overlay::port_name;
use crate::requested::Requested;

/// Connects a container. Returns its result.
///
/// # Errors
/// The reason. Nothing is left of the attempt then; only if the daemon does not answer any more, what it may have is left to
/// DEL and GC.
pub(crate) fn add(call: &Call) -> Result<Attachment, Failure> {
    let (interface, container) = (&call.endpoint.interface, container(call)?);
    if container.observe(interface)?.is_some() {
        let message = format!("the container has an interface {interface} already");
        return Err(Failure::new(Code::InterfaceExists, message));
    }
    let (vni, requested) = (call.config.vni()?, Requested::of(&call.config, &call.arguments)?);
    let (mac, ipam) = (requested.mac.map_or_else(random_mac, Ok)?, call.ipam()?);
    // An attempt whose answer was lost may have left a port. A daemon that is down is found before anything is reserved.
    if call.overlay().remove(&call.config.name, &call.endpoint)?.is_some() {
        free(ipam.as_ref())?;
    }
    let reserved = match &ipam {
        Some(ipam) => ipam.add(),
        None => Ok(without_plugin(requested.ips)),
    };
    let attached = reserved.and_then(|reserved| attach(call, &container, vni, mac, reserved));
    attached.map_err(|failure| undo(call, ipam.as_ref(), &container, mac, failure))
}

fn container(call: &Call) -> Result<Container, Failure> {
    let missing = || Failure::new(Code::InvalidEnvironment, "CNI_NETNS is not set");
    call.container().ok_or_else(missing)
}

/// Returns a random Ethernet address of local administration.
fn random_mac() -> Result<Mac, Failure> {
    let mut bytes = [0; 6];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::new(Code::Io, format!("no random numbers from the operating system: {error}"))
    })?;
    // IEEE 802, section 8.2: an address of one interface, locally administered.
    bytes[0] = bytes[0] & 0xfc | 0x02;
    Ok(Mac(MacAddr(bytes)))
}

/// Returns addresses that no plugin reserves.
fn without_plugin(ips: Vec<Cidr>) -> Attachment {
    let ip = |address| Ip { address, gateway: None, interface: None };
    Attachment { ips: ips.into_iter().map(ip).collect(), ..Attachment::default() }
}

fn free(ipam: Option<&Ipam>) -> Result<(), Failure> {
    ipam.map_or(Ok(()), Ipam::del)
}

/// Undoes what a failed attempt has done, and returns its error. The daemon may have the port although its answer did not
/// arrive, and another container must not get the addresses before the port is gone.
fn undo(
    call: &Call,
    ipam: Option<&Ipam>,
    container: &Container,
    mac: Mac,
    failure: Failure,
) -> Failure {
    // It serves requests in the order of their arrival, so an answer to this one comes after the end of the first.
    if let Err(unknown) = call.overlay().remove(&call.config.name, &call.endpoint) {
        let name = port_name(&call.config.name, &call.endpoint);
        let left = format!(
            "the daemon may have the port {name} ({unknown}): its addresses stay reserved until DEL or GC"
        );
        let details = [failure.details.clone(), left].into_iter().filter(|text| !text.is_empty());
        return failure.with_details(details.collect::<Vec<_>>().join("; "));
    }
    // The first error is the one to report.
    let _ = free(ipam);
    let _ = container.remove(&call.endpoint.interface, &[mac]);
    failure
}

/// Makes the interface with reserved addresses. Returns the result of the call.
fn attach(
    call: &Call,
    container: &Container,
    vni: u32,
    mac: Mac,
    reserved: Attachment,
) -> Result<Attachment, Failure> {
    call.overlay().add(port(call, vni, mac, &reserved))?;
    finish(call, container, reserved)
}

fn port(call: &Call, vni: u32, mac: Mac, reserved: &Attachment) -> Port {
    let own = &call.config.own;
    let namespace = call.namespace.as_ref().map(|path| path.display().to_string());
    Port {
        name: port_name(&call.config.name, &call.endpoint),
        vni,
        mac,
        addresses: reserved.ips.iter().map(|ip| ip.address.to_string()).collect(),
        labels: call.arguments.labels(),
        policies: own.policies.clone(),
        tap: Some(Tap {
            interface: call.endpoint.interface.clone(),
            namespace,
            // The container keeps it when the daemon restarts.
            persistent: true,
            mtu: own.mtu,
        }),
        vhost_user: None,
        mirror: None,
        await_policies: own.await_policies,
    }
}

/// Adds the routes over the new interface, and returns the result with it.
fn finish(call: &Call, container: &Container, reserved: Attachment) -> Result<Attachment, Failure> {
    let interface = &call.endpoint.interface;
    container.add_routes(interface, &reserved)?;
    container.announce(interface)?;
    let observed = container.observe(interface)?.ok_or_else(|| {
        let message = format!("the interface {interface} is gone again");
        Failure::new(Code::Io, message)
    })?;
    let mut result = call.config.previous.clone().unwrap_or_default();
    let index = i64::try_from(result.interfaces.len()).ok();
    result.interfaces.push(Interface {
        name: interface.clone(),
        mac: <[u8; 6]>::try_from(observed.link.mac)
            .map_or_else(|_| String::new(), |mac| MacAddr(mac).to_string()),
        mtu: Some(observed.link.mtu),
        sandbox: call.namespace.as_ref().map(|it| it.display().to_string()).unwrap_or_default(),
        ..Interface::default()
    });
    result.ips.extend(reserved.ips.into_iter().map(|ip| Ip { interface: index, ..ip }));
    result.routes.extend(reserved.routes);
    if reserved.dns != Default::default() {
        result.dns = reserved.dns;
    }
    Ok(result)
}
