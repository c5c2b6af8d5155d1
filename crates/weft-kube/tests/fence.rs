//! The fleet in a real etcd as controllers write it: differences alone, their own objects alone, and only the last leader.
#![allow(clippy::disallowed_methods, reason = "etcd is waited for in real time")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_etcd::{Client, EtcdSettings};
use weft_kube::{Fleet, FleetError, Owner, Term, Written};
use weft_testkit::etcd::{Etcd, etcd_is_missing};
use weft_testkit::pause;
use weft_vswitch::fleet::{Key, NetworkObject, Object};

const PREFIX: &str = "/weft";
const LIMIT: Duration = Duration::from_secs(60);

struct World {
    client: Client,
    settings: EtcdSettings,
    _etcd: Etcd,
}

impl World {
    fn start(name: &str) -> Option<Self> {
        if etcd_is_missing(&format!("fence, {name}")) {
            return None;
        }
        let etcd = Etcd::start_plain(name, 1);
        let settings: EtcdSettings = toml::from_str(&etcd.toml()).unwrap();
        Some(Self { client: Client::new(&settings).unwrap(), settings, _etcd: etcd })
    }

    fn fleet(&self) -> Fleet {
        let client = Client::new(&self.settings).unwrap();
        Fleet::new(client, PREFIX, Owner::new("test").unwrap())
    }

    fn put(&self, key: &str, value: &str) {
        self.client.put(&format!("{PREFIX}/v1/{key}"), value.as_bytes()).unwrap();
    }

    fn get(&self, key: &str) -> Option<String> {
        let pair = self.client.get(&format!("{PREFIX}/v1/{key}")).unwrap()?;
        Some(String::from_utf8(pair.value).unwrap())
    }
}

fn term(transitions: i32) -> Term {
    let (created, holder) = ("2026-01-01T00:00:00Z".into(), format!("holder-{transitions}"));
    Term { created, transitions, holder }
}

fn set(name: &str, prefix: &str) -> (Key, Object) {
    (Key::Set(format!("k8s.test.{name}")), Object::Set(vec![prefix.parse().unwrap()]))
}

fn network(vni: u32, owner: &str) -> (Key, Object) {
    let network = NetworkObject { owner: Some(owner.to_owned()), ..NetworkObject::default() };
    (Key::Network(vni), Object::Network(network))
}

