//! `weft adm`.

use serde_json::Value;

use crate::programs::{Folder, said, until};

/// Returns the value of a parameter of each program, by process number.
fn values(folder: &Folder, name: &str) -> Vec<(u64, String)> {
    let outcomes = folder.json(&["adm", "get", name]);
    let value = |outcome: &Value| {
        let setting = &outcome["settings"][0];
        assert_eq!(setting["name"], name, "{outcome}");
        (outcome["pid"].as_u64().unwrap(), setting["value"].as_str().unwrap().to_owned())
    };
    outcomes.as_array().unwrap().iter().map(value).collect()
}

#[test]
fn a_parameter_changes_in_the_named_programs_asleep_or_polling() {
    let folder = Folder::new("adm");
    let server = folder.server("watched_ping");
    let other = folder.server("watched_store");
    // One program polls without pause.
    let client = folder.traffic(&server.at());
    let busy: u64 = client.0.id().into();
    until("a channel", || folder.json(&["stat"])["nodes"].as_array()?.get(2).cloned());
    let listed = folder.weft(&["adm", "list", "watched_store"]);
    let listed = said(&listed);
    assert!(listed.contains("memory_limit") && listed.contains("off-line"), "{listed}");
    assert!(listed.contains("Silence after which"), "{listed}");

    let pid = other.pid().to_string();
    folder.json(&["adm", "set", "keepalive", "250ms", "--node", &pid, "--node", &busy.to_string()]);
    for (pid, value) in values(&folder, "keepalive") {
        let want = if pid == server.pid() { "1s" } else { "250ms" };
        assert_eq!(value, want, "{pid}");
    }
    let faults = "out drop 1/100; in delay 5ms responses";
    folder.json(&["adm", "set", "filter", faults, "--node", &pid]);
    folder.json(&["adm", "set", "carrier", "tcp", "--node", &pid]);
    for (name, set, default) in [("filter", faults, "none"), ("carrier", "tcp", "rdma")] {
        for (pid, value) in values(&folder, name) {
            assert_eq!(value, if pid == other.pid() { set } else { default }, "{name} of {pid}");
        }
    }
    folder.json(&["adm", "set", "memory_limit", "256MiB", "--all"]);
    assert!(values(&folder, "memory_limit").iter().all(|(_, value)| value == "268435456"));
    let events = until("the change among the events", || {
        let events = said(&folder.weft(&["stat", "events", "watched_store"]));
        events.contains("memory_limit").then_some(events)
    });
    assert!(events.contains("changed") && events.contains("keepalive = 250ms"), "{events}");
    drop(client);
}

#[test]
fn refused_changes_are_named_and_change_nothing() {
    let folder = Folder::new("refused");
    let _server = folder.server("watched_store");
    let refused = |words: &[&str]| {
        let output = folder.weft(&[&["adm", "set"], words, &["--all"]].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", said(&output));
        said(&output)
    };
    let range = refused(&["keepalive", "7200s"]);
    assert!(range.contains("keepalive is 7200s, expected 1ms to 3600s"), "{range}");
    let offline = refused(&["depth", "64"]);
    assert!(offline.contains("depth cannot change while the context runs"), "{offline}");
    let unknown = refused(&["keepalife", "1s"]);
    assert!(unknown.contains("did you mean \"keepalive\""), "{unknown}");
    let unknown = refused(&["filtre", "none"]);
    assert!(unknown.contains("did you mean \"filter\""), "{unknown}");
    let rule = refused(&["filter", "out dorp"]);
    assert!(rule.contains("\"out dorp\" is no filter rule; one is: (in|out)"), "{rule}");
    let malformed = refused(&["keepalive", "soon"]);
    assert!(malformed.contains("is not a time"), "{malformed}");
    assert_eq!(values(&folder, "keepalive")[0].1, "1s");

    let nobody = folder.weft(&["adm", "set", "keepalive", "2s", "--node", "nobody"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(said(&nobody).contains("no program called nobody"), "{}", said(&nobody));
    let unnamed = folder.weft(&["adm", "set", "keepalive", "2s"]);
    assert_eq!(unnamed.status.code(), Some(2), "to whom must be said");
    let typo = folder.weft(&["adm", "get", "keepalife"]);
    assert!(said(&typo).contains("did you mean \"keepalive\""), "{}", said(&typo));
}

#[test]
fn a_program_that_does_not_poll_causes_a_timeout() {
    let folder = Folder::new("stopped");
    let server = folder.server("watched_store");
    let pid = rustix::process::Pid::from_child(&server.running.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let output = folder.weft(&["adm", "set", "keepalive", "2s", "--all"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("does not answer"), "{}", said(&output));
}
