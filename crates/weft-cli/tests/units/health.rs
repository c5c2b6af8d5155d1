//! `/healthz` and `/readyz` of the daemons that serve HTTP.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use weft_lab::{Lab, LabSpec};

use crate::daemon::{Running, Stage, get, is_missing};
use crate::unit::Unit;

const OK: &str = "HTTP/1.0 200 OK";

#[test]
fn every_daemon_with_http_is_healthy_and_ready_when_it_says_so() {
    if is_missing("health of the daemons") {
        return;
    }
    for name in ["weft-vpc", "weft-route", "weft-monitor", "weft-monitor-agent"] {
        let (unit, stage) = (Unit::named(name), Stage::new("health", name));
        let daemon = stage.start(&unit);
        stage.manager.until("READY=1\n");
        for path in ["/healthz", "/readyz"] {
            assert_eq!(stage.get(path), (OK.into(), "ok\n".into()), "{name} {path}");
        }
        drop(daemon);
    }
}

/// A kubelet or a load balancer on another host shows no token: it reads whether the daemon lives, and nothing else.
#[test]
fn probes_of_other_hosts_need_no_token_where_metrics_do() {
    if is_missing("health without a token") {
        return;
    }
    let unit = Unit::named("weft-monitor-agent");
    let mut stage = Stage::new("probe", &unit.name);
    let lab = Lab::up(&LabSpec::named(format!("wupl{}", std::process::id()))).unwrap();
    stage.http = format!("{}:7475", lab.fabric().address(1));
    let token = stage.path("token");
    fs::write(&token, "0123456789abcdef").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = stage.command(&unit);
    command.arg("--token-file").arg(&token);
    let daemon = Running(lab.enter("h1", || command.spawn()).unwrap().unwrap());
    stage.manager.until("READY=1\n");
    let status = |path: &str| {
        let stream = lab.enter("h0", || TcpStream::connect(&stage.http)).unwrap();
        get(stream.unwrap(), path).0
    };
    assert_eq!(["/healthz", "/readyz"].map(status), [OK, OK]);
    assert_eq!(status("/metrics"), "HTTP/1.0 401 Unauthorized");
    drop(daemon);
}
