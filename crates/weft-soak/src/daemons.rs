//! The daemons of a soak: those that ship, from the built `weft`, with the settings of a small fleet.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::HOSTS;
use crate::clock::library;
use crate::shared::Shared;
use crate::stage::{EXTRA, MANAGER, TENANTS, management_address, tenant_address};
use crate::supervisor::{Supervisor, Unit};

/// The pages of the two controllers.
pub(crate) const CONTROLLERS: [(&str, u16); 2] = [("a", 7490), ("b", 7491)];
/// The time after which another controller leads when one falls silent: the default of two seconds is too short for two busy
/// processors with forty programs.
const TERM: u32 = 10;
/// The longest that a controller accepts.
const MAX_TERM: u32 = 60;
/// The time for which routers grant their lease.
const LEASE: u32 = 15;
/// The name of each host's device.
pub(crate) const DEVICE: &str = "soak";

/// Returns the addresses of both controllers, for clients.
pub(crate) fn controllers() -> String {
    CONTROLLERS.map(|(_, port)| format!("{MANAGER}:{port}")).join(",")
}

/// Starts all daemons, and gives the fleet its networks and ports.
///
/// # Errors
/// Returns an error if a daemon cannot be started, or the fleet cannot be configured.
pub(crate) fn start(shared: &Shared, supervisor: &Supervisor) -> Result<()> {
    let library = library();
    ensure!(
        Path::new(&library).exists(),
        "no {library}, by which clocks jump: it comes with the Debian package libfaketime"
    );
    for host in 0..HOSTS {
        vpc(shared, supervisor, host)?;
        device(shared, supervisor, host)?;
        let listen = format!("{}:7475", management_address(host));
        let words =
            ["monitor", "agent", "--listen", &listen, "--token-file", &shared.text("token")];
        let unit =
            unit(shared, &format!("monitor agent h{host}"), &shared.hosts[host], &words, 1000);
        supervisor.add(of_host(shared, unit, host))?;
    }
    shared
        .weft(
            &shared.manager(),
            &["fleet", "--config", &shared.text("h0/vpc.toml"), "put", &fleet(shared)?],
        )
        .map_err(anyhow::Error::msg)
        .context("the fleet cannot be configured")?;
    for (name, page) in CONTROLLERS {
        route(shared, supervisor, name, page)?;
    }
    let lab = &shared.lab;
    let collectors = "127.0.0.1:6343,127.0.0.1:6344";
    let words = [
        "route",
        "agent",
        "--lab",
        lab,
        "--rate",
        "64",
        "--counters",
        "1s",
        "--collector",
        collectors,
    ];
    supervisor.add(unit(shared, "route agent", &shared.manager(), &words, 1000))?;
    let agents: Vec<_> = (0..HOSTS).map(|it| format!("{}:7475", management_address(it))).collect();
    let (agents, token) = (agents.join(","), shared.text("token"));
    let listen = format!("{MANAGER}:7480");
    let words =
        ["monitor", "serve", "--listen", &listen, "--token-file", &token, "--hosts", &agents];
    let words = [&words[..], &["--agents-token-file", &token, "--keep", "60s"]].concat();
    supervisor.add(unit(shared, "monitor", &shared.manager(), &words, 1000))
}

/// Returns a daemon that runs a command of `weft`.
fn unit(shared: &Shared, name: &str, namespace: &str, words: &[&str], restart_ms: u64) -> Unit {
    let mut line = vec![shared.weft.display().to_string()];
    line.extend(words.iter().map(|&word| word.to_owned()));
    line.extend(["--log".to_owned(), "json".to_owned()]);
    Unit {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        words: line,
        environment: Vec::new(),
        restart_after: Duration::from_millis(restart_ms),
        cgroup: Some(shared.cgroup(name).join("cgroup.procs")),
        account: None,
    }
}

/// Returns a daemon with a host's folder of statistics.
fn of_host(shared: &Shared, mut unit: Unit, host: usize) -> Unit {
    unit.environment.push(("WEFT_STAT".into(), shared.text(&format!("h{host}/stat"))));
    unit
}

/// Returns a daemon whose clock jumps when the file of its name with the extension `clock` changes.
fn with_clock(shared: &Shared, mut unit: Unit) -> Result<Unit> {
    let file = clock_file(&unit.name);
    let path = shared.write(&file, "+0")?;
    let library = library();
    let variables = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", &path),
        ("FAKETIME_CACHE_DURATION", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ];
    unit.environment.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    Ok(unit)
}

/// Returns the file that a daemon's clock is read from.
pub(crate) fn clock_file(daemon: &str) -> String {
    format!("{}.clock", daemon.replace(' ', "-"))
}

