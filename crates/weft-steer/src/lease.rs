//! A lease that lets only one controller steer. It is stored on each router and checked there, in the same script that
//! makes a change.
//!
//! A controller that was suspended or disconnected finds another holder in the lease when it returns, and changes
//! nothing. Only the router's own clock counts. A router loses its lease when it boots.
//!
//! A router that is steered by gNMI has no shell. Its lease is kept by the host that `reach` leads to, by default this one, and
//! the time at which that host has granted it goes with the change (gNMI master arbitration).

use std::time::Duration;

use crate::{Method, RouterEntry, SteerError};

/// The message of a script if another controller holds the lease; it exits with `EX_TEMPFAIL` of sysexits.h.
const HELD: &str = "weft-lease-held-by ";

/// The right to change routers' tables for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The holder: `host/pid/epoch`, in plain characters.
    holder: String,
    /// The duration of the lease after a renewal.
    span: Duration,
}

impl Lease {
    /// Creates a lease for `holder`. Two controllers must have different names: include a number that grows or is
    /// random.
    ///
    /// # Panics
    /// If `holder` has other characters than letters, digits and `-_./:`.
    pub fn new(holder: impl Into<String>, span: Duration) -> Self {
        let holder = holder.into();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
        assert!(!holder.is_empty() && holder.chars().all(plain), "{holder:?} is no holder's name");
        Self { holder, span }
    }

    /// Returns the name of the holder.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Acquires or renews the lease at a router.
    ///
    /// # Errors
    /// Returns `Held` if another controller holds it, `Command` or `Io` if the router does not answer.
    pub fn renew(&self, router: &RouterEntry) -> Result<(), SteerError> {
        self.run(router, "").map(drop)
    }

    /// Renews the lease at a router's host and returns the time there, in nanoseconds since 1970. Of two controllers that
    /// hold the lease one after the other, the second gets a later time.
    ///
    /// # Errors
    /// Returns the errors of [`Self::renew`], and `Command` if the host's clock cannot be read.
    pub(crate) fn granted(&self, router: &RouterEntry) -> Result<u64, SteerError> {
        let command = "date +%s%N";
        let time = self.run(router, command)?;
        time.trim().parse().map_err(|_| SteerError::Command {
            router: router.name.clone(),
            command: command.into(),
            stderr: format!("{:?} is no time in nanoseconds", time.trim()),
        })
    }

    /// Releases the lease at a router, if this controller holds it.
    ///
    /// # Errors
    /// Returns the errors of [`Self::renew`].
    pub fn release(&self, router: &RouterEntry) -> Result<(), SteerError> {
        self.run(router, "rm -f \"$lease\"").map(drop)
    }

    /// Renews the lease at a router and runs commands if the lease is free or ours. The first failing command ends the
    /// run. Returns their standard output.
    ///
    /// # Errors
    /// Returns the errors of [`Self::renew`].
    pub(crate) fn run(&self, router: &RouterEntry, commands: &str) -> Result<String, SteerError> {
        let script = script(&path(router), &self.holder, self.span, commands);
        let what = if commands.is_empty() { "the lease" } else { commands };
        router.run(what, &script).map_err(|error| match error {
            SteerError::Command { stderr, .. } if stderr.contains(HELD) => {
                let (_, holder) = stderr.split_once(HELD).unwrap_or_default();
                SteerError::Held { holder: holder.trim().to_owned(), path: path(router).into() }
            }
            other => other,
        })
    }
}

/// Returns the path of a router's lease. It depends on the router's own name, so that all controllers use one file,
/// however they reach the router and whatever an inventory calls it. Namespaces of a machine share its `/run`, and so do
/// routers without a shell, whose name is then the address of their gNMI server.
fn path(router: &RouterEntry) -> String {
    if let Method::Gnmi(settings) = &router.apply {
        return format!("/run/weft-route/gnmi-{}.lease", settings.address);
    }
    let mut words = router.reach.iter().skip_while(|&word| word != "netns");
    let namespace = words.nth(2).map_or("router", |name| name);
    format!("/run/weft-route/{namespace}.lease")
}

fn script(path: &str, holder: &str, span: Duration, commands: &str) -> String {
    let seconds = span.as_secs().max(1);
    format!(
        "set -e\n\
         lease='{path}'; mkdir -p /run/weft-route\n\
         exec 9>\"$lease.lock\"; flock 9\n\
         holder=; until=0; if [ -r \"$lease\" ]; then read -r holder until <\"$lease\" || :; fi\n\
         now=$(date +%s)\n\
         if [ -n \"$holder\" ] && [ \"$holder\" != '{holder}' ] && [ \"${{until:-0}}\" -gt \"$now\" ]; then\n\
         echo \"{HELD}$holder\" >&2; exit 75; fi\n\
         echo '{holder}' $((now + {seconds})) >\"$lease.new\"; mv \"$lease.new\" \"$lease\"\n\
         {commands}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GnmiSettings;

    /// Returns a router in a namespace that need not exist: `env` runs the words that follow on this machine.
    fn router(name: &str) -> RouterEntry {
        let name = format!("ws-lease-{}-{name}", std::process::id());
        let reach = ["env", "A=ip", "netns=exec"].map(String::from).to_vec();
        let agent = [127, 0, 0, 1].into();
        let (sources, apply, ports) = (vec![], Method::Kernel, vec![]);
        RouterEntry { name, reach, agent, sources, apply, ports }
    }

    #[test]
    fn a_namespaces_lease_is_its_own_and_a_machines_is_one() {
        let mut router = router("");
        router.reach = ["ip", "netns", "exec", "weft-lab.l0"].map(String::from).to_vec();
        assert_eq!(path(&router), "/run/weft-route/weft-lab.l0.lease");
        router.reach = ["ssh", "leaf-0"].map(String::from).to_vec();
        assert_eq!(path(&router), "/run/weft-route/router.lease");
        router.apply = Method::Gnmi(GnmiSettings::plain("[fd00::1]:9339").into());
        assert_eq!(path(&router), "/run/weft-route/gnmi-[fd00::1]:9339.lease");
    }
}
