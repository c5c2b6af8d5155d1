//! A lease that lets only one controller steer. It is stored on each router and checked there, in the same script that
//! makes a change.
//!
//! A controller that was suspended or disconnected finds another holder in the lease when it returns, and changes
//! nothing. Only the router's own clock counts. A router loses its lease when it boots.
//!
//! Controllers that share a store have *terms*: each leader's is greater than that of the one before. A router keeps the
//! greatest term that it has seen, until it boots. It grants its lease to a leader with a greater term at once, and refuses
//! every script of a smaller term, whether the lease has expired or not.
//!
//! A router that is steered by gNMI has no shell. Its lease is kept by the host that `reach` leads to, by default this one, and
//! the term and the time at which that host has granted it go with the change (gNMI master arbitration).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Method, RouterEntry, SteerError};

/// The message of a script if another controller holds the lease; it exits with `EX_TEMPFAIL` of sysexits.h.
const HELD: &str = "weft-lease-held-by ";
/// The message of a script whose term is over.
const SUPERSEDED: &str = "weft-term-superseded-by ";

/// The right to change routers' tables for a time.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The holder: `host/pid/epoch`, in plain characters.
    holder: String,
    /// The duration of the lease after a renewal.
    span: Duration,
    /// `true` for a controller that shares a store: it may use its lease only in its terms.
    has_terms: bool,
    /// The only epoch in which this copy may be used, if there is one.
    epoch: Option<u64>,
    now: Arc<Mutex<Present>>,
}

/// The right of a controller to use its lease at present, which all copies share.
#[derive(Clone, Copy, Debug, Default)]
struct Present {
    /// The term of a controller that shares a store.
    term: Option<Term>,
    /// The epoch under which a controller without terms steers.
    epoch: Option<u64>,
}

/// A grant of the lease by a router's host. Later grants are greater, and so are those of a later term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    /// The term of the leader; without one, the greatest term that the host has seen, or 0.
    pub(crate) term: u64,
    /// The time at the host, in nanoseconds since 1970.
    pub(crate) nanos: u64,
}

