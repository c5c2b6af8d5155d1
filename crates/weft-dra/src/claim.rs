//! The allocation in the status of a ResourceClaim: the shares of the node's device that it has.

use serde_json::Value;

use crate::DRIVER;
use crate::slice::{QUEUE_PAIRS, quantity};

/// A share of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The name of the daemon's device, unique on the node.
    pub(crate) name: String,
    /// The request of the claim that it answers.
    pub(crate) request: String,
    /// The pool of the device.
    pub(crate) pool: String,
    /// The name of the device in its pool.
    pub(crate) device: String,
    /// The id by which the scheduler tells shares of one device apart.
    pub(crate) id: Option<String>,
    /// The queue pairs that it may have at a time.
    pub(crate) queue_pairs: Option<u32>,
    /// The user whose processes may use it, besides root.
    pub(crate) owner: Option<u32>,
}

/// Returns the prefix of the names of a claim's devices in the daemon: 48 random bits of its UID. UCX knows devices by
/// names of at most 15 bytes, and a claim has at most 32 results.
pub(crate) fn prefix(uid: &str) -> String {
    uid.chars().filter(char::is_ascii_alphanumeric).take(12).chain(['-']).collect()
}

/// Returns `true` if a device of the daemon was made for a claim. Until version 0.2.0 the names had the whole UID; such devices
/// are there until their claims end.
pub(crate) fn is_device_of(name: &str, uid: &str) -> bool {
    [prefix(uid), format!("dra-{uid}-")].iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the shares of a claim.
///
/// # Errors
/// It is another claim of that name, is not allocated, or has parameters that this driver does not know.
pub(crate) fn shares(claim: &Value, uid: &str) -> Result<Vec<Share>, String> {
    if claim["metadata"]["uid"] != uid {
        return Err(format!("the claim with UID {uid} is gone; its name is that of another one"));
    }
    let devices = &claim["status"]["allocation"]["devices"];
    let results = devices["results"].as_array().ok_or("the claim is not allocated")?;
    let own = results.iter().filter(|result| result["driver"] == DRIVER).enumerate();
    own.map(|(index, result)| {
        let text = |key: &str| result[key].as_str().map(str::to_owned);
        let request = text("request").ok_or("a result has no request")?;
        let consumed = result["consumedCapacity"][QUEUE_PAIRS].as_str();
        let queue_pairs = consumed.map(|consumed| {
            let number = quantity(consumed).and_then(|number| u32::try_from(number).ok());
            number.ok_or_else(|| format!("{QUEUE_PAIRS} is {consumed}"))
        });
        Ok(Share {
            name: format!("{}{index}", prefix(uid)),
            owner: owner(devices, &request)?,
            pool: text("pool").ok_or("a result has no pool")?,
            device: text("device").ok_or("a result has no device")?,
            id: text("shareID"),
            queue_pairs: queue_pairs.transpose()?,
            request,
        })
    })
    .collect()
}

/// Returns the user in the parameters for a request. Those of the claim come after those of the class, and prevail.
fn owner(devices: &Value, request: &str) -> Result<Option<u32>, String> {
    // `part/alternative` is an alternative of a request, whose name alone may be given too.
    let main = request.split('/').next().unwrap_or(request);
    let is_for = |config: &&Value| {
        let requests = config["requests"].as_array();
        let is_named = |named: &Value| named == request || named == main;
        config["opaque"]["driver"] == DRIVER
            && requests.is_none_or(|all| all.is_empty() || all.iter().any(is_named))
    };
    let configs = devices["config"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut owner = None;
    for config in configs.iter().filter(is_for) {
        let parameters = &config["opaque"]["parameters"];
        let known = parameters.as_object().ok_or("parameters are not an object")?;
        if let Some(key) = known.keys().find(|key| *key != "owner") {
            return Err(format!("unknown parameter {key}; there is owner, the number of a user"));
        }
        let user = parameters["owner"].as_u64().and_then(|user| u32::try_from(user).ok());
        owner = Some(user.ok_or("the parameter owner is not the number of a user")?);
    }
    Ok(owner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim() -> Value {
        let result = |request: &str, driver: &str| {
            json!({
                "request": request, "driver": driver, "pool": "h0", "device": "weft0", "shareID": "a-b",
                "consumedCapacity": { "queuePairs": "1k" },
            })
        };
        let config = |source: &str, requests: &[&str], parameters: Value| {
            let opaque = json!({ "driver": DRIVER, "parameters": parameters });
            json!({ "source": source, "requests": requests, "opaque": opaque })
        };
        json!({
            "metadata": { "uid": "7" },
            "status": { "allocation": { "devices": {
                "results": [result("gpu", "other.dev"), result("one", DRIVER), result("two/first", DRIVER)],
                "config": [config("FromClass", &[], json!({ "owner": 1 })), config("FromClaim", &["two"], json!({ "owner": 2 }))],
            } } },
        })
    }

    #[test]
    fn each_result_of_this_driver_is_a_share() {
        let found = shares(&claim(), "7").unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|share| {
                (share.name.as_str(), share.request.as_str(), share.queue_pairs, share.owner)
            })
            .collect();
        let one = ("7-0", "one", Some(1000), Some(1));
        assert_eq!(shown, [one, ("7-1", "two/first", Some(1000), Some(2))]);
        assert_eq!(found[0].id.as_deref(), Some("a-b"));
    }

    #[test]
    fn names_of_devices_have_at_most_the_length_that_ucx_knows() {
        let prefix = prefix("639c79ca-fd83-4b14-b581-fc8f8378ee82");
        assert_eq!(prefix, "639c79cafd83-");
        assert!(format!("{prefix}31").len() < 16);
    }

    #[test]
    fn devices_of_a_claim_are_known_by_names_of_this_and_of_former_versions() {
        let (uid, other) =
            ("639c79ca-fd83-4b14-b581-fc8f8378ee82", "639c79ca-fd84-4b14-b581-fc8f8378ee82");
        for name in ["639c79cafd83-0", "639c79cafd83-31", &format!("dra-{uid}-0")] {
            assert!(is_device_of(name, uid) && !is_device_of(name, other), "{name}");
        }
        for name in ["weft0", "dra-", "639c79cafd8", "dra-639c79ca-0"] {
            assert!(!is_device_of(name, uid), "{name}");
        }
    }

    #[test]
    fn another_claim_of_the_name_and_wrong_parameters_are_errors() {
        assert!(shares(&claim(), "8").unwrap_err().contains("another one"));
        assert!(
            shares(&json!({ "metadata": { "uid": "7" } }), "7")
                .unwrap_err()
                .contains("not allocated")
        );
        for (parameters, part) in [
            (json!({ "owner": "root" }), "not the number"),
            (json!({ "owners": 1 }), "unknown parameter owners"),
            (json!(1), "not an object"),
        ] {
            let mut wrong = claim();
            wrong["status"]["allocation"]["devices"]["config"][0]["opaque"]["parameters"] =
                parameters;
            let error = shares(&wrong, "7").unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
