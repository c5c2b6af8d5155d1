//! Two controllers of a fabric that share a real etcd. Their router is a shell that answers with tables, and keeps leases.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use weft_etcd::{Client, EtcdSettings};
use weft_plan::ports::Entropy;
use weft_testkit::etcd::{Etcd, etcd_is_missing};
use weft_units::Seed;

use super::*;
use crate::daemon::worker::{Done, Outcome};
use crate::daemon::{Action, Announcement, Handle, PlannedJob, PortsRequest, SenderPorts, View};
use crate::{
    ClusterConfig, Inventory, Method, PortEntry, RouterEntry, SteerConfig, SteerError,
    read_job_table,
};

/// Tables with the steered route 10.2.0.2/32, and a hash whose seed is known.
const SHOWN: &str = include_str!("../../../tests/golden/tables/shown.txt");

/// The etcd, the router and the tables of a test.
struct Place {
    /// The name of the fabric, and of the router's namespace.
    name: String,
    etcd: Etcd,
    client: Client,
}

impl Place {
    fn new(test: &str) -> Self {
        let name = format!("ws-{test}-{}", std::process::id());
        fs::write(tables(&name), SHOWN.replacen("\n0\n7\n0\n1\n", "\n3\n55\n1\n1\n", 1)).unwrap();
        let etcd = Etcd::start(&format!("steer-{test}"), 1);
        let client = Client::new(&toml::from_str(&etcd.toml()).unwrap()).unwrap();
        Self { name, etcd, client }
    }

    /// Starts a controller; another one leads after a leader's silence of `ttl`.
    fn open(&self, url: &str, ttl: Duration) -> Daemon {
        let settings: EtcdSettings = toml::from_str(&self.etcd.toml()).unwrap();
        let name = self.name.clone();
        let cluster = Some(ClusterConfig { name, ttl, ..ClusterConfig::of(settings) });
        let listen = "127.0.0.1:0".parse().ok();
        let config = SteerConfig { listen, cluster, ..SteerConfig::default() };
        let mut daemon = Daemon::open(config, inventory).unwrap();
        daemon.join(url).unwrap();
        daemon
    }

    fn key(&self, key: &str) -> String {
        format!("/weft/route/{}/{key}", self.name)
    }

    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.client.get(&self.key(key)).unwrap().map(|it| it.value)
    }

    fn put(&self, key: &str, value: &str) {
        self.client.put(&self.key(key), value.as_bytes()).unwrap();
    }

    /// Returns the term that the router has seen last.
    fn term(&self) -> u64 {
        let file = format!("/run/weft-route/{}.lease.term", self.name);
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(tables(&self.name));
        for end in ["lease", "lease.lock", "lease.term"] {
            let _ = fs::remove_file(format!("/run/weft-route/{}.{end}", self.name));
        }
    }
}

const TTL: Duration = Duration::from_secs(2);

fn tables(name: &str) -> PathBuf {
    std::env::temp_dir().join(name)
}

#[expect(clippy::unnecessary_wraps, reason = "the type of a function that reads inventories")]
fn inventory(config: &SteerConfig) -> Result<Inventory, SteerError> {
    let name = config.cluster.as_ref().expect("it has one").name.as_str();
    let answer = format!(
        "script=$(cat); case $script in *flock*) echo \"$script\" | sh;; *) cat {};; esac",
        tables(name).display()
    );
    // The words after the command make the lease that of a namespace.
    let reach = ["sh", "-c", &answer, "netns", "exec", name].map(String::from).to_vec();
    let port = |name: &str, host: u8| PortEntry {
        name: name.into(),
        speed: None,
        to: Some(weft_route::installed::Cable::Host(
            std::net::Ipv4Addr::new(10, 2, 0, host).into(),
        )),
    };
    let (agent, ports) = ([10, 0, 0, 1].into(), vec![port("s0", 9), port("s1", 8)]);
    let (sources, apply) = (vec![], Method::Kernel);
    Ok(Inventory {
        routers: vec![RouterEntry { name: "l0".into(), reach, agent, sources, apply, ports }],
    })
}

/// Lets daemons turn until a condition holds.
fn until(what: &str, daemons: &mut [&mut Daemon], is_so: impl Fn(&[&mut Daemon]) -> bool) {
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(180);
    while !is_so(daemons) {
        assert!(std::time::Instant::now() < give_up, "{what}: never");
        daemons.iter_mut().for_each(|it| it.turn().unwrap());
    }
}

/// Announces a job to a daemon, which turns meanwhile.
fn announce(daemon: &mut Daemon, job: &str) -> Result<PlannedJob, RequestError> {
    let announcement = announcement(job);
    answered(daemon, move |handle| handle.announce(announcement))
}

fn announcement(job: &str) -> Announcement {
    let rows = read_job_table(b"source,destination\n10.2.0.8,10.2.0.9\n").unwrap();
    let (job, rate, entropy, seed) = (job.to_owned(), None, Entropy::default(), Seed(1));
    Announcement { job, rows, rate, entropy, seed, lease: None }
}

