//! The reports to the authors of objects: the status of networks, and events of policies.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource, ResourceExt};

use crate::network::ACCEPTED;
use crate::observe::Observed;
use crate::{Verdict, WeftNetwork, WeftNetworkStatus};

/// The name of the controller in objects.
pub(crate) const NAME: &str = "weft-kube";

/// The reports that were made.
pub(crate) struct Reports {
    client: Client,
    recorder: Recorder,
    /// Warnings by the UID of their policy.
    warned: BTreeMap<String, BTreeSet<String>>,
}

impl Reports {
    pub(crate) fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter { controller: NAME.into(), instance: Some(instance.to_owned()) };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { client, recorder, warned: BTreeMap::new() }
    }

    /// Writes the status of networks that have another one.
    ///
    /// # Errors
    /// The first request that failed.
    pub(crate) async fn networks(
        &self,
        observed: &Observed,
        verdicts: &BTreeMap<String, Verdict>,
    ) -> kube::Result<()> {
        let api: Api<WeftNetwork> = Api::all(self.client.clone());
        for network in observed.networks() {
            let Some(verdict) = verdicts.get(&network.name_any()) else { continue };
            let Some(status) = changed_status(&network, verdict) else { continue };
            let patch = serde_json::json!({ "status": status });
            let patched = api
                .patch_status(&network.name_any(), &PatchParams::default(), &Patch::Merge(patch))
                .await;
            match patched {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                patched => drop(patched?),
            }
        }
        Ok(())
    }

    /// Publishes warnings that are new.
    ///
    /// # Errors
    /// The first request that failed.
    pub(crate) async fn policies(
        &mut self,
        observed: &Observed,
        warnings: &BTreeMap<(String, String), BTreeSet<String>>,
    ) -> kube::Result<()> {
        let policies = observed.policies();
        let uids: BTreeSet<_> = policies.iter().filter_map(|it| it.uid()).collect();
        self.warned.retain(|uid, _| uids.contains(uid));
        for policy in policies {
            let key = (policy.namespace().unwrap_or_default(), policy.name_any());
            let (Some(texts), Some(uid)) = (warnings.get(&key), policy.uid()) else { continue };
            for text in texts {
                if self.warned.get(&uid).is_some_and(|known| known.contains(text)) {
                    continue;
                }
                let event = Event {
                    type_: EventType::Warning,
                    reason: "NotTranslated".into(),
                    note: Some(text.clone()),
                    action: "Translate".into(),
                    secondary: None,
                };
                self.recorder.publish(&event, &policy.object_ref(&())).await?;
                self.warned.entry(uid.clone()).or_default().insert(text.clone());
            }
        }
        Ok(())
    }
}

/// Returns the status that a network has to have, unless it has that one.
fn changed_status(network: &WeftNetwork, verdict: &Verdict) -> Option<WeftNetworkStatus> {
    let known = network.status.clone().unwrap_or_default();
    let status = if verdict.is_accepted() { "True" } else { "False" };
    let before = known.conditions.iter().find(|it| it.type_ == ACCEPTED);
    let since = before.filter(|it| it.status == status).map(|it| it.last_transition_time.clone());
    let condition = Condition {
        type_: ACCEPTED.into(),
        status: status.into(),
        reason: verdict.reason.into(),
        message: verdict.message.clone(),
        observed_generation: network.metadata.generation,
        last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
    };
    let others = known.conditions.iter().filter(|it| it.type_ != ACCEPTED).cloned();
    let conditions = others.chain([condition]).collect();
    let status = WeftNetworkStatus { observed_generation: network.metadata.generation, conditions };
    (status != known).then_some(status)
}
