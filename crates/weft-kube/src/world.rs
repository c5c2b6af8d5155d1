//! A cluster, as far as it matters to the network.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::network::WeftNetwork;
use crate::{Labels, Pod};

/// The objects of a cluster that matter.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The labels of namespaces.
    pub namespaces: BTreeMap<String, Labels>,
    /// The pods.
    pub pods: Vec<Pod>,
    /// The policies.
    pub policies: Vec<NetworkPolicy>,
    /// The networks.
    pub networks: Vec<WeftNetwork>,
}