/// Requests something of a daemon on another thread; returns the channel of its answer.
fn asked<T: Send + 'static>(
    daemon: &Daemon,
    ask: impl FnOnce(Handle) -> T + Send + 'static,
) -> Receiver<T> {
    let (handle, (sender, answer)) = (daemon.handle(), channel());
    // A test that has failed does not wait for the answer.
    thread::spawn(move || drop(sender.send(ask(handle))));
    answer
}

/// Returns the answer of a daemon, which turns meanwhile.
fn answered<T: Send + 'static>(
    daemon: &mut Daemon,
    ask: impl FnOnce(Handle) -> T + Send + 'static,
) -> T {
    let answer = asked(daemon, ask);
    loop {
        match answer.try_recv() {
            Ok(answer) => return answer,
            Err(TryRecvError::Empty) => daemon.turn().unwrap(),
            Err(TryRecvError::Disconnected) => panic!("the thread ended"),
        }
    }
}

fn steers(daemon: &Daemon) -> bool {
    daemon.epoch(daemon.clock.now()).is_some()
}

fn jobs(daemon: &Daemon) -> Vec<&str> {
    daemon.controller.jobs().keys().map(String::as_str).collect()
}

/// Returns the number of the only move.
fn moved(daemon: &Daemon) -> Option<u64> {
    daemon.controller.moves().next().map(|it| it.id)
}

#[test]
fn a_successor_has_all_decisions_and_the_leader_before_can_write_nothing() {
    if etcd_is_missing("controllers that share etcd") {
        return;
    }
    let mut place = Place::new("office");
    let (mut a, mut b) = (place.open("http://a:1", TTL), place.open("http://b:1", TTL));
    until("the first steers", &mut [&mut a], |all| steers(all[0]));
    assert_eq!(a.office.role(), Role::Leads);
    announce(&mut a, "first").unwrap();
    // The move that was found installed is a decision too.
    until("the second follows", &mut [&mut b], |all| {
        jobs(all[0]) == ["first"] && moved(all[0]).is_some()
    });
    let refusal = announce(&mut b, "refused").unwrap_err();
    let url = Some("http://a:1".to_owned());
    assert!(matches!(&refusal, RequestError::Watches { url: to, .. } if *to == url), "{refusal}");
    let (number, before) = (moved(&a), place.term());

    // The second is elected while the loop of the first is suspended.
    let elected = std::time::Instant::now();
    place.client.delete(&place.key("leader")).unwrap();
    until("the second steers", &mut [&mut b], |all| steers(all[0]));
    println!("the next leader steers {:.2} s after its election", elected.elapsed().as_secs_f64());
    assert_eq!((jobs(&b), moved(&b)), (vec!["first"], number));
    assert!(place.term() > before);
    let router = &inventory(&a.config).unwrap().routers[0];
    let refused = a.leases.lease().renew(router).unwrap_err();
    assert!(matches!(refused, SteerError::Superseded { .. }), "{refused}");
    assert!(announce(&mut a, "late").is_err());
    until("the first follows", &mut [&mut a], |all| {
        all[0].office.role() == Role::StandsBy && jobs(all[0]) == ["first"]
    });
    assert!(place.get("jobs/late").is_none());

    // A member that is killed takes nothing with it, and a decision waits until it is back.
    place.etcd.kill(0);
    place.etcd.start_again(0);
    until("jobs are kept again", &mut [&mut b], |all| steers(all[0]));
    announce(&mut b, "second").unwrap();
    until("the first follows still", &mut [&mut a], |all| jobs(all[0]) == ["first", "second"]);

    // A leader that ends gives up the lead at once.
    let ended = std::time::Instant::now();
    b.close().unwrap();
    until("the first steers again", &mut [&mut a], |all| steers(all[0]));
    println!("the next leader steers {:.2} s after the end", ended.elapsed().as_secs_f64());
    assert_eq!((jobs(&a), moved(&a)), (vec!["first", "second"], number));
    a.close().unwrap();
}

#[test]
fn answers_of_an_earlier_term_are_not_those_of_the_present_one() {
    if etcd_is_missing("answers of an earlier term") {
        return;
    }
    let place = Place::new("answers");
    let mut a = place.open("http://a:1", TTL);
    until("it steers", &mut [&mut a], |all| steers(all[0]) && moved(all[0]).is_some());
    let (now, term) = (a.clock.now(), a.leases.term().unwrap());
    let stage = |daemon: &Daemon| daemon.controller.moves().next().map(|it| it.stage.clone());
    let (router, id, before) = ("l0".to_owned(), moved(&a).unwrap(), stage(&a));
    let superseded = |router: &str| {
        let (router, term) = (router.to_owned(), "99".to_owned());
        Err(SteerError::Superseded { router, term })
    };
    let mut answer = |result| a.on_outcome(Outcome { router: router.clone(), result });
    // Its own order and its own request, of a term before.
    answer(Done::Changed { epoch: term - 1, id, commands: vec![], result: superseded("l0") });
    let term = Some(term - 1);
    answer(Done::Renewed { requested_at: now, term, result: superseded("l0") });
    assert_eq!((a.commands(id), stage(&a)), (None, before));
    assert!(steers(&a), "the router has granted the lease of this term");
    // An order that waits is one of its term.
    a.held.push_back((u64::MAX, 1, Action::Read { router: router.clone() }));
    place.client.delete(&place.key("leader")).unwrap();
    let next = |daemon: &Daemon| daemon.leases.term().filter(|it| Some(*it - 1) != term);
    until("the next term", &mut [&mut a], |all| steers(all[0]) && next(all[0]).is_some());
    assert!(a.held.is_empty());
    a.close().unwrap();
}

