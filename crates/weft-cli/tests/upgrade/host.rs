//! A host with a daemon of either version.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weft_lab::Lab;

use crate::Version;

/// The time limit for a daemon to start and to end.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A host, with a folder for its files.
pub(crate) struct Host<'a> {
    place: Option<(&'a Lab, usize)>,
    folder: PathBuf,
    daemon: Option<Child>,
}

impl<'a> Host<'a> {
    /// Returns a host of a lab with a tenant in a namespace. Its packets are sealed: without a connection of Weft's nothing arrives.
    pub(crate) fn of_lab(lab: &'a Lab, index: usize) -> Self {
        let host = Self::new(Some((lab, index)), &format!("h{index}"));
        let [own, other] = [index, 1 - index].map(|it| lab.fabric().address(it));
        let number = index + 1;
        host.configure(&format!(
            "address = '{own}'\nencryption = {{ mode = 'required' }}\n[[network]]\nvni = 100\npeers = ['{other}']\n\
             [[port]]\nname = 'web'\nvni = 100\nmac = '02:00:00:00:07:0{number}'\naddresses = ['192.168.7.{number}/24']\n\
             tap = {{ interface = 'eth0', namespace = '{}', persistent = true }}\n",
            host.tenant()
        ));
        let tenant = host.tenant();
        for words in [&["netns", "add", &tenant][..], &["-n", &tenant, "link", "set", "lo", "up"]] {
            assert!(Command::new("ip").args(words).status().unwrap().success(), "{words:?}");
        }
        host
    }

    /// Returns a host without tenants, which needs no privileges.
    pub(crate) fn on_loopback() -> Self {
        let host = Self::new(None, "loopback");
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        host.configure(&format!(
            "address = '127.0.0.1'\nport = {free}\n[[network]]\nvni = 100\npeers = ['127.0.0.2']\n"
        ));
        host
    }

    fn new(place: Option<(&'a Lab, usize)>, name: &str) -> Self {
        let folder = format!("weft-upgrade-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self { place, folder, daemon: None }
    }

    /// Writes the configuration, with the control socket.
    fn configure(&self, host: &str) {
        let text = format!("[host]\ncontrol = '{}'\n{host}", self.file("sock").display());
        std::fs::write(self.file("toml"), text).unwrap();
    }

    /// Returns the host's file of a kind.
    pub(crate) fn file(&self, kind: &str) -> PathBuf {
        self.folder.join("vpc").with_extension(kind)
    }

    /// Returns the namespace of the host's tenant, which is removed with the lab.
    pub(crate) fn tenant(&self) -> String {
        let (lab, index) = self.place.unwrap();
        format!("weft-{}.red{index}", lab.name())
    }

    /// Starts a daemon, and waits until it answers.
    pub(crate) fn start(&mut self, version: Version) {
        let mut command = Command::new(version.program());
        command.args(["vpc", "serve", "--config"]).arg(self.file("toml")).stdout(Stdio::null());
        command.stderr(std::fs::File::create(self.file("log")).unwrap());
        let daemon = match self.place {
            Some((lab, index)) => lab.spawn(&format!("h{index}"), &mut command).unwrap(),
            None => command.spawn().unwrap(),
        };
        self.daemon = Some(daemon);
        let began = Instant::now();
        while !self.command(version, &["status"]).output().unwrap().status.success() {
            let log = std::fs::read_to_string(self.file("log")).unwrap();
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < LIMIT, "{version:?}: {ended:?}: {log}");
            weft_testkit::pause();
        }
    }

    /// Ends the daemon as a service manager does.
    pub(crate) fn stop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
        let began = Instant::now();
        while daemon.try_wait().unwrap().is_none() {
            if began.elapsed() > LIMIT {
                let _ = daemon.kill();
                panic!("the daemon does not end");
            }
            weft_testkit::pause();
        }
    }

    fn command(&self, version: Version, words: &[&str]) -> Command {
        let mut command = Command::new(version.program());
        command.args(["vpc", "--control"]).arg(self.file("sock")).args(words);
        command
    }

    /// Runs a command of a version, which must succeed, and returns its output.
    pub(crate) fn done(&self, version: Version, words: &[&str]) -> Vec<u8> {
        let output = self.command(version, words).output().unwrap();
        assert!(output.status.success(), "{version:?}: {words:?}: {output:?}");
        output.stdout
    }

    pub(crate) fn json(&self, version: Version, words: &[&str]) -> Value {
        serde_json::from_slice(&self.done(version, words)).unwrap()
    }

    /// Returns the items that were changed by command.
    pub(crate) fn changes(&self, version: Version) -> Vec<String> {
        let rows = self.json(version, &["changes", "--json"]);
        let item = |row: &Value| row["item"].as_str().unwrap().to_owned();
        rows.as_array().unwrap().iter().map(item).collect()
    }

    pub(crate) fn reload(&self, version: Version, options: &[&str]) {
        let file = self.file("toml").display().to_string();
        self.done(version, &[&["reload", "--config", &file], options].concat());
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
