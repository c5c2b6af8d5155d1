//! Is everything healthy? The daemons' own statements, and new successes of every workload.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::HOSTS;
use crate::account::Account;
use crate::daemons::{CONTROLLERS, DEVICE, device_socket};
use crate::shared::Shared;
use crate::stage::{MANAGER, TENANTS, management_address};

/// Returns what is not healthy: of the daemons, and of the workloads which of them has completed nothing that it began after
/// `since`.
pub(crate) fn ailments(shared: &Shared, accounts: &[Account], since: Duration) -> Vec<String> {
    let idle = accounts.iter().filter(|it| !it.works_since(since));
    let mut all: Vec<String> = idle.map(|it| format!("{} completes nothing", it.name)).collect();
    for host in 0..HOSTS {
        all.extend(of_overlay(shared, host));
        let words = ["device", "show", DEVICE, "--socket", &device_socket(shared, host)];
        all.extend(
            shared
                .ask(&shared.hosts[host], &words)
                .err()
                .map(|why| format!("device h{host}: {why}")),
        );
        all.extend(not_ready(
            shared,
            management_address(host),
            7475,
            &format!("monitor agent h{host}"),
        ));
    }
    all.extend(not_ready(shared, MANAGER, 7480, "monitor"));
    all.extend(of_controllers(shared));
    all
}

fn of_overlay(shared: &Shared, host: usize) -> Vec<String> {
    let control = shared.text(&format!("h{host}/vpc.sock"));
    let status = match shared.ask(&shared.hosts[host], &["vpc", "--control", &control, "status"]) {
        Ok(status) => status,
        Err(why) => return vec![format!("vpc h{host}: {why}")],
    };
    let mut all = Vec::new();
    let mut check = |is_well: bool, what: String| {
        if !is_well {
            all.push(format!("vpc h{host}: {what}"));
        }
    };
    let fleet = &status["fleet"];
    check(fleet["registered"] == true, "not registered".into());
    check(fleet["etcd"].is_string(), "does not follow etcd".into());
    for field in ["error", "refused"] {
        check(fleet[field].is_null(), format!("fleet, {field}: {}", fleet[field]));
    }
    check(
        fleet["faults"].as_object().is_some_and(serde_json::Map::is_empty),
        format!("{}", fleet["faults"]),
    );
    let rows = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    for (tenant, _, _) in TENANTS {
        let is_up = rows("ports").iter().any(|port| port["name"] == tenant && port["up"] == true);
        check(is_up, format!("the port {tenant} is not up"));
    }
    for (peer, accepts) in status["peers"].as_object().into_iter().flatten() {
        check(accepts == true, format!("{peer} accepts no connection"));
    }
    for pair in rows("pairs") {
        let down = pair["paths"]
            .as_array()
            .map_or(0, |it| it.iter().filter(|path| path["up"] != true).count());
        let with = format!("{} with {}", pair["port"], pair["peer"]);
        check(pair["up"] == true, format!("{with} has no connection"));
        check(down == 0, format!("{with}: {down} paths are down"));
    }
    all
}

/// Returns what is wrong with the controllers: one leads, the other one stands by, and nothing alarms the leader.
fn of_controllers(shared: &Shared) -> Vec<String> {
    let mut all = Vec::new();
    let mut leaders = 0;
    for (name, page) in CONTROLLERS {
        let answer = get(shared, MANAGER, page, "/readyz").unwrap_or_else(|why| why);
        if answer.contains("ok, leads") {
            leaders += 1;
            all.extend(of_leader(shared, name, page));
        } else if !answer.contains("ok, stands by; ") || !answer.contains(" leads at ") {
            all.push(format!("route {name}: {}", answer.lines().last().unwrap_or("no answer")));
        }
    }
    if leaders != 1 {
        all.push(format!("{leaders} controllers lead"));
    }
    all
}

fn of_leader(shared: &Shared, name: &str, page: u16) -> Vec<String> {
    let (at, token) = (format!("{MANAGER}:{page}"), shared.text("token"));
    let words = ["route", "status", "--controller", &at, "--token-file", &token];
    let picture = match shared.ask(&shared.manager(), &words) {
        Ok(picture) => picture,
        Err(why) => return vec![format!("route {name}: {why}")],
    };
    let mut all = Vec::new();
    let mut check = |is_well: bool, what: String| {
        if !is_well {
            all.push(format!("route {name}: {what}"));
        }
    };
    check(picture["store_fault"].is_null(), format!("store: {}", picture["store_fault"]));
    for field in ["unread", "unreadable_records"] {
        let is_empty = picture[field].as_object().is_none_or(serde_json::Map::is_empty);
        check(is_empty, format!("{field}: {}", picture[field]));
    }
    let links = picture["links"].as_array().cloned().unwrap_or_default();
    check(!links.is_empty(), "no links".into());
    for link in &links {
        let shown = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let which = format!("{} to {}", shown(&link["from"]), shown(&link["to"]));
        check(link["up"] == true, format!("{which} is down"));
        check(link["alarm"].is_null(), format!("{which}: {}", link["alarm"]));
    }
    all
}

fn not_ready(shared: &Shared, address: Ipv4Addr, port: u16, name: &str) -> Option<String> {
    match get(shared, address, port, "/readyz") {
        Ok(answer) if answer.starts_with("HTTP/1.") && answer.contains(" 200 ") => None,
        Ok(answer) | Err(answer) => {
            Some(format!("{name}: {}", answer.lines().last().unwrap_or_default()))
        }
    }
}

/// Returns the answer of a server in the management network, with its head.
fn get(shared: &Shared, address: Ipv4Addr, port: u16, path: &str) -> Result<String, String> {
    let to = SocketAddr::from((address, port));
    let limit = Duration::from_secs(5);
    let connect = || TcpStream::connect_timeout(&to, limit);
    let stream = weft_lab::enter(&shared.manager(), connect).map_err(|error| error.to_string())?;
    let ask = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(limit))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {to}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    stream.and_then(ask).map_err(|error: std::io::Error| format!("{to}: {error}"))
}
