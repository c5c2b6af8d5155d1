//! Commands of operators: jobs of the controllers, ports of the fleet, devices.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Workloads;
use crate::HOSTS;
use crate::account::Account;
use crate::daemons::{controllers, device_socket, port};
use crate::journal::Journal;
use crate::shared::Shared;
use crate::stage::EXTRA;

/// The time in which a host follows a change of the fleet, and a job is withdrawn.
const FOLLOWS: Duration = Duration::from_secs(60);

/// Starts the loops of operators.
pub(super) fn start(shared: &Arc<Shared>, journal: &Arc<Journal>, workloads: &mut Workloads) {
    let own = Arc::clone(shared);
    let account = Account::open(journal, "jobs");
    workloads.repeat(account, Duration::from_millis(2500), move |number| job(&own, number));
    let own = Arc::clone(shared);
    let account = Account::open(journal, "fleet");
    workloads.repeat(account, Duration::from_millis(2000), move |number| come_and_go(&own, number));
    let own = Arc::clone(shared);
    let account = Account::open(journal, "devices");
    workloads.repeat(account, Duration::from_millis(1500), move |number| device(&own, number));
}

/// Returns the host of an operation.
fn host_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0) % HOSTS
}

/// Announces a job of two pairs of hosts, and withdraws it.
fn job(shared: &Shared, number: u64) -> Result<(), String> {
    let [a, b, c] = [0, 1, 2].map(|host| shared.addresses[host]);
    let table = format!("source,destination\n{a},{b}\n{b},{c}\n");
    let table = shared.write("job.csv", &table).map_err(|error| format!("{error:#}"))?;
    let (job, to, token) = (format!("soak/{number}"), controllers(), shared.text("token"));
    let at = ["--controller", &to, "--token-file", &token];
    let words = [&["route", "announce", &job, &table, "--rate", "1Gbps"][..], &at].concat();
    let planned = shared.ask(&shared.manager(), &words)?;
    let paths = planned["queue_pairs"].as_array().map_or(0, Vec::len);
    // A job that is planned stays until it is withdrawn, whoever leads by then.
    let words = [&["route", "withdraw", &job][..], &at].concat();
    let began = Instant::now();
    while let Err(why) = shared.weft(&shared.manager(), &words) {
        // The answer to an attempt before was lost.
        if began.elapsed() > Duration::from_secs(1) && why.contains("no job") {
            break;
        }
        if began.elapsed() > FOLLOWS * shared.slack {
            return Err(why);
        }
        thread::sleep(Duration::from_millis(500));
    }
    if paths == 2 { Ok(()) } else { Err(format!("{paths} paths for two pairs: {planned}")) }
}

/// Adds a port to a host by the fleet, waits until the host has it, and removes it likewise.
fn come_and_go(shared: &Shared, number: u64) -> Result<(), String> {
    let host = host_of(number);
    let file = shared.write("extra.toml", &port(shared, (EXTRA.0, EXTRA.1), host));
    let file = file.map_err(|error| format!("{error:#}"))?;
    let config = shared.text("h0/vpc.toml");
    let key = format!("ports/h{host}/{}", EXTRA.0);
    let put = shared.weft(&shared.manager(), &["fleet", "--config", &config, "put", &file]);
    let seen = put.and_then(|_| await_port(shared, host, true));
    // A port that was not seen is removed too, or the next operation would find it.
    let began = Instant::now();
    loop {
        match shared.weft(&shared.manager(), &["fleet", "--config", &config, "del", &key]) {
            Ok(_) => break,
            Err(_) if seen.is_err() && !is_listed(shared, &config, &key)? => break,
            Err(why) if began.elapsed() > FOLLOWS * shared.slack => return Err(why),
            Err(_) => thread::sleep(Duration::from_millis(500)),
        }
    }
    seen.and_then(|()| await_port(shared, host, false))
}

fn is_listed(shared: &Shared, config: &str, key: &str) -> Result<bool, String> {
    let listed = shared.ask(&shared.manager(), &["fleet", "--config", config, "list", key])?;
    Ok(listed.as_array().is_some_and(|rows| !rows.is_empty()))
}

/// Waits until a host has the port that comes and goes, or does not have it any more.
fn await_port(shared: &Shared, host: usize, wanted: bool) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let control = shared.text(&format!("h{host}/vpc.sock"));
        let ports =
            shared.ask(&shared.hosts[host], &["vpc", "--control", &control, "port", "list"]);
        let has = |ports: &Value| {
            ports.as_array().is_some_and(|it| it.iter().any(|port| port["name"] == EXTRA.0))
        };
        match ports {
            Ok(ports) if has(&ports) == wanted => return Ok(()),
            _ if began.elapsed() < FOLLOWS * shared.slack => {
                thread::sleep(Duration::from_millis(250))
            }
            Ok(_) if wanted => {
                return Err(format!("h{host} does not get its port within {FOLLOWS:?}"));
            }
            Ok(_) => return Err(format!("h{host} keeps its port for {FOLLOWS:?}")),
            Err(why) => return Err(why),
        }
    }
}

/// Makes a device and deletes it.
fn device(shared: &Shared, number: u64) -> Result<(), String> {
    let host = host_of(number);
    let (name, socket) = (format!("extra-{number}"), device_socket(shared, host));
    let on = |words: &[&str]| {
        let words = [words, &["--socket", &socket]].concat();
        shared.weft(&shared.hosts[host], &words).map_err(|why| format!("h{host}: {why}"))
    };
    on(&["device", "create", &name, "--queue-pairs", "8"])?;
    on(&["device", "delete", &name]).map(drop)
}
