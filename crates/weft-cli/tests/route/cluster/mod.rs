//! Several controllers that keep their decisions in etcd: one leads, and another takes over whatever happens to it.

mod relay;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use weft_etcd::{Client, EtcdSettings};
use weft_lab::Lab;
use weft_testkit::etcd::{Etcd, etcd_is_missing};

use crate::announce::File;
use crate::programs::{Controller, Running, Stop, collide, is_missing, lab, until};
use relay::{Relay, Rule};

const TOKEN: &str = "the-token-of-these-controllers";
/// The decisions of another controller: a move that is not to be tried again for years.
const OVERVIEW: &str = r#"{"overview":{"version":1,"next_id":41,"barred":[{"router":"l1","prefix":"10.1.0.2/32",
    "members":[{"port":"s1","via":"10.100.1.2","weight":1}],"until":9000000000000000000}],"refusals":{},
    "stats":{"moves":40,"undone":1},"rounds":[]}}"#;

/// A lab, etcd, and what controllers of the lab that share it have in common.
struct Cluster {
    lab: Lab,
    etcd: Etcd,
    token: File,
    table: File,
}

impl Cluster {
    fn up(name: &str, etcd: Etcd) -> Self {
        let lab = lab(name);
        let token = File::new(&format!("{name}-token"), TOKEN);
        let table = File::new(&format!("{name}.csv"), "source,destination\n10.1.0.2,10.2.0.2\n");
        Self { lab, etcd, token, table }
    }

    /// Returns the configuration's lines of controllers that reach etcd at these addresses.
    fn keys(&self, endpoints: &[String]) -> String {
        let etcd = self.etcd.toml().replace('\n', ", ");
        let own = format!("endpoints = {:?}, ", self.etcd.endpoints());
        let etcd = etcd.strip_prefix(&own).expect("endpoints come first").trim_end_matches(", ");
        let comma = if etcd.is_empty() { "" } else { ", " };
        format!(
            "cluster = {{ name = 'lab', etcd = {{ endpoints = {endpoints:?}{comma}{etcd} }} }}\n"
        )
    }

    fn start(&self, name: &str) -> Controller {
        self.start_at(name, &self.etcd.endpoints())
    }

    fn start_at(&self, name: &str, endpoints: &[String]) -> Controller {
        Controller::of_cluster(&self.lab, name, self.token.path(), &self.keys(endpoints))
    }

    fn client(&self) -> Client {
        let settings: EtcdSettings = toml::from_str(&self.etcd.toml()).unwrap();
        Client::new(&settings).unwrap()
    }

    /// Returns the keys of the moves in etcd.
    fn kept_moves(&self) -> Vec<String> {
        let listing = self.client().list("/weft/route/lab/moves/").unwrap();
        listing.entries.into_iter().map(|it| String::from_utf8(it.key).unwrap()).collect()
    }

