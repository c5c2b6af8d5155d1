//! Changes made by command: they survive reloads and restarts, and a full disk refuses them.

use serde_json::{Value, json};
use weft_testkit::skip;

use super::reload::port;
use super::{Serving, said};

impl Serving {
    /// Returns the items of `weft vpc changes`.
    fn changes(&self) -> Vec<String> {
        let listed: Value =
            serde_json::from_slice(&self.ask(&["changes", "--json"]).stdout).unwrap();
        let rows = listed.as_array().unwrap().iter();
        rows.map(|row| row["item"].as_str().unwrap().to_owned()).collect()
    }

    fn change(&self, arguments: &[&str]) {
        let output = self.ask(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output.stderr));
    }
}

#[test]
fn changes_by_command_survive_a_reload_and_a_restart() {
    let mut serving = Serving::start("kept");
    let socket = serving.control.with_extension("web").to_str().unwrap().to_owned();
    let of_file = serving.configured();
    serving.change(&["peer", "add", "100", "127.0.0.3"]);
    serving.change(&["route", "add", "100", "10.9.0.0/16", "10.8.0.9"]);
    let mac = "02:00:00:00:07:01";
    serving.change(&["port", "add", "web", "--vni", "100", "--mac", mac, "--vhost-user", &socket]);
    serving.change(&["limit", "web", "--ingress", "1Gbps"]);
    serving.change(&["acl", "web", "deny ingress tcp to any port 22"]);
    let changed = serving.configured();
    assert_ne!(changed, of_file);
    let items = serving.changes();
    assert_eq!(items.len(), 5, "{items:?}");
    let nothing = serving.reload(|text| text).unwrap();
    assert!(nothing.as_object().unwrap().values().all(|count| count == 0), "{nothing}");
    assert_eq!(serving.configured(), changed);
    serving.restart();
    assert_eq!((serving.configured(), serving.changes()), (changed, items));
    // The file changes what no command has changed.
    let more = serving.reload(|text| text + "[[network]]\nvni = 101\n").unwrap();
    assert_eq!((&more["networks-set"], &more["ports-removed"]), (&json!(1), &json!(0)));
    // What the file takes over is no change any more: it goes when the file has it no longer.
    let text = std::fs::read_to_string(&serving.config).unwrap();
    serving.reload(|text| text + &port("web", 1, &socket)).unwrap();
    assert!(!serving.changes().contains(&"port web".to_owned()));
    let removed = serving.reload(|_| text).unwrap();
    assert_eq!(removed["ports-removed"], json!(1));
}

#[test]
fn changes_are_dropped_on_request() {
    let mut serving = Serving::start("dropped");
    let of_file = serving.configured();
    serving.change(&["peer", "del", "100", "127.0.0.2"]);
    serving.change(&["route", "add", "100", "10.9.0.0/16", "10.8.0.9"]);
    let config = serving.config.to_str().unwrap().to_owned();
    serving.change(&["reload", "--config", &config, "--discard-changes"]);
    assert_eq!((serving.configured(), serving.changes()), (of_file.clone(), vec![]));
    serving.restart();
    assert_eq!(serving.configured(), of_file);
}

#[test]
fn a_full_disk_refuses_a_change_and_nothing_is_changed() {
    if !rustix::process::geteuid().is_root() {
        return skip("changes on a full disk", "only root mounts a disk of its own");
    }
    let folder = std::env::temp_dir().join(format!("weft-full-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let run = |program: &str, words: &[&str]| {
        let status = std::process::Command::new(program).args(words).status().unwrap();
        assert!(status.success(), "{program} {words:?}");
    };
    let path = folder.to_str().unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=16k", "weft-full", path]);
    let mut serving = Serving::start("full");
    let state = format!("[host]\nstate = '{path}/vpc.json'\n");
    let text = std::fs::read_to_string(&serving.config).unwrap().replacen("[host]\n", &state, 1);
    std::fs::write(&serving.config, text).unwrap();
    serving.restart();
    serving.change(&["peer", "add", "100", "127.0.0.3"]);
    let before = serving.configured();
    // What does not fit is left out.
    let _ = std::fs::write(folder.join("rest"), vec![0; 64 << 10]);
    let refused = serving.ask(&["route", "add", "100", "10.9.0.0/16", "10.8.0.9"]);
    let error = said(&refused.stderr);
    assert!(!refused.status.success() && error.contains("No space left"), "{error}");
    assert!(error.contains("vpc.json") && error.contains("`state`"), "{error}");
    assert_eq!(serving.configured(), before);
    serving.restart();
    assert_eq!(serving.configured(), before);
    std::fs::remove_file(folder.join("rest")).unwrap();
    serving.change(&["route", "add", "100", "10.9.0.0/16", "10.8.0.9"]);
    drop(serving);
    run("umount", &[path]);
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn a_damaged_file_of_changes_is_named() {
    let mut serving = Serving::start("damaged");
    serving.change(&["peer", "add", "100", "127.0.0.3"]);
    let state = serving.control.with_extension("json");
    std::fs::write(&state, "{").unwrap();
    serving.stop();
    let config = serving.config.to_str().unwrap();
    let error = said(&super::weft(&["vpc", "serve", "--config", config]).stderr);
    assert!(
        error.contains(state.to_str().unwrap()) && error.contains("move the file away"),
        "{error}"
    );
}
