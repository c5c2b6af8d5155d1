//! `weft top`, in a terminal and as text, against real programs and daemons.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::monitor::Monitor;
use crate::programs::{Folder, Running, said, until};
use crate::terminal::Terminal;

/// A program and its client, and the daemons of an overlay and of a device, all of this test.
struct World {
    folder: Folder,
    overlay: PathBuf,
    device: PathBuf,
    _programs: Vec<Running>,
}

impl World {
    fn start(name: &str) -> Self {
        let folder = Folder::new(name);
        let server = folder.server("watched_ping");
        let client = folder.traffic(&server.at());
        let path = |end: &str| {
            std::env::temp_dir().join(format!("weft-top-{}-{name}.{end}", std::process::id()))
        };
        let (overlay, device, config) = (path("vpc"), path("device"), path("toml"));
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let text = format!(
            "[host]\naddress = '127.0.0.1'\nport = {port}\ncontrol = '{}'\n[[network]]\nvni = 100\npeers = []\n\
             [[port]]\nname = 'guest'\nvni = 100\nmac = '02:00:00:00:07:01'\nvhost-user = {{ socket = '{}' }}\n",
            overlay.display(),
            path("guest").display(),
        );
        std::fs::write(&config, text).unwrap();
        let daemon = |words: &[&str]| {
            let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
            let command = command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
            Running(command.spawn().unwrap())
        };
        let device_at = device.to_str().unwrap();
        let programs = vec![
            daemon(&["vpc", "serve", "--config", config.to_str().unwrap()]),
            daemon(&["device", "serve", "--socket", device_at]),
            server.running,
            client,
        ];
        until("the device's daemon", || {
            folder.weft(&["device", "list", "--socket", device_at]).status.success().then_some(())
        });
        until("the overlay's daemon", || {
            let words = ["vpc", "status", "--control", overlay.to_str().unwrap()];
            folder.weft(&words).status.success().then_some(())
        });
        Self { folder, overlay, device, _programs: programs }
    }

    /// Returns the words of a command that asks this world. Nobody steers routers here.
    fn words(&self) -> Vec<String> {
        // The port is free again when it is asked.
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let [overlay, device] = [&self.overlay, &self.device].map(|it| it.to_str().unwrap());
        ["top", "--control", overlay, "--socket", device, "--controller", &nobody]
            .map(str::to_owned)
            .to_vec()
    }

    /// Starts the page in a terminal.
    fn top(&self) -> Terminal {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
        let words = self.words();
        let command = command.args(words).args(["--interval", "100ms"]);
        Terminal::start(command.env("WEFT_STAT", self.folder.path()).env_remove("NO_COLOR"))
    }

    /// Runs a command that prints one page.
    fn once(&self, more: &[&str]) -> String {
        let words = self.words();
        let words: Vec<&str> =
            words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let output = self.folder.weft(&words);
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for end in ["vpc", "json", "device", "state", "toml", "guest"] {
            let _ = std::fs::remove_file(self.overlay.with_extension(end));
        }
    }
}

/// Waits until the terminal shows all of these words, and none of those.
fn shows(top: &Terminal, words: &[&str], absent: &[&str]) -> String {
    let mut text = String::new();
    let described = || words.join(", ");
    let begun = std::time::Instant::now();
    loop {
        top.text().clone_into(&mut text);
        let is_there = |word: &&str| text.contains(*word);
        if words.iter().all(is_there) && !absent.iter().any(is_there) {
            return text;
        }
        assert!(begun.elapsed().as_secs() < 60, "not shown: {}\n{text}", described());
        weft_testkit::pause();
    }
}

#[test]
fn a_page_in_a_terminal_follows_its_keys_and_leaves_the_terminal_as_it_was() {
    let world = World::start("keys");
    let mut top = world.top();
    // The controller is missing, which is a line with its fix.
    let fault = ["controller: cannot reach", "is `weft route serve` running there?"];
    shows(&top, &[&fault[..], &["paths 0", "q quit"]].concat(), &["overlay:", "device:"]);
    assert!(top.see(vt100::Screen::alternate_screen) && !top.is_restored());
    top.press("\t");
    // Both ends of the ping-pong, with rates after the second sample.
    let pairs = shows(&top, &["from", "watched_ping/", "127.0.0.1", "open", "pairs 2"], &[]);
    assert!(pairs.lines().all(|line| line.chars().count() <= 80), "{pairs}");
    top.press("\x1b[C");
    shows(&top, &["port guest", "no tenant", "channels watched_ping/"], &[]);
    top.press("/GUEST");
    shows(&top, &["/GUEST_", "port guest", "queues 1"], &["channels watched_ping/"]);
    top.press("\r\x1b[C");
    shows(&top, &["no move is in force", "only /GUEST"], &[]);
    top.press("\x1b[D");
    shows(&top, &["port guest"], &[]);
    top.press("\x1b");
    shows(&top, &["channels watched_ping/"], &["only /GUEST"]);
    top.press("s");
    shows(&top, &["queue▾"], &[]);
    top.press("p");
    shows(&top, &["paused"], &[]);
    top.press("q");
    let ended = until("its end", || top.child.try_wait().unwrap());
    assert!(ended.success() && top.is_restored(), "{ended:?}: {}", top.text());
}