/// A term of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// Its number, greater than that of every leader before.
    pub(crate) number: u64,
    /// The time at which it ends unless it is extended.
    pub(crate) until: Instant,
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
        Self { holder, span, has_terms: false, epoch: None, now: Arc::default() }
    }

    /// Returns the lease of a controller that may use it only in its terms.
    pub(crate) fn in_terms(self) -> Self {
        Self { has_terms: true, ..self }
    }

    /// Returns a copy that can be used only in this epoch: the number of the term for a controller that has terms.
    pub(crate) fn in_epoch(&self, epoch: Option<u64>) -> Self {
        Self { epoch, ..self.clone() }
    }

    /// Sets the term of all copies of this lease.
    pub(crate) fn set_term(&self, term: Option<Term>) {
        self.present().term = term;
    }

    /// Sets the epoch of all copies of this lease, in which their controller steers; none if it does not.
    pub(crate) fn set_epoch(&self, epoch: Option<u64>) {
        self.present().epoch = epoch;
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the present term; 0 for a controller without terms.
    ///
    /// # Errors
    /// Returns `NoTerm` if the term is over, `Outdated` if the epoch of this copy is.
    fn term(&self) -> Result<u64, SteerError> {
        let Present { term, epoch } = *self.present();
        let term = term.filter(|term| Instant::now() < term.until).map(|term| term.number);
        let (number, epoch) = match self.has_terms {
            true => (term.ok_or(SteerError::NoTerm)?, term),
            false => (0, epoch),
        };
        let is_outdated = self.epoch.is_some() && self.epoch != epoch;
        if is_outdated { Err(SteerError::Outdated) } else { Ok(number) }
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

    /// Renews the lease at a router's host and returns the grant. Of two controllers that hold the lease one after the other,
    /// the second gets a greater one.
    ///
    /// # Errors
    /// Returns the errors of [`Self::renew`], and `Command` if the host's clock cannot be read.
    pub(crate) fn granted(&self, router: &RouterEntry) -> Result<Grant, SteerError> {
        // The greatest term that the host had seen before.
        let command = "echo \"$term\"; date +%s%N";
        let printed = self.run(router, command)?;
        let own = if self.has_terms { self.term()? } else { 0 };
        let numbers: Option<Vec<u64>> = printed.lines().map(|line| line.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[seen, nanos]) => Ok(Grant { term: own.max(seen), nanos }),
            _ => Err(SteerError::Command {
                router: router.name.clone(),
                command: command.into(),
                stderr: format!("{:?} is no term and no time in nanoseconds", printed.trim()),
            }),
        }
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
    /// Returns the errors of [`Self::renew`]; `NoTerm` or `Superseded` if the term is over, `Outdated` if the epoch is.
    pub(crate) fn run(&self, router: &RouterEntry, commands: &str) -> Result<String, SteerError> {
        let script = script(&path(router), &self.holder, self.span, self.term()?, commands);
        let what = if commands.is_empty() { "the lease" } else { commands };
        let refusal = |stderr: &str| {
            if let Some((_, holder)) = stderr.split_once(HELD) {
                let (holder, path) = (holder.trim().to_owned(), path(router).into());
                return Some(SteerError::Held { holder, path });
            }
            let (_, term) = stderr.split_once(SUPERSEDED)?;
            let (router, term) = (router.name.clone(), term.trim().to_owned());
            Some(SteerError::Superseded { router, term })
        };
        router.run(what, &script).map_err(|error| match &error {
            SteerError::Command { stderr, .. } => refusal(stderr).unwrap_or(error),
            _ => error,
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

/// Returns the script that checks and renews the lease and then runs commands. The term is in a file of its own: programs
/// that know none read the lease as before. Without a term, 0, only the lease counts.
fn script(path: &str, holder: &str, span: Duration, term: u64, commands: &str) -> String {
    // Routers count whole seconds. With one more the lease lasts for `span`, whenever in a second it begins.
    let seconds = span.as_nanos().div_ceil(1_000_000_000) + 1;
    format!(
        "set -e\n\
         lease='{path}'; mkdir -p /run/weft-route\n\
         exec 9>\"$lease.lock\"; flock 9\n\
         holder=; until=0; if [ -r \"$lease\" ]; then read -r holder until <\"$lease\" || :; fi\n\
         term=; if [ -r \"$lease.term\" ]; then read -r term <\"$lease.term\" || :; fi\n\
         case $term in ''|*[!0-9]*) term=0;; esac\n\
         if [ {term} -gt 0 ] && [ {term} -lt \"$term\" ]; then echo \"{SUPERSEDED}$term\" >&2; exit 75; fi\n\
         now=$(date +%s)\n\
         if [ {term} -le \"$term\" ] && [ -n \"$holder\" ] && [ \"$holder\" != '{holder}' ] && \
         [ \"${{until:-0}}\" -gt \"$now\" ]; then\n\
         echo \"{HELD}$holder\" >&2; exit 75; fi\n\
         if [ {term} -gt \"$term\" ]; then echo {term} >\"$lease.new\"; mv \"$lease.new\" \"$lease.term\"; fi\n\
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

    /// Returns a router whose scripts run on this machine, with its lease in a folder of the test.
    fn local(folder: &std::path::Path) -> RouterEntry {
        let run = format!("sed 's,/run/weft-route,{},g' | sh -s", folder.display());
        let reach = ["sh", "-c", &run].map(String::from).to_vec();
        RouterEntry { reach, ..router("l0") }
    }

    #[test]
    fn a_later_term_takes_the_lease_at_once_and_an_earlier_one_is_refused_for_good() {
        let folder = std::env::temp_dir().join(format!("ws-term-{}", std::process::id()));
        let router = local(&folder);
        let span = Duration::from_secs(60);
        let term = |number| Some(Term { number, until: Instant::now() + span });
        let leader = |name: &str, number| {
            let lease = Lease::new(name, span).in_terms();
            lease.set_term(term(number));
            lease
        };
        let (old, new) = (leader("a/1/1", 7), leader("b/1/1", 12));
        assert_eq!(old.run(&router, "echo done").unwrap(), "done\n");
        // Of the same term, and without one, the lease alone counts.
        for other in [leader("c/1/1", 7), Lease::new("by-hand", span)] {
            let error = other.renew(&router).unwrap_err();
            assert!(
                matches!(&error, SteerError::Held { holder, .. } if holder == "a/1/1"),
                "{error}"
            );
        }
        new.renew(&router).unwrap();
        new.release(&router).unwrap();
        // Nobody holds the lease now, and the term is over all the same.
        let error = old.run(&router, "touch no").unwrap_err().to_string();
        assert!(
            error.contains("a controller of term 12 steers") && error.contains("l0"),
            "{error}"
        );
        Lease::new("by-hand", Duration::ZERO).renew(&router).unwrap();
        // What is no term counts as none.
        std::fs::write(folder.join("router.lease.term"), "7; reboot").unwrap();
        old.renew(&router).unwrap();
        old.set_term(Some(Term { number: 7, until: Instant::now() }));
        assert!(matches!(old.renew(&router), Err(SteerError::NoTerm)));
        old.set_term(None);
        assert!(matches!(old.renew(&router), Err(SteerError::NoTerm)));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_order_of_an_earlier_epoch_is_not_carried_out_in_a_later_one() {
        let folder = std::env::temp_dir().join(format!("ws-epoch-{}", std::process::id()));
        let router = local(&folder);
        let span = Duration::from_secs(60);
        let alone = Lease::new("a/1/1", span);
        let elected = Lease::new("b/1/1", span).in_terms();
        for (lease, set) in [
            (&alone, &(|epoch| alone.set_epoch(epoch)) as &dyn Fn(Option<u64>)),
            (&elected, &|epoch| {
                let until = Instant::now() + span;
                elected.set_term(epoch.map(|number| Term { number, until }));
            }),
        ] {
            set(Some(7));
            let order = lease.in_epoch(Some(7));
            assert_eq!(order.run(&router, "echo done").unwrap(), "done\n");
            for later in [None, Some(9)] {
                set(later);
                let error = order.run(&router, "echo done").unwrap_err();
                assert!(matches!(error, SteerError::Outdated | SteerError::NoTerm), "{error}");
            }
            lease.renew(&router).unwrap();
            lease.release(&router).unwrap();
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_router_keeps_the_lease_for_its_whole_span() {
        let folder = std::env::temp_dir().join(format!("ws-span-{}", std::process::id()));
        let router = local(&folder);
        let now = || {
            let epoch = std::time::SystemTime::UNIX_EPOCH;
            std::time::SystemTime::now().duration_since(epoch).unwrap()
        };
        for span in [Duration::from_secs(3), Duration::from_millis(3500)] {
            let lease = Lease::new("a/1/1", span);
            // Another controller gets it when the router's clock shows this second.
            let renewed_after = now();
            lease.renew(&router).unwrap();
            let text = std::fs::read_to_string(folder.join("router.lease")).unwrap();
            let until: u64 = text.trim().split_once(' ').unwrap().1.parse().unwrap();
            assert!(Duration::from_secs(until) >= renewed_after + span, "{until} {span:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_grant_of_a_later_term_is_greater_whatever_the_clock_shows() {
        let folder = std::env::temp_dir().join(format!("ws-grant-{}", std::process::id()));
        let router = local(&folder);
        let span = Duration::from_secs(60);
        let elected = Lease::new("a/1/1", span).in_terms();
        let until = Instant::now() + span;
        elected.set_term(Some(Term { number: 7, until }));
        let first = elected.granted(&router).unwrap();
        assert_eq!(first.term, 7);
        elected.release(&router).unwrap();
        // A move by hand, in the leader's place.
        let by_hand = Lease::new("by-hand/1", span).granted(&router).unwrap();
        assert!(by_hand > first && by_hand.term == 7);
        elected.set_term(Some(Term { number: 8, until }));
        assert!(elected.granted(&router).unwrap() > Grant { nanos: u64::MAX, ..by_hand });
        std::fs::remove_dir_all(folder).unwrap();
    }
}
