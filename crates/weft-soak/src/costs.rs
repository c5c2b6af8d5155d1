//! The costs of each fault: the alarms that daemons raise for it, and the errors that workloads may see. Everything else is a
//! failure of the soak. `docs/soak.md` has the same as a table.

use std::time::Duration;

use crate::HOSTS;
use crate::journal::Allowance;
use crate::schedule::Kind;

/// The time before a fault for which its effects count: logs are read with a delay, and clocks of operations start before.
const BEFORE: Duration = Duration::from_secs(1);
/// The time after the recovery for which they count: drops are reported once in ten seconds.
const AFTER: Duration = Duration::from_secs(12);

/// The error of a client of a device whose daemon ended meanwhile.
const CLOSED: &str = "the daemon, or the relay of a virtual machine, has closed the connection";

/// A daemon or workload and a part of its text.
type Cost = (String, &'static str);

/// Returns the allowances of a fault that was made at `from`, and from which everything had recovered at `until`. Times of
/// effects are multiplied by `slack`.
pub(crate) fn allowances(
    kind: &Kind,
    from: Duration,
    until: Duration,
    slack: u32,
) -> Vec<Allowance> {
    let (from, until) = (from.saturating_sub(BEFORE), until + AFTER * slack);
    let allowance = |(who, what)| Allowance { who, what, from, until };
    costs(kind).into_iter().map(allowance).collect()
}

/// Returns the allowances of the start, after which everything was healthy at `healthy`. Times of effects are multiplied by
/// `slack`.
pub(crate) fn of_start(healthy: Duration, slack: u32) -> Vec<Allowance> {
    let costs = ["reload-applied", "lease-gained", "peer-", "paths-", "frames-dropped"];
    let mut all = of("vpc", &costs);
    all.extend(of("route", &["lease-gained"]));
    // Nobody leads yet.
    all.extend(of("jobs", &[""]));
    // Hosts that do not know each other yet drop frames, which they report like drops of a fault.
    let until = healthy + AFTER * slack;
    let allowance = |(who, what)| Allowance { who, what, from: Duration::ZERO, until };
    all.into_iter().map(allowance).collect()
}

/// Returns the allowances of the whole run: the fleet's own changes are reported by every host. On a machine with other load
/// paths go down by themselves, because hosts are not served in time.
pub(crate) fn always(slack: u32) -> Vec<Allowance> {
    let mut all = of("vpc", &["reload-applied"]);
    if slack > 1 {
        all.extend(of("vpc", &["paths-down", "paths-up"]));
    }
    let always = |(who, what)| Allowance { who, what, from: Duration::ZERO, until: Duration::MAX };
    all.into_iter().map(always).collect()
}

/// Returns the allowances of the end: daemons release their leases, and their peers miss them.
pub(crate) fn of_end(from: Duration) -> Vec<Allowance> {
    let mut all = of("vpc", &["lease-lost", "peer-lost", "paths-", "frames-dropped"]);
    all.extend(of("route", &["lease-lost", "lease-gained", "does not lead"]));
    all.into_iter().map(|(who, what)| Allowance { who, what, from, until: Duration::MAX }).collect()
}

fn of(who: &str, what: &[&'static str]) -> Vec<Cost> {
    what.iter().map(|&text| (who.to_owned(), text)).collect()
}

fn costs(kind: &Kind) -> Vec<Cost> {
    match kind {
        // Packets take the other paths, and lost ones are sent again: no workload sees an error.
        Kind::Loss(_) | Kind::Cable(_) | Kind::Spine(_) => of("vpc", &["paths-down", "paths-up"]),
        Kind::Kill(daemon) => killed(daemon),
        // Out of memory, a daemon is killed like any other process, and its supervisor starts it again.
        Kind::Memory(daemon) => killed(daemon),
        Kind::EtcdStop | Kind::EtcdKill => {
            let follower =
                ["etcd is lost", "the fleet is not followed", "lease-lost", "lease-gained"];
            let mut all = of("vpc", &follower);
            all.extend(controllers());
            all.extend(of("fleet", &[""]));
            all
        }
        // A controller's lease and its terms run by monotonic clocks.
        Kind::Clock(..) => Vec::new(),
        Kind::Disk(host) => {
            let mut all =
                of(&format!("vpc h{host}"), &["cannot keep the fleet's part on the disk"]);
            all.extend(of("devices", &["where the devices are kept"]));
            all.extend(of(&format!("device h{host}"), &["devices-not-kept"]));
            all
        }
    }
}

/// Returns what controllers log, and jobs see, while another one takes over.
fn controllers() -> Vec<Cost> {
    let mut all =
        of("route", &["store of decisions", "does not lead", "lease-lost", "lease-gained"]);
    all.extend(of("jobs", &[""]));
    all
}

fn killed(daemon: &str) -> Vec<Cost> {
    let mut all = of(daemon, &["the process ended: signal: 9"]);
    match daemon.rsplit_once(' ') {
        Some(("vpc", _)) => {
            all.extend(of(daemon, &["lease-gained", "the fleet is not followed"]));
            all.extend(of(
                "vpc",
                &["peer-lost", "peer-found", "paths-down", "paths-up", "frames-dropped"],
            ));
        }
        Some(("device", host)) => {
            let index: usize = host.trim_start_matches('h').parse().unwrap_or(0);
            let (before, after) = ((index + HOSTS - 1) % HOSTS, (index + 1) % HOSTS);
            all.extend(of(&format!("pingpong h{before}-{host}"), &[""]));
            all.extend(of(&format!("pingpong {host}-h{after}"), &[""]));
            if index < 2 {
                // Both ends open the device again and again until its daemon is back. One that asks the daemon for something
                // as it is killed says so.
                let opening = ["no daemon at", CLOSED];
                all.extend(of("channel h0-h1", &["call "]));
                all.extend(of("channel h0-h1", &opening));
                all.extend(of("channel server h1", &opening));
            }
            all.extend(of("devices", &["h"]));
            // Programs of this host are ended, and peers of theirs give them up.
            all.extend(of(daemon, &["devices-restored"]));
            all.extend(of("device", &["processes-", "queue-pairs-failed"]));
        }
        Some(("monitor agent", _)) => all.extend(of("monitor", &["agent-lost", "agent-found"])),
        Some(("route", "a" | "b")) => all.extend(controllers()),
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Trouble, unexplained};

    #[test]
    fn a_killed_device_costs_its_programs_and_no_tenant_a_connection() {
        let [from, until] = [100, 105].map(Duration::from_secs);
        let by = allowances(&Kind::Kill("device h1".into()), from, until, 1);
        let trouble = |at, who: &str, what: &str| Trouble {
            at: Duration::from_secs(at),
            who: who.into(),
            what: what.into(),
        };
        let explained = [
            trouble(100, "device h1", "the process ended: signal: 9 (SIGKILL)"),
            trouble(101, "pingpong h0-h1", "any"),
            trouble(101, "pingpong h1-h2", "any"),
            trouble(101, "channel h0-h1", "call 7: the channel is closed"),
            trouble(101, "channel server h1", "weft: device soak: no daemon at /run/x"),
            trouble(101, "channel server h1", &format!("weft: device soak: {CLOSED}")),
        ];
        assert_eq!(unexplained(&explained, &by), [&explained[0]; 0]);
        let lost = [
            trouble(101, "pingpong h2-h0", "any"),
            trouble(101, "tenants red 0-1", "record 7: connection reset"),
            trouble(101, "device h1", "the process ended: signal: 11 (SIGSEGV)"),
            trouble(101, "device h2", "the process ended: signal: 9 (SIGKILL)"),
            trouble(200, "pingpong h0-h1", "any"),
        ];
        assert_eq!(unexplained(&lost, &by), lost.iter().collect::<Vec<_>>());
    }
}
