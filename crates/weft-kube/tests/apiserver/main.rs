//! Controllers of a real API server: etcd and kube-apiserver on loopback, objects of the API as a cluster would have them. No node
//! and no kubelet run; pods have the status that kubelets would give them.
#![allow(clippy::disallowed_methods, reason = "tests of real programs give up after a real while")]

mod cluster;

use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, CustomResourceExt};
use serde_json::{Value, json};
use weft_kube::WeftNetwork;
use weft_testkit::pause;

use cluster::{Cluster, LIMIT};

/// A control plane with the definition of networks and the rights of controllers.
struct Test {
    cluster: Cluster,
    runtime: tokio::runtime::Runtime,
    client: Client,
    etcd: weft_etcd::Client,
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl Test {
    fn start(name: &str) -> Option<Self> {
        let cluster = Cluster::start(name)?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let client = runtime.block_on(cluster.client());
        let etcd = cluster.etcd_client();
        let test = Self { cluster, runtime, client, etcd };
        test.wait("the server is ready", |test| {
            let api: Api<Namespace> = Api::all(test.client.clone());
            test.runtime.block_on(api.get("kube-system")).is_ok()
        });
        test.prepare();
        Some(test)
    }

    /// Gives controllers the rights of the chart, and defines networks.
    fn prepare(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        self.create(&definitions, &WeftNetwork::crd());
        let rules = include_str!("../../../../dist/kubernetes/chart/files/controller-rules.yaml");
        let rules: Value = serde_saphyr::from_str(rules).unwrap();
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        self.create(&roles, &from(json!({ "metadata": { "name": "weft-kube" }, "rules": rules })));
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        self.create(&bindings, &from(json!({
            "metadata": { "name": "weft-kube" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "weft-kube" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "weft-kube" }],
        })));
        self.wait("networks are served", |test| {
            let api: Api<WeftNetwork> = Api::all(test.client.clone());
            test.runtime.block_on(api.list(&Default::default())).is_ok()
        });
    }

