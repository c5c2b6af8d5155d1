//! The peers of a rule: which addresses they are, and the set of the fleet that has these.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use weft_vpc::Prefix;

use crate::block::prefixes;
use crate::selector::selects;
use crate::{Pod, Protocol, World};

/// The peers of a rule.
#[derive(Debug)]
pub(crate) struct Peers<'a> {
    namespace: &'a str,
    /// No peers stand for all addresses.
    list: &'a [NetworkPolicyPeer],
}

impl<'a> Peers<'a> {
    /// Returns the peers of a rule of a policy in `namespace`.
    pub(crate) fn of(namespace: &'a str, list: Option<&'a Vec<NetworkPolicyPeer>>) -> Self {
        Self { namespace, list: list.map_or(&[], Vec::as_slice) }
    }

    /// Returns `true` if they are all addresses.
    pub(crate) const fn are_all(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns `true` if some of them are pods by selectors.
    pub(crate) fn have_pods(&self) -> bool {
        self.list.iter().any(|peer| peer.ip_block.is_none())
    }

    /// Returns a text that is the same for peers that are the same in any world.
    pub(crate) fn identity(&self) -> String {
        // The policy's namespace matters only to selectors of pods without one of namespaces.
        let is_local =
            |it: &NetworkPolicyPeer| it.ip_block.is_none() && it.namespace_selector.is_none();
        let namespace = if self.list.iter().any(is_local) { self.namespace } else { "" };
        let list = serde_json::to_string(self.list).expect("an object of the API is JSON");
        format!("{namespace}\n{list}")
    }

    /// Returns the prefixes of all peers.
    ///
    /// # Errors
    /// A block is no prefix.
    pub(crate) fn prefixes(&self, world: &World) -> Result<Vec<Prefix>, String> {
        let mut found = BTreeSet::new();
        for peer in self.list {
            match &peer.ip_block {
                Some(block) => found.extend(prefixes(block)?),
                None => {
                    let pods = world.pods.iter().filter(|pod| self.selects(peer, pod, world));
                    found.extend(pods.flat_map(|pod| &pod.addresses).map(|&it| Prefix::of(it)));
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Returns the addresses of those pods among the peers whose port of a name has each number.
    ///
    /// # Errors
    /// A block is no prefix.
    pub(crate) fn with_port(
        &self,
        world: &World,
        port: &(Protocol, String),
    ) -> Result<Vec<(u16, BTreeSet<IpAddr>)>, String> {
        let peers = self.prefixes(world)?;
        let is_peer = |it: &IpAddr| self.are_all() || peers.iter().any(|peer| peer.contains(*it));
        let mut found = std::collections::BTreeMap::<u16, BTreeSet<IpAddr>>::new();
        for pod in &world.pods {
            for &number in pod.ports.get(port).into_iter().flatten() {
                let addresses = pod.addresses.iter().copied().filter(is_peer);
                found.entry(number).or_default().extend(addresses);
            }
        }
        Ok(found.into_iter().collect())
    }

    fn selects(&self, peer: &NetworkPolicyPeer, pod: &Pod, world: &World) -> bool {
        let of_namespace = match &peer.namespace_selector {
            None => pod.namespace == self.namespace,
            Some(selector) => {
                world.namespaces.get(&pod.namespace).is_some_and(|own| selects(selector, own))
            }
        };
        of_namespace && peer.pod_selector.as_ref().is_none_or(|it| selects(it, &pod.labels))
    }
}
