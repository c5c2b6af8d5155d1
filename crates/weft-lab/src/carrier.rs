//! Waits for devices to gain or lose carrier. The kernel notices a change of the other end up to a second after it, and
//! until then uses a route over a dead link, or ignores one over a live link.

use std::thread;
use std::time::Duration;

use crate::LabError;
use crate::fabric::Node;
use crate::tool::IP;

const TIMEOUT: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until every device of a node that is up has carrier.
///
/// # Errors
/// Returns `Command` with the devices that have none after [`TIMEOUT`].
pub(crate) fn await_all(node: &Node) -> Result<(), LabError> {
    await_carrier(&node.namespace, "up", true)
}

/// Waits until a device of a node has carrier, or has none if `carrier` is `false`.
///
/// # Errors
/// Returns `Command` with the state of the device after [`TIMEOUT`].
pub(crate) fn await_device(node: &Node, device: &str, carrier: bool) -> Result<(), LabError> {
    await_carrier(&node.namespace, device, carrier)
}

fn await_carrier(namespace: &str, devices: &str, carrier: bool) -> Result<(), LabError> {
    let show = ["-n", namespace, "-o", "link", "show", devices];
    let mut waited = Duration::ZERO;
    loop {
        let links = IP.run(&show, "")?;
        let late: Vec<_> = links.lines().filter(|line| has_carrier(line) != carrier).collect();
        if late.is_empty() {
            return Ok(());
        }
        if waited >= TIMEOUT {
            let state = if carrier { "no carrier" } else { "still carrier" };
            let stderr = format!("{state} after {TIMEOUT:?}: {}", late.join("; "));
            return Err(LabError::Command { command: format!("ip {}", show.join(" ")), stderr });
        }
        thread::sleep(INTERVAL);
        waited += INTERVAL;
    }
}

/// Reads a line of `ip -o link show`.
fn has_carrier(line: &str) -> bool {
    !line.contains("LOWERLAYERDOWN") && !line.contains("NO-CARRIER")
}