    /// Returns the routes that controllers have given to a router.
    fn steered(&self, router: &str) -> String {
        let namespace = &self.lab.fabric().node(router).unwrap().namespace;
        let words = ["netns", "exec", namespace, "ip", "route", "show", "proto", "200"];
        let output = Command::new("ip").args(words).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the term and the holder of a router's lease.
    fn lease(&self, router: &str) -> (u64, String) {
        let namespace = &self.lab.fabric().node(router).unwrap().namespace;
        let file = |end: &str| PathBuf::from(format!("/run/weft-route/{namespace}.{end}"));
        let term = std::fs::read_to_string(file("lease.term")).unwrap();
        let lease = std::fs::read_to_string(file("lease")).unwrap();
        let holder = lease.split(' ').next().unwrap_or_default().to_owned();
        (term.trim().parse().unwrap(), holder)
    }

    /// Announces a job to a controller. Returns the error's text if that is refused.
    fn announce(&self, controllers: &[&Controller], job: &str) -> Result<Value, String> {
        let pages: Vec<&str> = controllers.iter().map(|it| it.page.as_str()).collect();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.args(["route", "announce", job, self.table.path(), "--json"]);
        command.args(["--token-file", self.token.path(), "--controller", &pages.join(",")]);
        let output = command.output().unwrap();
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    /// Starts an agent that sends sFlow to these controllers.
    fn sample(&self, controllers: &[&Controller]) -> Running {
        let collectors: Vec<&str> = controllers.iter().map(|it| it.sflow.as_str()).collect();
        let mut agent = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        agent.args(["route", "agent", "--rate", "8", "--counters", "150ms"]);
        agent.args(["--lab", self.lab.name(), "--collector", &collectors.join(",")]);
        Running(agent.stdout(Stdio::null()).spawn().unwrap())
    }
}

fn cannot_run(test: &str) -> bool {
    is_missing(test) || etcd_is_missing(test)
}

fn steers(controller: &Controller) -> bool {
    controller.picture()["steers"] == true
}

fn names(picture: &Value) -> Vec<&str> {
    picture["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect()
}

#[test]
fn a_killed_leaders_successor_knows_jobs_moves_barred_moves_and_counts() {
    if cannot_run("a route controller that is killed") {
        return;
    }
    let mut cluster = Cluster::up("ck", Etcd::start("route-kill", 3));
    cluster.client().put("/weft/route/lab/overview", OVERVIEW.as_bytes()).unwrap();
    let first = cluster.start("first");
    until("the first steers", || steers(&first));
    let second = cluster.start("second");
    let holder = first.picture()["holder"].as_str().unwrap().to_owned();
    until("the second follows the first", || second.picture()["other"] == holder.as_str());
    let stands_by = format!("ok, stands by; {holder} leads at http://{}\n", first.page);
    until("it is ready", || second.ask("/readyz") == (200, stands_by.clone()));
    assert_eq!(first.ask("/readyz"), (200, "ok, leads\n".into()));

    // The standby sends a client on to the leader, and knows what the leader has decided.
    assert_eq!(cluster.announce(&[&second], "told/standby").unwrap()["flows"], 1);
    until("the standby knows the job", || names(&second.picture()) == ["told/standby"]);
    let _agent = cluster.sample(&[&first, &second]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ended = Stop(&stop);
        collide(&cluster.lab, scope, &stop);
        until("a move is kept", || first.picture()["moves"][0]["stage"] == "kept");
    });
    let barred = json!([{ "router": "l1", "destination": "10.1.0.2", "to": ["s1"],
        "until": 9_000_000_000_000_000_000_u64 }]);
    let before = first.picture();
    assert_eq!(before["barred"], barred);
    assert!(before["moves"][0]["id"].as_u64() >= Some(41), "{before}");
    let routes = cluster.steered("l0");
    assert!(!routes.is_empty());

    // Without one of three members nothing changes; the one that is killed may be the leader's, or etcd's own leader.
    cluster.etcd.kill(0);
    until("jobs are kept again", || cluster.announce(&[&first], "of-two-members").is_ok());
    until("the first steers still", || steers(&first));
    cluster.etcd.start_again(0);
    let term = cluster.lease("l0").0;

    let killed = Instant::now();
    first.kill();
    until("the successor plans a job", || cluster.announce(&[&second], "after").is_ok());
    println!(
        "first decision of the successor {:.2} s after kill -9",
        killed.elapsed().as_secs_f64()
    );
    let all = ["after", "of-two-members", "told/standby"];
    until("its page has all jobs", || names(&second.picture()) == all);
    let after = second.picture();
    let key = |picture: &Value| {
        let it = &picture["moves"][0];
        ["id", "router", "destination", "to", "decided", "reason"].map(|key| it[key].clone())
    };
    assert_eq!((key(&after), &after["barred"]), (key(&before), &barred));
    for kind in ["move", "applied", "kept", "job"] {
        let count = |picture: &Value| picture["happened"][kind].as_u64();
        assert!(count(&after) >= count(&before), "{kind}: {after}");
    }
    assert_eq!(cluster.steered("l0"), routes, "routers keep their orders");
    let (later, holder) = cluster.lease("l0");
    assert!(later > term && after["holder"] == holder.as_str(), "{later} {term} {holder}");

    // Any of several controllers will do, and a third one replaces the second when that is stopped.
    let third = cluster.start("third");
    until("the third follows", || third.ask("/readyz").1.contains("stands by;"));
    let stopped = Instant::now();
    drop(second);
    until("the third steers", || steers(&third));
    println!(
        "the next leader steers {:.2} s after the end of the last",
        stopped.elapsed().as_secs_f64()
    );
    assert_eq!(names(&third.picture()), all);
}

/// Kills the leader at a step of a move; returns the successor, which has the chance to make it.
fn kill_at(cluster: &Cluster, rule: Rule) {
    let relay = Relay::start(cluster.etcd.endpoints()[0].parse::<SocketAddr>().unwrap());
    let leader = cluster.start_at("leader", &[relay.address.to_string()]);
    until("the leader steers", || steers(&leader));
    let standby = cluster.start("standby");
    until("the standby follows", || standby.ask("/readyz").1.contains("leads at"));
    let _agent = cluster.sample(&[&leader, &standby]);
    relay.set(rule);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ended = Stop(&stop);
        collide(&cluster.lab, scope, &stop);
        match rule {
            Rule::Pass => until("the router has the route", || !cluster.steered("l0").is_empty()),
            _ => until("the move is on its way to etcd", || relay.has_stopped()),
        }
        if rule == Rule::HoldAnswer {
            until("etcd has the move", || !cluster.kept_moves().is_empty());
        }
        let is_shown = || leader.picture()["moves"].as_array().is_some_and(|it| !it.is_empty());
        until("the leader's page has the move", is_shown);
        let (kept, steered) = (cluster.kept_moves(), cluster.steered("l0"));
        let decided = leader.picture()["moves"].clone();
        leader.kill();
        assert_eq!(kept.is_empty(), rule == Rule::HoldRequest, "{rule:?}: {kept:?}");
        assert_eq!(steered.is_empty(), rule != Rule::Pass, "{rule:?}: {steered}");
        until("the successor steers", || steers(&standby));
        until("the move is made", || {
            let stage = &standby.picture()["moves"][0]["stage"];
            stage == "verifying" || stage == "kept"
        });
        let moves = standby.picture()["moves"].clone();
        if rule != Rule::HoldRequest {
            assert_eq!(moves[0]["decided"], decided[0]["decided"], "it is the same move: {moves}");
        }
        assert!(!cluster.steered("l0").is_empty());
    });
}

