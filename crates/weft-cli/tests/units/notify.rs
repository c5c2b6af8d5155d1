//! The messages of the daemons to their service manager.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::daemon::{Stage, is_missing};
use crate::unit::{Unit, for_each_unit};

#[test]
fn every_daemon_serves_when_it_says_so_and_says_that_it_lives_and_ends() {
    if is_missing("the daemons and their service manager") {
        return;
    }
    for_each_unit(|unit| {
        let stage = Stage::new("life", &unit.name);
        let daemon = stage.start(unit);
        let ready = stage.manager.next();
        assert!(ready.starts_with("READY=1\nSTATUS="), "{}: {ready}", unit.name);
        stage.assert_serves(&unit.name);
        for _ in 0..2 {
            let alive = stage.manager.next();
            assert!(alive.starts_with("WATCHDOG=1\nREADY=1\nSTATUS="), "{}: {alive}", unit.name);
        }
        assert!(daemon.terminate(), "{} ends in order", unit.name);
        assert_eq!(stage.manager.rest().last().map(String::as_str), Some("STOPPING=1\n"));
    });
}

/// Returns the standard error of a daemon, which must fail.
fn error_of(mut child: Child) -> String {
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(!child.wait().unwrap().success(), "{error}");
    error
}

#[test]
fn a_daemon_that_cannot_start_is_never_ready() {
    if is_missing("daemons that cannot start") {
        return;
    }
    for_each_unit(|unit| {
        let stage = Stage::new("fault", &unit.name);
        // Nothing else can take the port while the test has it.
        let _taken = TcpListener::bind(&stage.http).unwrap();
        let mut command = stage.command(unit);
        let words = match unit.name.as_str() {
            "weft-device" => {
                fs::write(stage.path("device.toml"), "polcy = 'hopper'\n").unwrap();
                command.arg("--config").arg(stage.path("device.toml"));
                "polcy"
            }
            "weft-route-agent" => {
                command.args(["--source", "192.0.2.1"]);
                "192.0.2.1"
            }
            _ => stage.http.as_str(),
        };
        let error = error_of(command.spawn().unwrap());
        assert!(error.contains(words), "{}: {error}", unit.name);
        assert_eq!(stage.manager.rest(), Vec::<String>::new(), "{}", unit.name);
    });
}

#[test]
fn a_service_manager_that_is_not_there_is_named() {
    if is_missing("a daemon without its service manager") {
        return;
    }
    let unit = Unit::named("weft-monitor-agent");
    let stage = Stage::new("alone", &unit.name);
    let nowhere = stage.path("nowhere");
    let error = error_of(stage.command(&unit).env("NOTIFY_SOCKET", &nowhere).spawn().unwrap());
    assert!(error.contains(&format!("NOTIFY_SOCKET={}", nowhere.display())), "{error}");
    let error = error_of(stage.command(&unit).env("WATCHDOG_USEC", "30s").spawn().unwrap());
    assert!(error.contains("WATCHDOG_USEC is no number"), "{error}");
}

#[test]
fn a_reload_is_reported_and_counted_whether_or_not_it_is_applied() {
    if is_missing("reloads of the overlay") {
        return;
    }
    let unit = Unit::named("weft-vpc");
    let stage = Stage::new("reload", &unit.name);
    let daemon = stage.start(&unit);
    stage.manager.until("READY=1\n");
    let reload = || {
        let line = stage.line(&unit, "ExecReload");
        let is_applied = Command::new(&line[0]).args(&line[1..]).output().unwrap().status.success();
        let begin = stage.manager.until("RELOADING=1\nMONOTONIC_USEC=");
        assert!(
            begin.trim_end().rsplit('=').next().unwrap().parse::<u64>().unwrap() > 0,
            "{begin}"
        );
        stage.manager.until("READY=1\nSTATUS=");
        is_applied
    };
    assert!(reload());
    let config = fs::read_to_string(stage.path("vpc.toml")).unwrap();
    fs::write(stage.path("vpc.toml"), config.replace("[host]", "[host]\nmtu = 9000")).unwrap();
    assert!(!reload(), "[host] needs a restart");
    let metrics = stage.get("/metrics").1;
    for outcome in ["applied", "refused"] {
        let line = format!("weft_vpc_reloads_total{{outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&line), "{metrics}");
    }
    drop(daemon);
}

/// A manager that does not read, because it is busy or broken, neither stops a daemon nor misses for good that it serves.
#[test]
fn a_daemon_serves_although_its_manager_does_not_read_and_repeats_what_that_missed() {
    if is_missing("a service manager that does not read") {
        return;
    }
    let unit = Unit::named("weft-monitor-agent");
    let stage = Stage::new("deaf", &unit.name);
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    while other.send_to(b"full\n", stage.manager.path()).is_ok() {}
    let _daemon = stage.start(&unit);
    let give_up = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(&stage.http).is_err() || stage.get("/readyz").0 != "HTTP/1.0 200 OK" {
        assert!(Instant::now() < give_up, "it does not serve");
        weft_testkit::pause();
    }
    let messages = stage.manager.rest();
    assert!(messages.iter().all(|message| message == "full\n"), "{messages:?}");
    stage.manager.until("WATCHDOG=1\nREADY=1\n");
}
