//! A fleet of simulated hosts that follow a real etcd: each is a host's own follower, with its connection, its lease and
//! its watches, but without a daemon behind. Needs `etcd` (etcd-server) and no privileges.
//!
//! Networks of a hundred ports on twenty hosts each: every host has a hundred ports, five in each of twenty networks, and
//! knows the 2,000 machines of these. Then ports change hosts, one after another; the time counts from before the write
//! until a host of the network has the new part in hand. A change of the fleet's size means less for the rest.
//!
//! `cargo bench -p weft-vswitch --bench fleet -- [hosts] [changes] [changes per second]`
#![allow(clippy::disallowed_methods, reason = "a benchmark runs in real time")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use weft_etcd::{Client, EtcdSettings, MAX_OPERATIONS, Transaction};
use weft_testkit::etcd::Etcd;
use weft_vswitch::fleet::{
    FleetFile, FleetPort, FleetSettings, Follower, HostIdentity, Key, Object,
};

const PREFIX: &str = "/weft";
const PORTS_OF_HOST: usize = 100;
const PORTS_OF_NETWORK: usize = 100;
const HOSTS_OF_NETWORK: usize = 20;
const PORTS_OF_BOTH: usize = PORTS_OF_NETWORK / HOSTS_OF_NETWORK;
const NETWORKS_OF_HOST: usize = PORTS_OF_HOST / PORTS_OF_BOTH;

/// The newest revision of a host, and the times at which it had each.
type Parts = (i64, Vec<(i64, Instant)>);

/// The events of the simulated hosts.
#[derive(Default)]
struct Seen {
    /// Number of hosts that have all their ports and machines.
    complete: AtomicUsize,
    /// The last time that a host had a part with all machines for the first time.
    completed_at: Mutex<Option<Instant>>,
    /// The times at which hosts had a part of at least a revision, by host.
    newest: Vec<Mutex<Parts>>,
}

fn name(host: usize) -> String {
    format!("host-{host:04}")
}

/// Returns the networks of a host: those of its group, of which there are as many as each host has.
fn networks(host: usize) -> impl Iterator<Item = usize> {
    let group = host / HOSTS_OF_NETWORK;
    (0..NETWORKS_OF_HOST).map(move |index| 1 + group * NETWORKS_OF_HOST + index)
}

/// Returns the objects of a host.
fn file(host: usize) -> FleetFile {
    let port = |(index, vni): (usize, usize)| {
        let [_, a, b, c] = u32::try_from(host * PORTS_OF_HOST + index).unwrap().to_be_bytes();
        let text = format!(
            "host = '{}'\nname = 'p{index}'\nvni = {vni}\nmac = '02:00:00:{a:02x}:{b:02x}:{c:02x}'\n\
             addresses = ['10.{a}.{b}.{c}/8']\nvhost-user = {{ socket = '/run/weft/p{index}.sock' }}\n",
            name(host)
        );
        toml::from_str::<FleetPort>(&text).unwrap()
    };
    let vnis = networks(host).flat_map(|vni| [vni; PORTS_OF_BOTH]).enumerate();
    FleetFile { ports: vnis.map(port).collect(), ..FleetFile::default() }
}

/// Writes the objects of all hosts.
fn fill(client: &Client, hosts: usize) {
    let mut objects: Vec<(Key, Object)> = vec![];
    for host in 0..hosts {
        for vni in networks(host).filter(|_| host % HOSTS_OF_NETWORK == 0) {
            let key = format!("networks/{vni}/settings").parse::<Key>().unwrap();
            objects.push((key.clone(), Object::parse(&key, b"{}").unwrap()));
        }
        objects.extend(file(host).objects().unwrap());
    }
    for part in objects.chunks(MAX_OPERATIONS) {
        let put = |it: Transaction, (key, object): &(Key, Object)| {
            it.put(&key.path(PREFIX), &object.json())
        };
        client.transact(&part.iter().fold(Transaction::new(), put)).expect("it is written");
    }
}

/// Returns the resident memory of a process, bytes, and the processor time that it has used, seconds.
fn usage(pid: u32) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let memory: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (memory * 1024.0, (ticks(11) + ticks(12)) / 100.0)
}

fn start(settings: &EtcdSettings, host: usize, seen: &Arc<Seen>, stop: &Arc<AtomicBool>) {
    let [_, _, a, b] = u32::try_from(host).unwrap().to_be_bytes();
    let address = IpAddr::V4(Ipv4Addr::new(10, 255, a, b));
    let (seen, stop) = (Arc::clone(seen), Arc::clone(stop));
    let mut is_complete = false;
    let others = NETWORKS_OF_HOST * (PORTS_OF_NETWORK - PORTS_OF_BOTH);
    let publish = move |part: Option<weft_vswitch::fleet::Part>,
                        status: &weft_vswitch::fleet::FleetStatus| {
        let Some(part) = part else { return };
        let now = Instant::now();
        if !is_complete && part.ports.len() == PORTS_OF_HOST && part.routes.len() >= others {
            is_complete = true;
            *seen.completed_at.lock().unwrap() = Some(now);
            seen.complete.fetch_add(1, Ordering::Relaxed);
        }
        let mut newest = seen.newest[host].lock().unwrap();
        newest.0 = status.revision;
        newest.1.push((status.revision, now));
    };
    let settings = FleetSettings::new(&name(host), settings.clone());
    let settings = FleetSettings { lease: weft_units::Duration::from_secs(30), ..settings };
    let host = HostIdentity { address, identity: None };
    let follower = Follower::new(&settings, host, None, publish).expect("it has its certificate");
    thread::Builder::new().stack_size(256 << 10).spawn(move || follower.run(&stop)).unwrap();
}