#[test]
fn a_leader_that_is_killed_before_etcd_has_its_move_has_told_no_router() {
    if cannot_run("a controller killed before its move is kept") {
        return;
    }
    kill_at(&Cluster::up("cb", Etcd::start_plain("route-before", 1)), Rule::HoldRequest);
}

#[test]
fn a_move_that_etcd_has_and_no_router_is_made_by_the_successor() {
    if cannot_run("a controller killed after its move is kept") {
        return;
    }
    kill_at(&Cluster::up("cw", Etcd::start_plain("route-between", 1)), Rule::HoldAnswer);
}

#[test]
fn a_move_that_a_router_has_made_is_followed_by_the_successor() {
    if cannot_run("a controller killed after its move is made") {
        return;
    }
    kill_at(&Cluster::up("cf", Etcd::start_plain("route-after", 1)), Rule::Pass);
}

#[test]
fn a_leader_that_is_cut_off_or_paused_writes_nothing_after_its_successor() {
    if cannot_run("a route controller that is cut off and paused") {
        return;
    }
    let cluster = Cluster::up("cc", Etcd::start("route-cut", 3));
    let endpoints = cluster.etcd.endpoints();
    let relays: Vec<Relay> = endpoints.iter().map(|it| Relay::start(it.parse().unwrap())).collect();
    let through: Vec<String> = relays.iter().map(|it| it.address.to_string()).collect();
    let first = cluster.start_at("first", &through);
    until("the first steers", || steers(&first));
    cluster.announce(&[&first], "before").unwrap();
    let second = cluster.start("second");
    until("the second follows", || second.ask("/readyz").1.contains("leads at"));

    // The cable between the leader and etcd is cut: the leader lives, and must not act on what it cannot keep.
    let cut = Instant::now();
    relays.iter().for_each(|it| it.set(Rule::Cut));
    until("the second steers", || steers(&second));
    println!("another leader steers {:.2} s after the cut", cut.elapsed().as_secs_f64());
    let term = cluster.lease("l0").0;
    until("the first says why it is not ready", || {
        let (status, reason) = first.ask("/readyz");
        status == 503 && reason.contains("decisions cannot be kept")
    });
    assert!(!steers(&first));
    let refusal = cluster.announce(&[&first], "of-the-first").unwrap_err();
    assert!(refusal.contains("does not steer"), "{refusal}");
    cluster.announce(&[&second], "of-the-second").unwrap();
    relays.iter().for_each(|it| it.set(Rule::Pass));
    until("the first follows the second", || {
        names(&first.picture()) == ["before", "of-the-second"]
    });
    assert_eq!(cluster.lease("l0").0, term, "nobody else was elected");

    // The second is paused, with all of its threads. When it goes on, its term is over everywhere.
    let paused = Instant::now();
    second.signal(Signal::STOP);
    until("the first steers again", || steers(&first));
    println!("another leader steers {:.2} s after the pause", paused.elapsed().as_secs_f64());
    let (later, holder) = cluster.lease("l0");
    assert!(later > term && first.picture()["holder"] == holder.as_str());
    let listing = cluster.client().list("/weft/route/lab/").unwrap();
    second.signal(Signal::CONT);
    until("the second follows", || second.picture()["role"] == "stands-by");
    assert!(!steers(&second));
    for router in ["l0", "l1", "s0", "s1"] {
        let (at, by) = cluster.lease(router);
        assert_eq!((at, by.as_str()), (later, holder.as_str()), "{router}");
    }
    let leader = |entries: &[weft_etcd::KeyValue]| {
        let leader = entries.iter().find(|it| it.key.ends_with(b"/leader")).unwrap();
        leader.created.0
    };
    let now = cluster.client().list("/weft/route/lab/").unwrap();
    assert_eq!(leader(&listing.entries), leader(&now.entries));
    let jobs = now.entries.iter().filter(|it| it.key.starts_with(b"/weft/route/lab/jobs/"));
    assert_eq!(jobs.count(), 2);
    assert!(cluster.announce(&[&second, &first], "through-the-second").is_ok());
}
