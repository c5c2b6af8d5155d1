//! The election of a leader among the controllers of a cluster, by a Lease of Kubernetes.
//!
//! A Lease alone does not keep a paused leader from writing after it has resumed. Each holder has a [`Term`], which etcd compares.
#![allow(clippy::disallowed_methods, reason = "a lease is timed by a real clock")]

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use tokio::sync::watch;

use crate::Term;

/// A candidate.
#[derive(Debug)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    holder: String,
    /// The time after which a Lease that is not renewed may be taken.
    duration: Duration,
    /// The Lease of another holder, and the time since which it has not changed.
    observed: Option<(LeaseSpec, Instant)>,
}

impl Election {
    /// Returns a candidate for the Lease `name`. No two processes may have the same `holder`.
    pub fn new(api: Api<Lease>, name: &str, holder: &str, duration: Duration) -> Self {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        Self { api, name, holder, duration, observed: None }
    }

    /// Takes part until `term` has no receiver, and publishes the own term while this is the leader.
    pub async fn run(mut self, term: watch::Sender<Option<Term>>) {
        let mut renewed = Instant::now();
        while !term.is_closed() {
            let held = match self.hold().await {
                Ok(held) => {
                    renewed = if held.is_some() { Instant::now() } else { renewed };
                    held
                }
                // A leader whose renewals fail stays one until others may take the Lease.
                Err(_) if renewed.elapsed() < self.duration * 2 / 3 => term.borrow().clone(),
                Err(error) => {
                    tracing::warn!(%error, "the Lease is not reached");
                    None
                }
            };
            term.send_if_modified(|known| {
                let is_new = *known != held;
                *known = held;
                is_new
            });
            let pause = tokio::time::sleep(self.duration / 5);
            tokio::select! {
                () = pause => {}
                () = term.closed() => {}
            }
        }
        if let Err(error) = self.release().await {
            tracing::debug!(%error, "the Lease runs out by itself");
        }
    }

    /// Renews the Lease, or takes it if it is free. Returns the own term, or `None` while another one holds it.
    async fn hold(&mut self) -> kube::Result<Option<Term>> {
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.spec(None)) };
            return self.written(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder != self.holder && !holder.is_empty() && !self.is_over(&spec) {
            return Ok(None);
        }
        let lease = Lease { spec: Some(self.spec(Some(&spec))), ..lease };
        self.written(self.api.replace(&self.name, &PostParams::default(), &lease).await)
    }

    /// Returns `true` if a Lease of another holder has not been renewed for its time. Clocks of others are not compared.
    fn is_over(&mut self, spec: &LeaseSpec) -> bool {
        let seconds = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
        let duration = seconds.map_or(self.duration, Duration::from_secs);
        match &self.observed {
            Some((known, since)) if known == spec => since.elapsed() > duration,
            _ => {
                self.observed = Some((spec.clone(), Instant::now()));
                false
            }
        }
    }

    /// Returns the Lease as this holder writes it.
    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let is_own = before.is_some_and(|it| it.holder_identity.as_ref() == Some(&self.holder));
        let transitions = before.and_then(|it| it.lease_transitions).unwrap_or_default();
        let acquired = before.filter(|_| is_own).and_then(|it| it.acquire_time.clone());
        LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            acquire_time: acquired.or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if is_own {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        }
    }

    /// Returns the own term if the Lease was written; another one may have been faster.
    fn written(&mut self, result: kube::Result<Lease>) -> kube::Result<Option<Term>> {
        let lease = match result {
            Err(kube::Error::Api(status)) if status.code == 409 => return Ok(None),
            result => result?,
        };
        self.observed = None;
        let created = lease.metadata.creation_timestamp.map(|time| time.0.to_string());
        let transitions = lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        let (created, holder) = (created.unwrap_or_default(), self.holder.clone());
        Ok(Some(Term { created, transitions, holder }))
    }

    /// Frees the Lease, so that others need not wait for its end.
    async fn release(&self) -> kube::Result<()> {
        let Some(lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
        let spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_ref() != Some(&self.holder) {
            return Ok(());
        }
        let spec = LeaseSpec { holder_identity: Some(String::new()), ..spec };
        let lease = Lease { spec: Some(spec), ..lease };
        self.api.replace(&self.name, &PostParams::default(), &lease).await.map(drop)
    }
}
