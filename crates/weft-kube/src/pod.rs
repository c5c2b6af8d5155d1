//! A pod as network policies see it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod as PodObject;

use crate::Protocol;

/// Names and values of an object.
pub type Labels = BTreeMap<String, String>;

/// A pod that has an interface of its own in the cluster's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, by which the port on its node knows it.
    pub uid: String,
    /// Its node, once it has one.
    pub node: Option<String>,
    /// Its labels.
    pub labels: Labels,
    /// Its addresses, once it has them.
    pub addresses: BTreeSet<IpAddr>,
    /// The numbers of its named ports.
    pub ports: BTreeMap<(Protocol, String), BTreeSet<u16>>,
}

impl Pod {
    /// Reads an object. Returns `None` for a pod that policies do not concern: one in the network of its node, or one that
    /// has ended, whose address another pod may have by now.
    pub fn of(object: &PodObject) -> Option<Self> {
        let (metadata, spec) = (&object.metadata, object.spec.as_ref()?);
        let status = object.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        if spec.host_network == Some(true) || matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let first = status.and_then(|status| status.pod_ip.clone());
        let others = status.and_then(|status| status.pod_ips.clone()).unwrap_or_default();
        let addresses = first.into_iter().chain(others.into_iter().map(|it| it.ip));
        let mut ports: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
        // A sidecar is an init container that goes on.
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|it| it.restart_policy.as_deref() == Some("Always"));
        for port in spec.containers.iter().chain(sidecars).flat_map(|it| it.ports.iter().flatten())
        {
            let protocol = Protocol::named(port.protocol.as_deref());
            let number = u16::try_from(port.container_port).ok();
            if let (Some(name), Some(protocol), Some(number)) = (&port.name, protocol, number) {
                ports.entry((protocol, name.clone())).or_default().insert(number);
            }
        }
        Some(Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone()?,
            node: spec.node_name.clone().filter(|name| !name.is_empty()),
            labels: metadata.labels.clone().unwrap_or_default(),
            addresses: addresses.filter_map(|text| text.parse().ok()).collect(),
            ports,
        })
    }
}
