//! Waits for devices to gain or lose carrier. The kernel notices a change of the other end up to a second after it, and
//! until then uses a route over a dead link, or ignores one over a live link.

use std::thread;
use std::time::Duration;

use crate::LabError;
use crate::fabric::Node;
use crate::tool::IP;

const TIMEOUT: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until devices of a node have carrier, or have none if `carrier` is `false`. `devices` is a device's name, or `up`
/// for all that are not shut down.
///
/// # Errors
/// Returns `Command` with the state of the devices that are late after [`TIMEOUT`].
pub(crate) fn await_carrier(node: &Node, devices: &str, carrier: bool) -> Result<(), LabError> {
    let show = ["-n", &node.namespace, "-o", "link", "show", devices];
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

/// Reads a line of `ip -o link show`, such as `4: l2@if7: <BROADCAST,UP,LOWER_UP> mtu 1500`.
fn has_carrier(line: &str) -> bool {
    let flags = line.split(['<', '>']).nth(1).unwrap_or_default();
    let has = |wanted| flags.split(',').any(|flag| flag == wanted);
    has("UP") && !has("NO-CARRIER")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_down_or_whose_far_end_is_down_has_no_carrier() {
        let line = |flags| format!("4: l2@if7: <{flags}> mtu 1500 qdisc noqueue state X");
        assert!(has_carrier(&line("BROADCAST,MULTICAST,UP,LOWER_UP")));
        assert!(!has_carrier(&line("NO-CARRIER,BROADCAST,MULTICAST,UP")));
        assert!(!has_carrier(&line("BROADCAST,MULTICAST")));
    }
}