#[test]
fn only_differences_of_own_objects_are_written() {
    let Some(world) = World::start("own") else { return };
    world.put("policies/set/mine", r#"["10.0.0.0/8"]"#);
    world.put("policies/set/k8s.other.a", r#"["10.0.0.0/8"]"#);
    world.put("networks/7/settings", r#"{"reliable":false}"#);
    world.put("policies/set/k8s.test.old", r#"["10.0.0.0/8"]"#);
    // What hosts would refuse is replaced all the same.
    world.put("policies/set/k8s.test.a", "{");
    let mut fleet = world.fleet();
    assert!(
        matches!(fleet.write(&BTreeMap::new()), Err(FleetError::Fenced(_))),
        "no term has begun"
    );
    fleet.begin(&term(1)).unwrap();
    let wanted = BTreeMap::from([
        set("a", "10.1.0.0/16"),
        set("b", "10.2.0.0/16"),
        network(7, "k8s.test"),
        network(8, "k8s.test"),
    ]);
    let written = fleet.write(&wanted).unwrap();
    assert_eq!((written.set, written.deleted), (3, 1), "{written:?}");
    assert_eq!(written.not_owned.into_iter().collect::<Vec<_>>(), [7]);
    assert_eq!(world.get("policies/set/k8s.test.a").unwrap(), r#"["10.1.0.0/16"]"#);
    assert_eq!(world.get("policies/set/k8s.test.old"), None);
    assert_eq!(world.get("networks/7/settings").unwrap(), r#"{"reliable":false}"#);
    let again = fleet.write(&wanted).unwrap();
    assert_eq!((again.set, again.deleted), (0, 0));

    // A change by others is undone, and a network stays until its machines are gone.
    world.put("policies/set/k8s.test.b", r#"["192.0.2.0/24"]"#);
    let machine = "networks/8/machines/02:00:00:00:07:01";
    world.put(machine, r#"{"host":"h1"}"#);
    let until = Instant::now() + LIMIT;
    while fleet.write(&BTreeMap::from([set("b", "10.2.0.0/16")])).is_err()
        || world.get("policies/set/k8s.test.b").unwrap() != r#"["10.2.0.0/16"]"#
    {
        assert!(Instant::now() < until, "the change is not undone");
        pause();
    }
    assert!(world.get("networks/8/settings").is_some());
    world.client.delete(&format!("{PREFIX}/v1/{machine}")).unwrap();
    let until = Instant::now() + LIMIT;
    while world.get("networks/8/settings").is_some() {
        assert!(Instant::now() < until, "the network is not deleted");
        let _ = fleet.write(&BTreeMap::new());
        pause();
    }
    assert_eq!(world.get("policies/set/mine").unwrap(), r#"["10.0.0.0/8"]"#);
    assert_eq!(world.get("policies/set/k8s.other.a").unwrap(), r#"["10.0.0.0/8"]"#);
    assert_eq!(world.get("policies/set/k8s.test.b"), None);
}

/// A machine may arrive between the controller's reading and its deletion: etcd decides.
#[test]
fn a_network_is_not_deleted_under_a_machine_that_was_just_added() {
    let Some(world) = World::start("machine") else { return };
    let mut fleet = world.fleet();
    fleet.begin(&term(1)).unwrap();
    for vni in 8..28 {
        fleet.write(&BTreeMap::from([network(vni, "k8s.test")])).unwrap();
        world.put(&format!("networks/{vni}/machines/02:00:00:00:07:01"), r#"{"host":"h1"}"#);
        let written = fleet.write(&BTreeMap::new());
        assert!(
            matches!(&written, Err(FleetError::Contended) | Ok(Written { deleted: 0, .. })),
            "{written:?}"
        );
        assert!(world.get(&format!("networks/{vni}/settings")).is_some(), "network {vni}");
    }
}

#[test]
fn a_leader_that_was_replaced_writes_nothing() {
    let Some(world) = World::start("term") else { return };
    let (mut old, mut new) = (world.fleet(), world.fleet());
    old.begin(&term(1)).unwrap();
    old.write(&BTreeMap::from([set("a", "10.1.0.0/16")])).unwrap();
    new.begin(&term(2)).unwrap();
    let error = old.write(&BTreeMap::from([set("a", "10.9.0.0/16")])).unwrap_err();
    assert!(matches!(&error, FleetError::Fenced(holder) if holder == "holder-2"), "{error}");
    assert_eq!(world.get("policies/set/k8s.test.a").unwrap(), r#"["10.1.0.0/16"]"#);
    // It cannot begin its term again, for which it would have to win the Lease.
    assert!(matches!(old.begin(&term(1)), Err(FleetError::Fenced(_))));
    new.write(&BTreeMap::from([set("a", "10.2.0.0/16")])).unwrap();
    assert_eq!(world.get("policies/set/k8s.test.a").unwrap(), r#"["10.2.0.0/16"]"#);
    // A Lease that was made again counts anew.
    let later = Term { created: "2026-01-02T00:00:00Z".into(), ..term(1) };
    old.begin(&later).unwrap();
    assert!(matches!(new.write(&BTreeMap::new()), Err(FleetError::Fenced(_))));
}

#[test]
fn many_objects_are_several_transactions_and_history_that_is_gone_is_listed() {
    let Some(world) = World::start("many") else { return };
    let wanted: BTreeMap<_, _> = (0..350).map(|it| set(&format!("s{it}"), "10.0.0.0/8")).collect();
    let mut fleet = world.fleet();
    fleet.begin(&term(1)).unwrap();
    assert_eq!(fleet.write(&wanted).unwrap().set, 350);
    let mut other = world.fleet();
    other.begin(&term(2)).unwrap();
    assert_eq!(other.write(&wanted).unwrap().set, 0);
    let now = world.client.delete(&format!("{PREFIX}/v1/policies/set/k8s.test.s7")).unwrap();
    world.client.compact(now).unwrap();
    let until = Instant::now() + LIMIT;
    while world.get("policies/set/k8s.test.s7").is_none() {
        assert!(Instant::now() < until, "the set is not written again");
        other.write(&wanted).unwrap();
        pause();
    }
}