/// Returns the time that this share of all does not exceed, in thousandths.
fn percentile(sorted: &[Duration], per_mille: usize) -> Duration {
    sorted[(sorted.len() - 1) * per_mille / 1000]
}

fn main() {
    let mut words = env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let hosts =
        words.next().unwrap_or(1_000).max(HOSTS_OF_NETWORK) / HOSTS_OF_NETWORK * HOSTS_OF_NETWORK;
    let (changes, rate) = (words.next().unwrap_or(300), words.next().unwrap_or(10));
    let etcd = Etcd::start("bench", 1);
    let settings: EtcdSettings = toml::from_str(&etcd.toml()).unwrap();
    let client = Client::new(&settings).unwrap();
    let began = Instant::now();
    fill(&client, hosts);
    println!(
        "{hosts} hosts, {} ports, written in {:.1} s",
        hosts * PORTS_OF_HOST,
        began.elapsed().as_secs_f64()
    );
    let (own, _) = usage(std::process::id());
    let (etcd_memory, etcd_cpu) = usage(etcd.pid(0));
    println!(
        "etcd before the hosts: {:.0} MB, {etcd_cpu:.1} s of processor time",
        etcd_memory / 1e6
    );

    let newest = (0..hosts).map(|_| Mutex::default()).collect();
    let (seen, stop) =
        (Arc::new(Seen { newest, ..Seen::default() }), Arc::new(AtomicBool::new(false)));
    let began = Instant::now();
    // One group after another: a thousand starts on two cores would show the scheduler.
    for first in (0..hosts).step_by(HOSTS_OF_NETWORK) {
        let group = first..first + HOSTS_OF_NETWORK;
        group.clone().for_each(|host| start(&settings, host, &seen, &stop));
        let until = Instant::now() + Duration::from_secs(120);
        while seen.complete.load(Ordering::Relaxed) < group.end {
            assert!(Instant::now() < until, "the hosts {group:?} are not complete");
            thread::sleep(Duration::from_millis(2));
        }
    }
    let all = seen.completed_at.lock().unwrap().unwrap() - began;
    let (memory, _) = usage(std::process::id());
    let (with_hosts, started) = usage(etcd.pid(0));
    println!("twenty hosts after twenty, all they need: {:.1} s", all.as_secs_f64());
    println!("memory a host: {:.0} KB", (memory - own) / hosts as f64 / 1e3);
    println!(
        "etcd with the hosts: {:.0} MB, {:.1} s of processor time for their start",
        with_hosts / 1e6,
        started - etcd_cpu
    );

    // At rest: renewals of leases alone.
    let rest = Instant::now();
    thread::sleep(Duration::from_secs(10));
    let (_, rested) = usage(etcd.pid(0));
    println!(
        "etcd at rest: {:.1} % of a core",
        (rested - started) / rest.elapsed().as_secs_f64() * 100.0
    );

    let (mut spans, began) = (vec![], Instant::now());
    for change in 0..changes {
        let until = began + Duration::from_secs_f64(change as f64 / rate as f64);
        thread::sleep(until.saturating_duration_since(Instant::now()));
        let host = change * 7 % hosts;
        let group = host / HOSTS_OF_NETWORK * HOSTS_OF_NETWORK;
        let to = group + (host - group + 1) % HOSTS_OF_NETWORK;
        let moved = &file(host).ports[0].port;
        let key = Key::Machine(moved.vni, moved.mac);
        let value = format!(
            "{{\"host\":\"{}\",\"addresses\":[\"10.9.{}.{}\"]}}",
            name(to),
            change / 250,
            1 + change % 250
        );
        let sent = Instant::now();
        let revision = client.put(&key.path(PREFIX), value.as_bytes()).expect("it is written").0;
        // The hosts of the network but for the port's own, which has the port and not its place.
        for other in (group..group + HOSTS_OF_NETWORK).filter(|&other| other != host) {
            spans.push((other, revision, sent));
        }
    }
    let is_seen = |&(host, revision, _): &(usize, i64, Instant)| {
        seen.newest[host].lock().unwrap().0 >= revision
    };
    let until = Instant::now() + Duration::from_secs(60);
    while !spans.iter().all(is_seen) && Instant::now() < until {
        thread::sleep(Duration::from_millis(50));
    }
    let ((_, changed), took) = (usage(etcd.pid(0)), began.elapsed());
    let mut lost = 0;
    let mut times: Vec<_> = spans
        .iter()
        .filter_map(|&(host, revision, sent)| {
            let seen = seen.newest[host].lock().unwrap();
            let first = seen.1.iter().find(|(known, _)| *known >= revision);
            lost += u32::from(first.is_none());
            first.map(|(_, at)| at.saturating_duration_since(sent))
        })
        .collect();
    times.sort_unstable();
    let ms = |per_mille| percentile(&times, per_mille).as_secs_f64() * 1e3;
    println!(
        "{changes} moves at {rate} a second, {} sightings, {lost} lost: p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms",
        times.len(),
        ms(500),
        ms(990),
        ms(1000)
    );
    println!(
        "etcd under these moves: {:.1} % of a core",
        (changed - rested) / took.as_secs_f64() * 100.0
    );
    // The leases of the hosts end with etcd.
    drop(etcd);
    std::process::exit(i32::from(lost > 0));
}
