//! `--log journald`: entries with the fields of events, as journald receives them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use weft_testkit::{can_run, skip};

use crate::{Folder, Running};

/// Returns the fields of an entry (systemd's native protocol): `NAME=value`, or the name, the length and the value.
fn fields(mut entry: &[u8]) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut fields = BTreeMap::new();
    while let Some(end) = entry.iter().position(|&byte| byte == b'\n') {
        let (line, rest) = (&entry[..end], &entry[end + 1..]);
        if let Some(at) = line.iter().position(|&byte| byte == b'=') {
            fields.insert(text(&line[..at]), text(&line[at + 1..]));
            entry = rest;
        } else {
            let (length, rest) = rest.split_first_chunk().unwrap();
            let (value, rest) = rest.split_at(u64::from_le_bytes(*length).try_into().unwrap());
            fields.insert(text(line), text(value));
            entry = &rest[1..];
        }
    }
    fields
}

/// The daemon has a mount namespace of its own, in which this test's socket is the journal's.
#[test]
fn an_event_in_the_journal_has_its_fields() {
    if !rustix::process::geteuid().is_root() {
        return skip("the journal", "only root may mount");
    }
    if !can_run("the journal", "unshare", &["--mount", "true"], "util-linux") {
        return;
    }
    let folder = Folder::new("journal");
    let journal = UnixDatagram::bind(folder.path("socket")).unwrap();
    journal.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let config = folder.path("vpc.toml");
    let control = folder.path("control");
    let text = format!(
        "[host]\naddress = '127.0.0.1'\nport = 0\ncontrol = '{}'\n[[network]]\nvni = 100\npeers = []\n",
        control.display()
    );
    fs::write(&config, text).unwrap();
    let weft = assert_cmd::cargo::cargo_bin!("weft");
    // The real journal's folder, if there is one, stays as it is.
    let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind \"$1\" /run/systemd/journal && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(folder.path("")).arg(weft);
    command.args(["vpc", "serve", "--log", "journald", "--config"]).arg(&config);
    let _daemon = Running(command.stdout(Stdio::null()).spawn().unwrap());
    let ask = |words: &[&str]| {
        let mut command = Command::new(weft);
        command.args(["vpc", "--control", control.to_str().unwrap()]).args(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    let began = std::time::Instant::now();
    while !ask(&["status"]) {
        assert!(began.elapsed() < Duration::from_secs(60), "no daemon at {}", control.display());
        weft_testkit::pause();
    }
    assert!(ask(&["reload", "--config", config.to_str().unwrap()]));
    let mut entry = vec![0; 1 << 16];
    loop {
        let length = journal.recv(&mut entry).unwrap();
        let fields = fields(&entry[..length]);
        let of = |name: &str| fields.get(&format!("WEFT_{name}")).map(String::as_str);
        if of("EVENT") != Some("reload-applied") {
            continue;
        }
        assert_eq!(fields["MESSAGE"], "configuration reloaded");
        assert_eq!((of("SOURCE"), of("NETWORKS_SET")), (Some("file"), Some("0")));
        assert_eq!(fields["SYSLOG_IDENTIFIER"], "weft");
        // syslog(3): LOG_NOTICE.
        assert_eq!(fields["PRIORITY"], "5");
        return;
    }
}