#[test]
fn signals_stop_continue_and_end_it_with_the_terminal_restored() {
    let world = World::start("signals");
    let mut top = world.top();
    let pid = Pid::from_child(&top.child);
    let stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    };
    shows(&top, &["q quit"], &[]);
    for stop in ["signal", "key"] {
        match stop {
            "signal" => kill_process(pid, Signal::TSTP).unwrap(),
            _ => top.press("\x1a"),
        }
        until("the stop", || stopped().then_some(()));
        until("its terminal", || top.is_restored().then_some(()));
        kill_process(pid, Signal::CONT).unwrap();
        until("the page again", || top.see(vt100::Screen::alternate_screen).then_some(()));
        shows(&top, &["weft top", "paths 0", "q quit"], &[]);
    }
    kill_process(pid, Signal::TERM).unwrap();
    let ended = until("its end", || top.child.try_wait().unwrap());
    assert_eq!(ended.signal(), Some(15), "a parent sees which signal it was");
    until("its terminal", || top.is_restored().then_some(()));
}

#[test]
fn one_page_as_text_and_as_json_has_rates() {
    let world = World::start("once");
    let text = world.once(&["--once", "--interval", "200ms"]);
    for word in
        ["controller: cannot reach", "paths\n", "pairs\n", "queues\n", "moves\n", "port guest"]
    {
        assert!(text.contains(word), "{word:?} is not in\n{text}");
    }
    let page = until("rates of both ends", || {
        let page: Value =
            serde_json::from_str(&world.once(&["--json", "--interval", "200ms"])).unwrap();
        let pairs = page["pairs"].as_array().unwrap();
        let sends = |pair: &Value| pair["bytes_per_second"].as_f64().is_some_and(|it| it > 0.0);
        (pairs.len() == 2 && pairs.iter().all(sends)).then_some(page)
    });
    assert_eq!(page["faults"].as_array().unwrap().len(), 1, "{page}");
    let channels = page["queues"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["queue"].as_str().unwrap().starts_with("channels watched_ping/"));
    assert_eq!(channels.count(), 2, "{page}");
    let filtered: Value =
        serde_json::from_str(&world.once(&["queues", "--json", "--filter", "guest"])).unwrap();
    assert_eq!(filtered["queues"].as_array().unwrap().len(), 1, "{filtered}");
    assert!(filtered.get("pairs").is_none(), "one view was named");
}

#[test]
fn programs_of_other_hosts_come_from_their_agents() {
    let folder = Folder::new("top-agents");
    let server = folder.server("watched_ping");
    let _client = folder.traffic(&server.at());
    let agent = Monitor::agent(&folder, &["--listen", "127.0.0.1:0"]);
    let empty = Folder::new("top-nowhere");
    let hosts = format!("{},127.0.0.1:1", agent.at);
    let page = until("both ends", || {
        let page = empty.json(&["top", "--hosts", &hosts, "--interval", "200ms"]);
        (page["pairs"].as_array().unwrap().len() == 2).then_some(page)
    });
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let from = page["pairs"][0]["from"].as_str().unwrap();
    assert!(from.starts_with(&format!("{}:watched_ping/", host.trim())), "{from}");
    let faults = page["faults"].as_array().unwrap();
    let silent = faults.iter().any(|fault| {
        let fault = fault.as_str().unwrap();
        fault.starts_with("agent 127.0.0.1:1: ") && fault.contains("`weft monitor agent`")
    });
    assert!(silent && faults.len() == 2, "its controller and one agent: {page}");
}

#[test]
fn without_a_terminal_the_error_names_what_prints_a_page() {
    let folder = Folder::new("top-no-terminal");
    let output = folder.weft(&["top"]);
    assert!(!output.status.success() && said(&output).contains("`weft top --once`"));
    let often = folder.weft(&["top", "--once", "--interval", "1ms"]);
    assert!(said(&often).contains("100ms at least"), "{}", said(&often));
}
