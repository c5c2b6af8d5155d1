//! The loop of a controller: objects of the cluster change, and the fleet follows, while this one leads.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::fleet::{Fleet, FleetError, Written};
use crate::observe::Observed;
use crate::page::Health;
use crate::report::Reports;
use crate::{Settings, Term, Translation, Verdict, translate};

/// Time for which changes are collected after the first one.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// Time before a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Time between two looks at changes that others make in etcd.
const LOOK: Duration = Duration::from_secs(2);

/// A controller.
pub struct Controller {
    settings: Settings,
    observed: Observed,
    reports: Reports,
    health: Health,
    /// Away while a thread that may block has it.
    fleet: Option<Fleet>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Controller").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Controller {
    /// Returns a controller of a cluster, which follows its objects from now on. Its name in reports is `instance`.
    pub fn new(client: Client, settings: Settings, fleet: Fleet, instance: &str) -> Self {
        let (observed, fleet) = (Observed::follow(&client), Some(fleet));
        let (reports, health) = (Reports::new(client, instance), Health::default());
        Self { settings, observed, reports, health, fleet }
    }

    /// Returns the state that the controller's page shows.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Writes the fleet's objects whenever this is the leader, until `stop` is `true`.
    pub async fn run(
        mut self,
        mut term: watch::Receiver<Option<Term>>,
        mut stop: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = self.observed.ready() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        self.health.set_following();
        while !*stop.borrow() {
            let own = term.borrow_and_update().clone();
            let Some(own) = own else {
                self.health.set_leading(false);
                tokio::select! {
                    _ = term.changed() => {}
                    _ = stop.changed() => {}
                }
                continue;
            };
            let begun = own.clone();
            match self.with_fleet(move |fleet| fleet.begin(&begun)).await {
                Ok(()) => {
                    tracing::info!(holder = own.holder, transitions = own.transitions, "leading");
                    self.health.set_leading(true);
                    self.lead(&mut term, &mut stop).await;
                    self.health.set_leading(false);
                    tracing::info!("leading no longer");
                }
                Err(error) => {
                    tracing::warn!(%error, "this term does not begin");
                    self.health.record_failure(&error);
                    pause(RETRY, &mut stop).await;
                }
            }
        }
    }

    /// Writes the fleet's objects until the term ends.
    async fn lead(
        &mut self,
        term: &mut watch::Receiver<Option<Term>>,
        stop: &mut watch::Receiver<bool>,
    ) {
        let mut due = Some(Instant::now());
        loop {
            let at = due.unwrap_or_else(|| Instant::now() + LOOK);
            tokio::select! {
                _ = stop.changed() => return,
                _ = term.changed() => return,
                () = self.observed.changed() => {
                    due = due.or_else(|| Some(Instant::now() + DEBOUNCE));
                    continue;
                }
                () = sleep_until(at) => {}
            }
            if due.is_none() && !self.others_have_changed().await {
                continue;
            }
            due = match self.reconcile().await {
                Ok(()) => None,
                Err(FleetError::Fenced(holder)) => {
                    tracing::warn!(holder, "fenced: another controller writes");
                    pause(RETRY, stop).await;
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "the fleet is not written; trying again");
                    self.health.record_failure(&error);
                    Some(Instant::now() + RETRY)
                }
            };
        }
    }

    async fn others_have_changed(&mut self) -> bool {
        let looked = self.with_fleet(Fleet::refresh).await;
        self.show_watch();
        match looked {
            Ok(changed) => changed,
            Err(error) => {
                tracing::warn!(%error, "etcd is not followed");
                self.health.record_failure(&error);
                // Once it is followed again the fleet is written, which ends the fault.
                true
            }
        }
    }

    async fn reconcile(&mut self) -> Result<(), FleetError> {
        let (world, settings) = (self.observed.world(), self.settings.clone());
        let work = move |fleet: &mut Fleet| {
            let translation = translate(&settings, &world);
            let written = fleet.write(&translation.objects)?;
            Ok((translation, written))
        };
        let done = self.with_fleet(work).await;
        self.show_watch();
        let (Translation { warnings, mut verdicts, objects }, written) = done?;
        self.health.record_written(&written, objects.len());
        if written.set + written.deleted > 0 {
            let (set, deleted, total) = (written.set, written.deleted, objects.len());
            tracing::info!(set, deleted, objects = total, "fleet written");
        }
        if !written.in_use.is_empty() {
            let networks = format!("{:?}", written.in_use);
            tracing::warn!(networks, "networks that were deleted stay while machines are in them");
        }
        refuse_others(
            &mut verdicts,
            &written,
            self.observed.networks().iter().map(|it| (it.metadata.name.clone(), it.spec.vni)),
        );
        if let Err(error) = self.reports.networks(&self.observed, &verdicts).await {
            tracing::warn!(%error, "the status of networks is not written");
        }
        if let Err(error) = self.reports.policies(&self.observed, &warnings).await {
            tracing::warn!(%error, "events are not written");
        }
        Ok(())
    }

    /// Shows on the page whether changes of others in etcd arrive.
    fn show_watch(&self) {
        self.health.set_watch_lost(self.fleet.as_ref().is_some_and(Fleet::is_lost));
    }

    /// Runs `work`, which blocks, on a thread of its own.
    async fn with_fleet<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Fleet) -> Result<T, FleetError> + Send + 'static,
    ) -> Result<T, FleetError> {
        let mut fleet = self.fleet.take().expect("no other work has it");
        let done = tokio::task::spawn_blocking(move || {
            let result = work(&mut fleet);
            (fleet, result)
        });
        let (fleet, result) = done.await.expect("a panic has been printed");
        self.fleet = Some(fleet);
        result
    }
}

/// Refuses the networks that the fleet has from others.
fn refuse_others(
    verdicts: &mut BTreeMap<String, Verdict>,
    written: &Written,
    networks: impl Iterator<Item = (Option<String>, u32)>,
) {
    for (name, vni) in networks.filter(|(_, vni)| written.not_owned.contains(vni)) {
        let verdict = name.and_then(|name| verdicts.get_mut(&name)).filter(|it| it.is_accepted());
        if let Some(verdict) = verdict {
            *verdict = Verdict::not_owned(vni);
        }
    }
}

async fn pause(span: Duration, stop: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = sleep(span) => {}
        _ = stop.changed() => {}
    }
}
