//! CHECK: compares a container's interface, addresses and routes with the result of ADD, and finds its port in the daemon.

use weft_wire::MacAddr;

use crate::attachment::Attachment;
use crate::call::Call;
use crate::config::wrong;
use crate::container::Observed;
use crate::failure::{Code, Failure};
use crate::overlay::port_name;

/// Checks a container's network.
///
/// # Errors
/// The first difference. Interfaces, addresses and routes of other plugins are not compared.
pub(crate) fn check(call: &Call) -> Result<(), Failure> {
    let expected = "the result of ADD";
    let previous = call.config.previous.as_ref();
    let previous =
        previous.ok_or_else(|| wrong("prevResult", &serde_json::Value::Null, expected))?;
    let interface = &call.endpoint.interface;
    let gone = || {
        let message = format!("the container has no interface {interface}");
        Failure::new(Code::Differs, message)
    };
    let container = call.container().ok_or_else(|| {
        Failure::new(Code::UnknownContainer, "the container has no network namespace any more")
    })?;
    let observed = container.observe(interface)?.ok_or_else(gone)?;
    compare(call, previous, &observed)?;
    let status = call.overlay().status()?;
    let name = port_name(&call.config.name, &call.endpoint);
    if !status.ports.iter().any(|port| port.name == name) {
        let message = format!("the overlay's daemon has no port {name}");
        return Err(Failure::new(Code::Differs, message));
    }
    call.ipam()?.map_or(Ok(()), |ipam| ipam.check())
}

/// Compares an interface with the result.
fn compare(call: &Call, previous: &Attachment, observed: &Observed) -> Result<(), Failure> {
    let name = &call.endpoint.interface;
    let differs = |what: String| Err(Failure::new(Code::Differs, format!("{name}: {what}")));
    let sandbox = call.namespace.as_ref().map(|it| it.display().to_string()).unwrap_or_default();
    let Some(index) = previous.interface_in(&sandbox, name) else {
        return differs(format!("prevResult has no such interface in {sandbox}"));
    };
    let expected = &previous.interfaces[index];
    let mac = <[u8; 6]>::try_from(&*observed.link.mac).map(|mac| MacAddr(mac).to_string());
    let mac = mac.unwrap_or_default();
    if !expected.mac.is_empty() && !expected.mac.eq_ignore_ascii_case(&mac) {
        return differs(format!("its Ethernet address is {mac}, expected {}", expected.mac));
    }
    if let Some(mtu) = expected.mtu.filter(|&mtu| mtu != observed.link.mtu) {
        return differs(format!("its MTU is {}, expected {mtu}", observed.link.mtu));
    }
    if let Some(ip) = previous.ips_of(index).find(|ip| !observed.addresses.contains(&ip.address)) {
        return differs(format!("it does not have the address {}", ip.address));
    }
    let own: Vec<_> = previous.ips_of(index).collect();
    let is_own = |gateway| own.iter().any(|ip| ip.gateway == gateway);
    for route in &previous.routes {
        let gateway = previous.gateway_of(route);
        // A route over another interface is another plugin's.
        if !is_own(gateway) {
            continue;
        }
        let matches =
            |it: &&crate::netlink::Installed| it.dst == route.dst && it.gateway == gateway;
        if observed.routes.iter().find(matches).is_none() {
            return differs(format!("there is no route to {} over it", route.dst));
        }
    }
    Ok(())
}
