//! The ResourceSlice of the node: one device, which any number of claims share, and whose queue pairs they consume.

use std::time::Duration;

use anyhow::{Context, Result};
use hyper::Method;
use serde_json::{Value, json};

use crate::DRIVER;
use crate::api::Api;

/// The folder of all ResourceSlices in the API.
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// The time between two looks at the slice. Kubelet removes those of drivers that are away for long after its start.
const INTERVAL: Duration = Duration::from_secs(5);
/// The name of the device in the slice.
pub(crate) const DEVICE: &str = "weft0";
/// The capacity that claims consume.
pub(crate) const QUEUE_PAIRS: &str = "queuePairs";

/// The offer of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Queue pairs of the device.
    pub(crate) queue_pairs: u32,
    /// Queue pairs of a claim that names no number.
    pub(crate) default: u32,
}

/// Keeps the node's slice as it has to be, until the task is dropped.
pub(crate) async fn keep(api: &Api, node: &str, offer: Offer) {
    let mut said = String::new();
    loop {
        // The same error again and again is one line.
        let error = publish(api, node, offer).await.err().map(|error| format!("{error:#}"));
        let error = error.unwrap_or_default();
        if !error.is_empty() && error != said {
            eprintln!("weft-dra: cannot publish the ResourceSlice: {error}");
        }
        said = error;
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Creates the slice, or replaces one that differs.
async fn publish(api: &Api, node: &str, offer: Offer) -> Result<()> {
    let name = format!("{node}-{DRIVER}");
    let path = format!("{SLICES}/{name}");
    let Some(mut present) = api.get(&path).await? else {
        let owner = api.get(&format!("/api/v1/nodes/{node}")).await?;
        let owner = owner.with_context(|| format!("there is no node {node}"))?;
        let uid = owner["metadata"]["uid"].as_str().context("the node has no UID")?;
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": name,
                // It goes with its node.
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true }],
            },
            "spec": spec(node, offer, 1),
        });
        return api.write(Method::POST, SLICES, &slice).await;
    };
    let generation = present["spec"]["pool"]["generation"].as_u64().unwrap_or(0);
    if is_covered(&spec(node, offer, generation), &present["spec"]) {
        return Ok(());
    }
    present["spec"] = spec(node, offer, generation + 1);
    api.write(Method::PUT, &path, &present).await
}

fn spec(node: &str, offer: Offer, generation: u64) -> Value {
    let Offer { queue_pairs, default } = offer;
    let text = |number: u32| number.to_string();
    json!({
        "driver": DRIVER,
        "nodeName": node,
        "pool": { "name": node, "generation": generation, "resourceSliceCount": 1 },
        "devices": [{
            "name": DEVICE,
            "allowMultipleAllocations": true,
            "attributes": { "kind": { "string": "rdma" } },
            "capacity": {
                QUEUE_PAIRS: {
                    "value": text(queue_pairs),
                    "requestPolicy": {
                        "default": text(default),
                        "validRange": { "min": "1", "max": text(queue_pairs) },
                    },
                },
            },
        }],
    })
}

/// Returns `true` if `present` has all that `wanted` has; the server adds defaults, and writes quantities in its own form.
fn is_covered(wanted: &Value, present: &Value) -> bool {
    match (wanted, present) {
        (Value::Object(wanted), Value::Object(present)) => wanted
            .iter()
            .all(|(key, value)| present.get(key).is_some_and(|there| is_covered(value, there))),
        (Value::Array(wanted), Value::Array(present)) => {
            wanted.len() == present.len()
                && wanted.iter().zip(present).all(|(one, other)| is_covered(one, other))
        }
        (Value::String(wanted), Value::String(present)) => {
            wanted == present || quantity(wanted).is_some_and(|one| Some(one) == quantity(present))
        }
        _ => wanted == present,
    }
}

/// Parses a quantity of Kubernetes that is a whole number.
pub(crate) fn quantity(text: &str) -> Option<u64> {
    const SUFFIXES: [(&str, u64); 6] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let found =
        SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (digits, factor) = found.unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_with_the_servers_defaults_is_not_written_again() {
        let offer = Offer { queue_pairs: 32_000, default: 64 };
        let mut present = spec("h0", offer, 3);
        present["devices"][0]["capacity"][QUEUE_PAIRS]["value"] = json!("32k");
        present["devices"][0]["allNodes"] = json!(false);
        assert!(is_covered(&spec("h0", offer, 3), &present));
        let other = Offer { queue_pairs: 31_000, default: 64 };
        assert!(!is_covered(&spec("h0", other, 3), &present));
        assert!(!is_covered(&spec("h1", offer, 3), &present));
    }

    #[test]
    fn quantities_have_suffixes() {
        let all = ["64", "1k", "2Ki", "3M", "-1", "1.5", "", "k"].map(quantity);
        let none = None;
        assert_eq!(
            all,
            [Some(64), Some(1000), Some(2048), Some(3_000_000), none, none, none, none]
        );
    }
}
