//! Sockets that the service manager listens with: a client that comes before the daemon is answered when it is there.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

use crate::daemon::{Running, Stage, get};
use crate::unit::Unit;

/// Starts a daemon with two sockets, or one, as systemd passes them: from descriptor 3 on, for this process alone.
fn start_with(command: &Command, first: OwnedFd, second: Option<OwnedFd>) -> Running {
    let (moves, count) = match second {
        Some(_) => ("exec 3<&0 4<&1 </dev/null >/dev/null", "2"),
        None => ("exec 3<&0 </dev/null", "1"),
    };
    let script = format!("{moves}; export LISTEN_PID=$$ LISTEN_FDS={count}; exec \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    shell.envs(variables).stdin(Stdio::from(first));
    shell.stdout(second.map_or_else(Stdio::null, Stdio::from));
    Running(shell.stderr(Stdio::inherit()).spawn().unwrap())
}

/// Sends a request for the status; the answer is read later.
fn ask(control: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(control).unwrap();
    stream.write_all(b"{\"do\":\"status\"}\n").unwrap();
    stream
}

fn answer(stream: UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// A daemon of the overlay without ports, which needs no right.
#[test]
fn a_client_that_comes_before_the_overlays_daemon_or_between_two_is_answered() {
    let stage = Stage::new("sock", "weft-vpc");
    let control = stage.path("vpc.sock");
    let text = fs::read_to_string(stage.path("vpc.toml")).unwrap();
    fs::write(stage.path("vpc.toml"), text.split("[[port]]").next().unwrap()).unwrap();
    let listener = UnixListener::bind(&control).unwrap();
    let pages = TcpListener::bind(&stage.http).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    command
        .args(["vpc", "serve", "--metrics", &stage.http, "--config"])
        .arg(stage.path("vpc.toml"));
    let start = || {
        let (one, other) = (listener.try_clone().unwrap(), pages.try_clone().unwrap());
        start_with(&command, one.into(), Some(other.into()))
    };
    for _ in 0..2 {
        let waiting = ask(&control);
        let mut scrape = TcpStream::connect(&stage.http).unwrap();
        scrape.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let daemon = start();
        let status = answer(waiting);
        assert!(status.contains("\"status\""), "{status}");
        let mut page = String::new();
        scrape.read_to_string(&mut page).unwrap();
        assert!(page.starts_with("HTTP/1.0 200 OK") && page.contains("weft_vpc_"), "{page}");
        assert!(daemon.terminate());
        assert!(control.exists(), "the socket is the manager's");
    }
    // A daemon that is killed in the middle.
    drop(start());
    let waiting = ask(&control);
    let _daemon = start();
    assert!(answer(waiting).contains("\"status\""));
}

#[test]
fn a_program_that_comes_before_the_devices_daemon_gets_its_device() {
    let stage = Stage::new("sock", "weft-device");
    let path = stage.path("device.sock");
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 16).unwrap();
    let weft = |words: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        command.args(["device", "--socket"]).arg(&path).args(words);
        command
    };
    let mut client = weft(&["create", "a"]).stdout(Stdio::null()).spawn().unwrap();
    let serve = weft(&["serve"]);
    let daemon = start_with(&serve, listener.try_clone().unwrap(), None);
    assert!(client.wait().unwrap().success());
    assert!(daemon.terminate());
    assert!(path.exists(), "the socket is the manager's");
    let client = weft(&["list"]).stdout(Stdio::piped()).spawn().unwrap();
    let _daemon = start_with(&serve, listener, None);
    let listed = client.wait_with_output().unwrap();
    assert!(String::from_utf8(listed.stdout).unwrap().contains('a'));
}

#[test]
fn the_monitors_page_is_served_at_the_managers_socket() {
    let stage = Stage::new("sock", "weft-monitor-agent");
    let pages = TcpListener::bind(&stage.http).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    command.args(["monitor", "agent", "--listen", &stage.http]);
    command.env("WEFT_STAT", stage.path("stat"));
    let stream = TcpStream::connect(&stage.http).unwrap();
    let _daemon = start_with(&command, pages.into(), None);
    assert_eq!(get(stream, "/healthz").0, "HTTP/1.0 200 OK");
}

/// Clients of a socket that no part of the daemon reads would wait without end.
#[test]
fn a_socket_that_the_daemon_does_not_use_is_an_error_that_names_it() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = other.local_addr().unwrap().to_string();
    let script = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(assert_cmd::cargo::cargo_bin!("weft"));
    shell.args(["monitor", "agent", "--listen", "127.0.0.1:0"]);
    let output = shell.stdin(Stdio::from(OwnedFd::from(other))).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains(&at), "{error}");
}

/// Returns the value of a setting of a unit.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

/// A socket at an address that the service does not serve would end the service.
#[test]
fn the_socket_units_listen_where_their_services_do() {
    let weft = |words: &[&str]| {
        let output =
            Command::new(assert_cmd::cargo::cargo_bin!("weft")).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let mut seen = 0;
    for unit in Unit::all() {
        let Ok(text) = fs::read_to_string(folder.join(format!("{}.socket", unit.name))) else {
            continue;
        };
        seen += 1;
        let command = unit.values("ExecStart").next().unwrap();
        let words: Vec<&str> = command.split_whitespace().skip(1).take(2).collect();
        let defaults = weft(&[&words[..], &["--help"]].concat());
        for line in text.lines().filter(|line| line.starts_with("Listen")) {
            let at = line.split_once('=').unwrap().1;
            let is_default = defaults.contains(&format!("[default: {at}]"));
            let is_path = ["/run/weft/vpc.sock", "/run/weft/device.sock"].contains(&at);
            assert!(command.contains(at) || is_default || is_path, "{}: {line}", unit.name);
        }
        let mode = match unit.name.as_str() {
            // Its daemon checks each request's user.
            "weft-device" => "0666",
            _ => "0600",
        };
        let has_path = text.contains("=/run/weft/");
        assert_eq!(value(&text, "SocketMode"), has_path.then_some(mode), "{}", unit.name);
    }
    assert_eq!(seen, 5);
}