    fn create<K>(&self, api: &Api<K>, object: &K) -> K
    where
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let created = self.runtime.block_on(api.create(&PostParams::default(), object));
        created.unwrap_or_else(|error| panic!("{error}: {object:?}"))
    }

    fn namespace(&self, name: &str, labels: &Value) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        self.create(&api, &from(json!({ "metadata": { "name": name, "labels": labels } })));
    }

    /// Makes a pod with the status that a kubelet would give it. Returns its UID.
    fn pod(&self, namespace: &str, name: &str, address: &str) -> String {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pod = self.create(&api, &from(json!({
            "metadata": { "name": name, "labels": { "app": name } },
            "spec": { "nodeName": "node-1", "containers": [
                { "name": "a", "image": "a", "ports": [{ "name": "http", "containerPort": 8080 }] },
            ] },
        })));
        let status = json!({ "status": { "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] } });
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(status));
        self.runtime.block_on(api.patch_status(name, &parameters, &patch)).unwrap();
        pod.metadata.uid.unwrap()
    }

    fn policy(&self, namespace: &str, name: &str, spec: &Value) {
        let api: Api<NetworkPolicy> = Api::namespaced(self.client.clone(), namespace);
        self.create(&api, &from(json!({ "metadata": { "name": name }, "spec": spec })));
    }

    fn network(&self, name: &str, spec: &Value) -> kube::Result<WeftNetwork> {
        let object = json!({ "apiVersion": "weft.dev/v1alpha1", "kind": "WeftNetwork",
            "metadata": { "name": name }, "spec": spec });
        // Defaults are the server's.
        let api: Api<kube::core::DynamicObject> =
            Api::all_with(self.client.clone(), &WeftNetwork::api_resource());
        let created = self.runtime.block_on(api.create(&PostParams::default(), &from(object)));
        created.map(|it| from(serde_json::to_value(it).unwrap()))
    }

    /// Waits for a network's condition. Returns its status, reason and message.
    fn accepted(&self, name: &str) -> (String, String, String) {
        let api: Api<WeftNetwork> = Api::all(self.client.clone());
        let condition = || {
            let network = self.runtime.block_on(api.get(name)).ok()?;
            let status = network.status?;
            let is_new = status.observed_generation == network.metadata.generation;
            status.conditions.into_iter().find(|it| it.type_ == "Accepted" && is_new)
        };
        self.wait("the network has a condition", |_| condition().is_some());
        let condition = condition().unwrap();
        (condition.status, condition.reason, condition.message)
    }

    fn get(&self, key: &str) -> Option<Value> {
        let pair = self.etcd.get(&format!("/weft/v1/{key}")).unwrap()?;
        Some(serde_json::from_slice(&pair.value).unwrap())
    }

    fn put(&self, key: &str, value: &str) {
        self.etcd.put(&format!("/weft/v1/{key}"), value.as_bytes()).unwrap();
    }

    /// Returns the policies of a pod's port.
    fn groups(&self, uid: &str) -> Option<Vec<String>> {
        let object = self.get(&format!("port-policies/node-1/k8s.test.{uid}"))?;
        Some(from(object["security-groups"].clone()))
    }

    /// Returns the holder of the fence.
    fn leader(&self) -> Option<String> {
        let pair = self.etcd.get("/weft-kube/k8s.test/leader").unwrap()?;
        let term: Value = serde_json::from_slice(&pair.value).unwrap();
        Some(term["holder"].as_str().unwrap().to_owned())
    }

    #[track_caller]
    fn wait(&self, what: &str, is_true: impl Fn(&Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !is_true(self) {
            assert!(
                Instant::now() < until,
                "not within {LIMIT:?}: {what}\n{}",
                self.cluster.logs()
            );
            (0..20).for_each(|_| pause());
        }
    }
}

const ISOLATED: &str = r#"{"podSelector":{"matchLabels":{"app":"web"}},
    "ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"cart"}}}],"ports":[{"port":"http"}]}]}"#;

#[test]
fn networks_are_written_and_their_status_says_so() {
    let Some(mut test) = Test::start("networks") else { return };
    test.put("networks/200/settings", r#"{"reliable":false}"#);
    test.cluster.start_controller();
    test.network("pods", &json!({ "vni": 100, "gateways": ["10.244.255.254/16"] })).unwrap();
    let (status, reason, _) = test.accepted("pods");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Written"));
    let network = json!({ "reliable": true, "in-order": true, "gateways": ["10.244.255.254/16"], "owner": "k8s.test" });
    assert_eq!(test.get("networks/100/settings"), Some(network));

    // What the schema refuses, and what it cannot know.
    for (spec, words) in [
        (json!({ "vni": 16_777_216 }), "spec.vni"),
        (json!({ "vni": 7, "gateways": ["10.0.0.1"] }), "spec.gateways[0]"),
        (json!({ "vni": "seven" }), "spec.vni"),
        (json!({}), "spec.vni"),
    ] {
        let error = test.network("bad", &spec).unwrap_err().to_string();
        assert!(error.contains(words), "{spec}: {error}");
    }
    let api: Api<WeftNetwork> = Api::all(test.client.clone());
    let patch = |spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        test.runtime.block_on(api.patch("pods", &PatchParams::default(), &patch))
    };
    let error = patch(json!({ "vni": 101 })).unwrap_err().to_string();
    assert!(error.contains("vni cannot be changed"), "{error}");
    test.network("late", &json!({ "vni": 100 })).unwrap();
    assert_eq!(test.accepted("late").1, "VniTaken");
    test.network("wrong", &json!({ "vni": 9, "gateways": ["10.0.0.1/64"] })).unwrap();
    let (_, reason, message) = test.accepted("wrong");
    assert!(reason == "Invalid" && message.contains("spec.gateways = 10.0.0.1/64"), "{message}");
    test.network("theirs", &json!({ "vni": 200 })).unwrap();
    let (_, reason, message) = test.accepted("theirs");
    assert!(
        reason == "NotOwned" && message.contains("weft fleet del networks/200/settings"),
        "{message}"
    );

    patch(json!({ "reliable": false })).unwrap();
    test.wait("the change is written", |test| {
        test.get("networks/100/settings").is_some_and(|it| it["reliable"] == json!(false))
    });
    for name in ["late", "theirs", "pods"] {
        test.runtime.block_on(api.delete(name, &DeleteParams::default())).unwrap();
    }
    test.wait("the network is deleted", |test| test.get("networks/100/settings").is_none());
    assert_eq!(test.get("networks/200/settings"), Some(json!({ "reliable": false })));
}

#[test]
fn policies_follow_pods_and_only_own_objects_are_touched() {
    let Some(mut test) = Test::start("policies") else { return };
    test.put("policies/set/mine", r#"["10.0.0.0/8"]"#);
    test.namespace("shop", &json!({ "team": "a" }));
    let web = test.pod("shop", "web", "10.244.0.5");
    test.cluster.start_controller();
    test.wait("the pod is known", |test| test.groups(&web) == Some(vec![]));
    let isolated: Value = serde_json::from_str(ISOLATED).unwrap();
    test.policy("shop", "web", &isolated);
    test.wait("the pod is isolated", |test| test.groups(&web).is_some_and(|it| it.len() == 3));
    let groups = test.groups(&web).unwrap();
    assert!(groups[0].starts_with("k8s.test.shop.web."), "{groups:?}");
    assert_eq!(groups[1..], ["k8s.test.allow-egress", "k8s.test.nodes"]);
    let group = test.get(&format!("policies/security-group/{}", groups[0])).unwrap();
    let rule = group["rules"][0].as_str().unwrap();
    assert!(rule.contains("allow ingress tcp from @") && rule.contains("port 8080"), "{rule}");
    let set = rule.split_whitespace().find_map(|word| word.strip_prefix('@')).unwrap().to_owned();
    assert_eq!(test.get(&format!("policies/set/{set}")), Some(json!([])));
    // A peer appears: only its set changes.
    test.pod("shop", "cart", "10.244.0.6");
    test.wait("the peer is in the set", |test| {
        test.get(&format!("policies/set/{set}")) == Some(json!(["10.244.0.6"]))
    });
    // Others change what is the controller's.
    test.put(&format!("policies/set/{set}"), r#"["0.0.0.0/0"]"#);
    test.wait("the change is undone", |test| {
        test.get(&format!("policies/set/{set}")) == Some(json!(["10.244.0.6"]))
    });
    // What has no equivalent.
    test.policy("shop", "sctp", &json!({ "podSelector": {}, "ingress": [{ "ports": [{ "protocol": "SCTP", "port": 7 }] }] }));
    let events: Api<Event> = Api::namespaced(test.client.clone(), "shop");
    test.wait("an event names the policy", |test| {
        let list = test.runtime.block_on(events.list(&Default::default())).unwrap();
        list.items.iter().any(|it| {
            let name = it.regarding.as_ref().and_then(|it| it.name.as_deref());
            name == Some("sctp") && it.note.as_ref().is_some_and(|note| note.contains("SCTP"))
        })
    });
    let policies: Api<NetworkPolicy> = Api::namespaced(test.client.clone(), "shop");
    for name in ["web", "sctp"] {
        test.runtime.block_on(policies.delete(name, &DeleteParams::default())).unwrap();
    }
    test.wait("nothing isolates the pod", |test| test.groups(&web) == Some(vec![]));
    test.wait("the group is deleted", |test| {
        test.get(&format!("policies/security-group/{}", groups[0])).is_none()
            && test.get(&format!("policies/set/{set}")).is_none()
    });
    let pods: Api<Pod> = Api::namespaced(test.client.clone(), "shop");
    test.runtime
        .block_on(
            pods.delete(
                "web",
                &DeleteParams { grace_period_seconds: Some(0), ..Default::default() },
            ),
        )
        .unwrap();
    test.wait("the pod's policies are deleted", |test| test.groups(&web).is_none());
    assert_eq!(test.get("policies/set/mine"), Some(json!(["10.0.0.0/8"])));
}

#[test]
fn a_paused_leader_is_replaced_and_fenced() {
    let Some(mut test) = Test::start("leader") else { return };
    test.namespace("shop", &json!({}));
    let first = test.cluster.start_controller();
    test.wait("the first one leads", |test| test.leader().is_some());
    let old = test.leader().unwrap();
    let second = test.cluster.start_controller();
    let web = test.pod("shop", "web", "10.244.0.5");
    test.wait("the pod is known", |test| test.groups(&web).is_some());
    assert_eq!(test.leader().as_ref(), Some(&old), "the second one waits");
    for (controller, state) in [(first, "ok, leads"), (second, "ok, stands by")] {
        test.wait("the page says so", |test| {
            test.cluster.readiness(controller).as_deref() == Some(state)
        });
    }

    test.cluster.pause(first);
    test.wait("the second one leads", |test| {
        test.leader().is_some_and(|it| it != old)
            && test.cluster.readiness(second).as_deref() == Some("ok, leads")
    });
    let cart = test.pod("shop", "cart", "10.244.0.6");
    test.wait("it writes", |test| test.groups(&cart).is_some());
    let new = test.leader();
    // Its world is an old one when it goes on.
    test.cluster.resume(first);
    test.wait("the first one notices", |test| {
        let log = test.cluster.log(first);
        log.contains("fenced") || log.contains("leading no longer")
    });
    let isolated: Value = serde_json::from_str(ISOLATED).unwrap();
    test.policy("shop", "web", &isolated);
    test.wait("the pod is isolated", |test| test.groups(&web).is_some_and(|it| it.len() == 3));
    assert_eq!(test.leader(), new);
    assert!(!test.cluster.log(second).contains("leading no longer"), "{}", test.cluster.logs());
    let leases: Api<Lease> = Api::namespaced(test.client.clone(), "kube-system");
    let lease = test.runtime.block_on(leases.get("weft-test")).unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity, new);
}

#[test]
fn a_server_that_restarts_and_history_that_is_gone_lose_nothing() {
    let Some(mut test) = Test::start("restart") else { return };
    test.namespace("shop", &json!({}));
    let controller = test.cluster.start_controller();
    let web = test.pod("shop", "web", "10.244.0.5");
    test.wait("the pod is known", |test| test.groups(&web).is_some());
    let key = format!("port-policies/node-1/k8s.test.{web}");
    test.cluster.without_server(|_| {});
    test.wait("the server is back", |test| {
        let api: Api<Namespace> = Api::all(test.client.clone());
        test.runtime.block_on(api.get("shop")).is_ok()
    });
    let cart = test.pod("shop", "cart", "10.244.0.6");
    test.wait("the new pod is known", |test| test.groups(&cart).is_some());
    assert!(test.get(&key).is_some());

    // The controller misses a deletion, and the history that would tell it.
    test.cluster.pause(controller);
    let deleted = test.etcd.delete(&format!("/weft/v1/{key}")).unwrap();
    test.etcd.compact(deleted.next()).or_else(|_| test.etcd.compact(deleted)).unwrap();
    test.cluster.resume(controller);
    test.wait("what was deleted is back", |test| test.get(&key).is_some());
    let last = test.pod("shop", "last", "10.244.0.7");
    test.wait("the last pod is known", |test| test.groups(&last).is_some());
}
