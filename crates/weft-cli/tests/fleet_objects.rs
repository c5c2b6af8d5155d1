//! `weft fleet` against real etcd, as `docs/fleet.md` shows it.

use std::fs;
use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;
use weft_testkit::etcd::{Etcd, etcd_is_missing};

/// A host's own file, before there was a fleet.
const OWN: &str = "\
[host]
address = '10.1.0.2'
[[network]]
vni = 100
peers = ['10.2.0.2']
gateways = ['192.168.7.254/24']
[[port]]
name = 'web'
vni = 100
mac = '02:00:00:00:07:01'
addresses = ['192.168.7.1/24']
acl = 'edge'
tap = { interface = 'eth0', namespace = 'web' }
[[route]]
vni = 100
mac = '02:00:00:00:07:02'
peer = '10.2.0.2'
[[route]]
vni = 100
to = '10.9.0.0/16'
via = '192.168.7.1'
[[acl]]
name = 'edge'
rules = ['deny ingress tcp to any port 22', 'allow ingress any', 'allow egress any']
";

struct Fleet {
    etcd: Etcd,
    config: PathBuf,
}

impl Fleet {
    fn start() -> Self {
        let etcd = Etcd::start("cli", 1);
        let config = etcd.folder().join("vpc.toml");
        let table = etcd.toml();
        fs::write(&config, format!("{OWN}[fleet]\nname = 'host-1'\n[fleet.etcd]\n{table}"))
            .unwrap();
        Self { etcd, config }
    }

    /// Runs `weft fleet`. Returns what it prints, and `true` if it succeeded.
    fn run(&self, words: &[&str]) -> (String, bool) {
        let mut command = Command::cargo_bin("weft").unwrap();
        let output =
            command.arg("fleet").arg("--config").arg(&self.config).args(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (String::from_utf8(text).unwrap(), output.status.success())
    }

    #[track_caller]
    fn done(&self, words: &[&str]) -> String {
        let (text, succeeded) = self.run(words);
        assert!(succeeded, "{words:?}: {text}");
        text
    }

    #[track_caller]
    fn refused(&self, words: &[&str], why: &str) {
        let (text, succeeded) = self.run(words);
        assert!(!succeeded && text.contains(why), "{words:?}: {text}");
    }

    /// Writes a file and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let file = self.etcd.folder().join(name);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn keys(&self) -> Vec<String> {
        let entries: Vec<Value> = serde_json::from_str(&self.done(&["list", "--json"])).unwrap();
        entries.iter().map(|entry| entry["key"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn objects_are_imported_put_moved_deleted_and_checked() {
    if etcd_is_missing("weft fleet") {
        return;
    }
    let fleet = Fleet::start();
    let own = fleet.config.display().to_string();
    let imported = fleet.file("host-1.toml", &fleet.done(&["import", "--host", "host-1", &own]));
    assert_eq!(fleet.done(&["put", &imported]).trim(), "5 keys set, 0 deleted, 0 as before");
    assert_eq!(fleet.done(&["put", &imported]).trim(), "0 keys set, 0 deleted, 5 as before");
    assert_eq!(
        fleet.keys(),
        [
            "networks/100/machines/02:00:00:00:07:01",
            "networks/100/routes/10.9.0.0_16",
            "networks/100/settings",
            "policies/acl/edge",
            "ports/host-1/web"
        ]
    );
    let listed = fleet.done(&["list", "networks/100/machines"]);
    assert!(listed.contains(r#"{"host":"host-1","addresses":["192.168.7.1"]}"#), "{listed}");
    assert_eq!(fleet.done(&["check"]).trim(), "no faults");

    // Contradictions are named, and nothing is written.
    let port = "[[port]]\nhost = 'host-2'\nname = 'db'\nvni = 100\nmac = '02:00:00:00:07:02'\n\
                tap = { interface = 'eth0' }\n";
    let before = fleet.keys();
    for (old, new, why) in [
        ("vni = 100", "vni = 200", "there is no network 200"),
        ("'02:00:00:00:07:02'", "'02:00:00:00:07:01'", "weft fleet move host-1/PORT HOST"),
        ("name = 'db'", "name = 'db'\nacl = 'edgy'", "edge"),
        ("name = 'db'", "name = 'db'\naddresses = ['192.168.7.1/24']", "address of two machines"),
        ("name = 'db'", "name = 'd/b'", "d/b"),
        ("name = 'db'", "name = 'db'\ncolour = 1", "colour"),
    ] {
        let file = fleet.file("bad.toml", &port.replace(old, new));
        fleet.refused(&["put", &file], why);
    }
    assert_eq!(fleet.keys(), before);
    fleet.refused(&["del", "policies/acl/edge"], "edge");
    fleet.refused(&["del", "networks/100/settings"], "port");
    fleet.refused(&["del", "ports/host-9/web"], "there is no ports/host-9/web");
    fleet.refused(&["del", "ports/host-1"], "no key of a fleet's object");
    fleet.refused(&["move", "web", "host-2"], "HOST/PORT");

    assert_eq!(
        fleet.done(&["move", "host-1/web", "host-2"]).trim(),
        "2 keys set, 1 deleted, 0 as before"
    );
    assert!(fleet.keys().contains(&"ports/host-2/web".to_owned()));
    assert_eq!(fleet.done(&["check"]).trim(), "no faults");
    assert_eq!(
        fleet.done(&["del", "ports/host-2/web"]).trim(),
        "0 keys set, 2 deleted, 0 as before"
    );
    fleet.done(&["del", "policies/acl/edge"]);
    fleet.done(&["del", "networks/100/routes/10.9.0.0_16"]);
    fleet.done(&["del", "networks/100/settings"]);
    assert!(fleet.keys().is_empty());

    // More keys than a transaction has room for.
    let mut many = "[[network]]\nvni = 100\n".to_owned();
    for number in 0..100 {
        many += &port
            .replace("'db'", &format!("'p{number}'"))
            .replace("07:02'", &format!("08:{number:02x}'"));
    }
    let file = fleet.file("many.toml", &many);
    fleet.refused(&["put", &file], "--in-parts");
    assert!(fleet.keys().is_empty());
    assert_eq!(
        fleet.done(&["put", "--in-parts", &file]).trim(),
        "201 keys set, 0 deleted, 0 as before"
    );
}

#[test]
fn errors_name_the_file_and_etcd() {
    if etcd_is_missing("weft fleet, errors") {
        return;
    }
    let mut fleet = Fleet::start();
    fleet.etcd.kill(0);
    let endpoint = fleet.etcd.endpoints()[0].clone();
    fleet.refused(&["list"], &endpoint);
    let (text, succeeded) = fleet.run(&["list", "--json"]);
    let error: Value = serde_json::from_str(&text).unwrap();
    assert!(!succeeded && error["error"].as_str().unwrap().contains("start it"), "{error}");
    fs::write(&fleet.config, OWN).unwrap();
    fleet.refused(&["list"], "no table [fleet]");
    fs::write(&fleet.config, "[fleet]\nname = 'a'\n[fleet.etcd]\nendpoints = []\n").unwrap();
    fleet.refused(&["check"], "endpoints is empty");
}