#[test]
fn a_job_is_told_of_no_ports_that_a_successor_would_not_know() {
    if etcd_is_missing("ports of a job that are not kept") {
        return;
    }
    let place = Place::new("ports");
    let mut a = place.open("http://a:1", Duration::from_secs(60));
    until("it steers", &mut [&mut a], |all| steers(all[0]));
    announce(&mut a, "first").unwrap();
    until("all is kept", &mut [&mut a], |all| all[0].saved == all[0].kept);
    place.etcd.pause(0);
    let planned = asked(&a, |handle| handle.announce(announcement("second")));
    until("it is planned", &mut [&mut a], |all| all[0].waiting.len() == 1);
    assert!(a.saved > a.kept);
    let source = std::net::Ipv4Addr::new(10, 2, 0, 8).into();
    let request = move |plan| PortsRequest { job: "second".into(), source, plan };
    let ports = asked(&a, move |handle| handle.ports(request(0)));
    until("the ports wait too", &mut [&mut a], |all| all[0].waiting.len() == 2);
    // Those that a sender has are kept.
    let plan = a.controller.jobs()["first"].plan();
    let known = PortsRequest { job: "first".into(), source, plan };
    let known = answered(&mut a, move |handle| handle.ports(known)).unwrap();
    assert_eq!(known, SenderPorts { plan, ports: None });
    assert!(matches!(planned.try_recv(), Err(TryRecvError::Empty)));
    assert!(matches!(ports.try_recv(), Err(TryRecvError::Empty)));
    place.etcd.resume(0);
    until("they are kept", &mut [&mut a], |all| all[0].waiting.is_empty());
    planned.recv().unwrap().unwrap();
    assert_eq!(ports.recv().unwrap().unwrap().ports.map(|it| it.len()), Some(1));
    assert!(place.get("jobs/second").is_some());
    a.close().unwrap();
}

#[test]
fn a_record_that_cannot_be_read_is_named_and_left_and_the_others_are_used() {
    if etcd_is_missing("records that cannot be read") {
        return;
    }
    let place = Place::new("records");
    let (mut a, mut b) = (place.open("http://a:1", TTL), place.open("http://b:1", TTL));
    until("the first steers", &mut [&mut a], |all| steers(all[0]));
    announce(&mut a, "good").unwrap();
    until("the second follows", &mut [&mut b], |all| jobs(all[0]) == ["good"]);
    let unreadable = |daemon: &Daemon| {
        let view = View::of(daemon, daemon.clock.now());
        view.unreadable_records.into_keys().collect::<Vec<_>>()
    };
    // A standby goes on with what it has.
    place.put("jobs/bad", "damaged");
    until("the second names it", &mut [&mut b], |all| unreadable(all[0]) == ["jobs/bad"]);
    announce(&mut a, "better").unwrap();
    until("the second knows more", &mut [&mut b], |all| jobs(all[0]) == ["better", "good"]);
    a.close().unwrap();
    until("the second steers", &mut [&mut b], |all| steers(all[0]));
    assert_eq!((jobs(&b), unreadable(&b)), (vec!["better", "good"], vec!["jobs/bad".to_owned()]));
    assert_eq!(place.get("jobs/bad").unwrap(), b"damaged");
    // A job that is announced again needs it no more.
    announce(&mut b, "bad").unwrap();
    assert_eq!(place.get("unreadable/jobs/bad").unwrap(), b"damaged");
    assert_eq!(jobs(&b), ["bad", "better", "good"]);
    until("the copy is named", &mut [&mut b], |all| unreadable(all[0]) == ["unreadable/jobs/bad"]);
    b.close().unwrap();

    // A program of an earlier version does not lead.
    let overview = String::from_utf8(place.get("overview").unwrap()).unwrap();
    let later = overview.replacen("\"version\":1", "\"version\":2", 1);
    assert_ne!(later, overview);
    place.put("overview", &later);
    let mut c = place.open("http://c:1", TTL);
    until("it says so", &mut [&mut c], |all| {
        let is_later = |it: &String| it.contains("use the program that wrote them");
        all[0].store_fault.as_ref().is_some_and(is_later)
    });
    until("it knows the rest", &mut [&mut c], |all| jobs(all[0]).len() == 3);
    assert_eq!(c.office.role(), Role::StandsBy);
    assert!(unreadable(&c).contains(&"overview".to_owned()));
    assert_eq!(place.get("overview").unwrap(), later.as_bytes());
    place.put("overview", &overview);
    until("it steers", &mut [&mut c], |all| steers(all[0]));
    c.close().unwrap();
}