fn vpc(shared: &Shared, supervisor: &Supervisor, host: usize) -> Result<()> {
    let folder = format!("h{host}");
    let config = format!(
        "[host]\naddress = '{}'\ncontrol = '{}'\nstate = '{}'\n[fleet]\nname = 'h{host}'\n[fleet.etcd]\n{}",
        shared.addresses[host],
        shared.text(&format!("{folder}/vpc.sock")),
        shared.text(&format!("{folder}/disk/vpc.json")),
        shared.etcd,
    );
    let config = shared.write(&format!("{folder}/vpc.toml"), &config)?;
    let words = ["vpc", "serve", "--config", &config];
    let mut unit = unit(shared, &format!("vpc {folder}"), &shared.hosts[host], &words, 100);
    if host == HOSTS - 1 {
        unit = with_clock(shared, unit)?;
    }
    supervisor.add(unit)
}

fn device(shared: &Shared, supervisor: &Supervisor, host: usize) -> Result<()> {
    let folder = format!("h{host}");
    let state = shared.text(&format!("{folder}/disk/device.state"));
    let config = shared.write(&format!("{folder}/device.toml"), &format!("state = '{state}'\n"))?;
    let socket = device_socket(shared, host);
    let words = ["device", "serve", "--config", &config, "--socket", &socket];
    let unit = unit(shared, &format!("device {folder}"), &shared.hosts[host], &words, 100);
    supervisor.add(of_host(shared, unit, host))?;
    let until = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        match shared.weft(&shared.hosts[host], &["device", "create", DEVICE, "--socket", &socket]) {
            Ok(_) => return Ok(()),
            Err(why) => ensure!(std::time::Instant::now() < until, "the device of h{host}: {why}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the socket of a host's device.
pub(crate) fn device_socket(shared: &Shared, host: usize) -> String {
    shared.text(&format!("h{host}/device.sock"))
}

fn route(shared: &Shared, supervisor: &Supervisor, name: &str, page: u16) -> Result<()> {
    let listen = page - 7490 + 6343;
    let etcd = &shared.etcd;
    let config = format!(
        "listen = '127.0.0.1:{listen}'\nlab = '{}'\nlease = '{}s'\n[cluster]\nname = 'soak'\nttl = '{}s'\n[cluster.etcd]\n{etcd}",
        shared.lab,
        LEASE * shared.slack,
        MAX_TERM.min(TERM * shared.slack),
    );
    let config = shared.write(&format!("route-{name}.toml"), &config)?;
    let (page, token) = (format!("{MANAGER}:{page}"), shared.text("token"));
    let words = ["route", "serve", "--config", &config, "--page", &page, "--token-file", &token];
    let unit = unit(shared, &format!("route {name}"), &shared.manager(), &words, 2000);
    supervisor.add(if name == "a" {
        without_children(shared, with_clock(shared, unit)?)?
    } else {
        unit
    })
}

/// Returns a controller whose scripts on routers have the true clock: they run on other machines than the controller.
fn without_children(shared: &Shared, mut unit: Unit) -> Result<Unit> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = shared.path("bin");
    std::fs::create_dir_all(&folder)?;
    let script = format!("#!/bin/sh\nPATH='{path}' exec env -u LD_PRELOAD ip \"$@\"\n");
    let script = shared.write("bin/ip", &script)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    unit.environment.push(("PATH".into(), format!("{}:{path}", folder.display())));
    Ok(unit)
}

/// Writes the objects of the fleet, and returns their file.
fn fleet(shared: &Shared) -> Result<String> {
    let mut text = String::new();
    for (tenant, vni, in_order) in TENANTS {
        text.push_str(&format!("[[network]]\nvni = {vni}\nin-order = {in_order}\n"));
        (0..HOSTS).for_each(|host| text.push_str(&port(shared, (tenant, vni), host)));
    }
    shared.write("fleet.toml", &text)
}

/// Returns the port of a tenant on a host, as an object of the fleet.
pub(crate) fn port(shared: &Shared, (tenant, vni): (&str, u32), host: usize) -> String {
    let mut address = tenant_address(host).octets();
    let mut mac = [2, 0, 0, 0, u8::try_from(vni).expect("a small number"), address[3]];
    if tenant == EXTRA.0 {
        address[3] += 100;
        mac[5] += 100;
    }
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let [a, b, c, d] = address;
    format!(
        "[[port]]\nhost = 'h{host}'\nname = '{tenant}'\nvni = {vni}\nmac = '{mac}'\naddresses = ['{a}.{b}.{c}.{d}/24']\n\
         tap = {{ interface = 'eth0', namespace = '{}', persistent = {} }}\n",
        shared.tenant(tenant, host),
        tenant != EXTRA.0,
    )
}
