//! The objects of a cluster, as its API server has them.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod as PodObject};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::{Pod, WeftNetwork, World};

/// The objects, which follow the API server.
#[derive(Debug)]
pub(crate) struct Observed {
    namespaces: Store<Namespace>,
    pods: Store<PodObject>,
    policies: Store<NetworkPolicy>,
    networks: Store<WeftNetwork>,
    changed: Arc<Notify>,
}

impl Observed {
    /// Follows the objects from now on.
    pub(crate) fn follow(client: &Client) -> Self {
        let changed = Arc::new(Notify::new());
        Self {
            namespaces: follow(Api::all(client.clone()), &changed, |_| {}),
            pods: follow(Api::all(client.clone()), &changed, trim),
            policies: follow(Api::all(client.clone()), &changed, |_| {}),
            networks: follow(Api::all(client.clone()), &changed, |_| {}),
            changed,
        }
    }

    /// Waits until all objects are known.
    pub(crate) async fn ready(&self) {
        // A follower ends with the program only.
        let _ = self.namespaces.wait_until_ready().await;
        let _ = self.pods.wait_until_ready().await;
        let _ = self.policies.wait_until_ready().await;
        let _ = self.networks.wait_until_ready().await;
    }

    /// Waits for a change; those since the last call are one.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the world as it is known, in a fixed order.
    pub(crate) fn world(&self) -> World {
        let namespace = |it: &Arc<Namespace>| {
            let labels = it.metadata.labels.clone().unwrap_or_default();
            Some((it.metadata.name.clone()?, labels))
        };
        let mut pods: Vec<_> = self.pods.state().iter().filter_map(|it| Pod::of(it)).collect();
        pods.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        let key = |it: &NetworkPolicy| (it.metadata.namespace.clone(), it.metadata.name.clone());
        let mut policies: Vec<_> = self.policies().iter().map(|it| (**it).clone()).collect();
        policies.sort_by_key(key);
        World {
            namespaces: self.namespaces.state().iter().filter_map(namespace).collect(),
            pods,
            policies,
            networks: self.networks().iter().map(|it| (**it).clone()).collect(),
        }
    }

    /// Returns the policies.
    pub(crate) fn policies(&self) -> Vec<Arc<NetworkPolicy>> {
        self.policies.state()
    }

    /// Returns the networks.
    pub(crate) fn networks(&self) -> Vec<Arc<WeftNetwork>> {
        self.networks.state()
    }
}

fn follow<K>(api: Api<K>, changed: &Arc<Notify>, trim: fn(&mut K)) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    let (reader, writer) = reflector::store();
    let changed = Arc::clone(changed);
    let events = watcher(api, watcher::Config::default()).default_backoff().modify(move |object| {
        object.meta_mut().managed_fields = None;
        trim(object);
    });
    let mut events = events.reflect(writer).boxed();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            match event {
                Ok(_) => changed.notify_one(),
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), %error, "objects are not followed; what is known stays");
                }
            }
        }
    });
    reader
}

/// Drops the parts of a pod that are long, and that no policy concerns.
fn trim(pod: &mut PodObject) {
    pod.metadata.annotations = None;
    let Some(spec) = &mut pod.spec else { return };
    spec.volumes = None;
    spec.ephemeral_containers = None;
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        (container.env, container.volume_mounts, container.command, container.args) =
            (None, None, None, None);
    }
}
