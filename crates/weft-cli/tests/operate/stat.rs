//! `weft stat`.

use std::process::Stdio;

use serde_json::Value;
use weft_lab::{Direction, Impairment, Lab, LabSpec, Probability};

use crate::monitor::Monitor;
use crate::programs::{Folder, Running, Server, said, until};

/// Returns the only channel of a program.
fn channel(seen: &Value, pid: u64) -> Option<&Value> {
    let nodes = seen["nodes"].as_array()?;
    let node = nodes.iter().find(|node| node["program"]["pid"] == pid)?;
    node["channels"].get(0)
}

#[test]
fn both_ends_of_a_channel_are_seen_while_messages_go_there_and_back() {
    let folder = Folder::new("ends");
    let server = folder.server("watched_ping");
    let client = folder.traffic(&server.at());
    let pids = [server.pid(), client.0.id().into()];
    let seen = |least: u64| {
        until("messages on both ends", || {
            let seen = folder.json(&["stat"]);
            // The device writes about its network from time to time, not with the first message.
            let lively = |pid| {
                let it = channel(&seen, pid);
                it.is_some_and(|it| it["sent"].as_u64() > Some(least) && !it["network"].is_null())
            };
            pids.iter().all(|pid| lively(*pid)).then_some(seen)
        })
    };
    let first = seen(0);
    let before = channel(&first, pids[1]).unwrap()["sent"].as_u64().unwrap();
    let later = seen(before);
    for (pid, program) in [(pids[0], "watched_ping"), (pids[1], "watched_ping")] {
        let it = channel(&later, pid).unwrap();
        assert_eq!((&it["state"], &it["depth"]), (&"open".into(), &32.into()), "{it}");
        assert_eq!(it["network"]["carrier"], "same-host", "{it}");
        assert!(it["memory"].as_u64().unwrap() > 32 * 4096, "{it}");
        let nodes = later["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["program"]["pid"] == pid).unwrap();
        assert_eq!(node["program"]["name"], program);
        assert_eq!(
            (&node["program"]["device"], &node["is_dead"]),
            (&"weft0".into(), &false.into())
        );
    }
    // Only the end that makes calls measures their time.
    let asking = channel(&later, pids[1]).unwrap();
    let (half, most) = (&asking["call_p50"], &asking["call_p99"]);
    assert!(half.as_u64().unwrap() > 0 && half.as_u64() <= most.as_u64(), "{asking}");
    assert_eq!(channel(&later, pids[0]).unwrap()["call_p50"], Value::Null);

    let table = said(&folder.weft(&["stat"]));
    assert!(table.lines().next().unwrap().contains("window"), "{table}");
    assert_eq!(table.matches("same-host").count(), 2, "{table}");
    let events = said(&folder.weft(&["stat", "events"]));
    assert!(events.contains("opened"), "{events}");
    let one = folder.json(&["stat", "channels", &pids[0].to_string()]);
    assert_eq!(one["nodes"].as_array().unwrap().len(), 1);

    // On other hardware there is no such file, and the columns stay empty.
    for file in folder.files().iter().filter(|path| path.extension().unwrap() == "device") {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(channel(&folder.json(&["stat"]), pids[0]).unwrap()["network"], Value::Null);
}

#[test]
fn a_program_that_was_killed_is_shown_once_as_dead_and_leaves_nothing() {
    let folder = Folder::new("dead");
    let mut server = folder.server("watched_ping");
    let client = folder.traffic(&server.at());
    until("a channel", || channel(&folder.json(&["stat"]), client.0.id().into()).cloned());
    let pid = server.pid();
    server.running.kill();
    let seen = folder.json(&["stat", "nodes"]);
    let nodes = seen["nodes"].as_array().unwrap();
    let dead = nodes.iter().find(|node| node["program"]["pid"] == pid).unwrap();
    assert_eq!(dead["is_dead"], true);
    let is_its = |path: &std::path::PathBuf| {
        path.file_name().unwrap().to_string_lossy().starts_with(&format!("{pid}-"))
    };
    assert!(!folder.files().iter().any(is_its), "{:?}", folder.files());
    // The other end lives until it detects the death, and ends in order.
    drop(client);
    until("nothing left", || folder.json(&["stat"])["nodes"].as_array()?.is_empty().then_some(()));
}

#[test]
fn a_program_that_ends_as_it_should_takes_its_files_with_it() {
    let folder = Folder::new("ended");
    let server = folder.server("watched_ping");
    let mut client = folder.command("watched_ping", &[&server.at(), "64", "100"]);
    assert!(client.stdout(Stdio::null()).status().unwrap().success());
    let names: Vec<String> = folder
        .files()
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let own = format!("{}-0", server.pid());
    assert!(names.iter().all(|name| name.starts_with(&own)), "{names:?}");
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn programs_run_without_a_status_file() {
    let folder = Folder::new("off");
    let mut command = folder.command("watched_ping", &["0"]);
    let server = Server::start({
        command.env("WEFT_STAT", "off");
        command
    });
    let mut client = folder.command("watched_ping", &[&server.at(), "64", "100"]);
    assert!(
        client.env("WEFT_STAT", "/proc/nowhere").stdout(Stdio::null()).status().unwrap().success()
    );
    assert!(folder.files().is_empty());
    let table = said(&folder.weft(&["stat"]));
    assert!(table.contains("no program of this user writes statistics here"), "{table}");
}

#[test]
fn a_file_that_is_not_a_status_file_is_named_and_the_others_are_shown() {
    let folder = Folder::new("foreign");
    let server = folder.server("watched_store");
    std::fs::write(folder.path().join("9-0.node"), b"WEFTSTAT and nothing else").unwrap();
    let seen = folder.json(&["stat", "nodes"]);
    assert_eq!(seen["nodes"][0]["program"]["pid"], server.pid());
    let named = seen["unreadable"][0].as_str().unwrap();
    assert!(named.contains("9-0.node") && named.contains("header"), "{named}");
    until("where it listens", || {
        said(&folder.weft(&["stat", "nodes"])).contains(&server.port).then_some(())
    });
}

#[test]
fn paths_between_two_hosts_have_round_trips_and_losses() {
    if weft_testkit::lab_is_missing("paths of weft stat", &[]) {
        return;
    }
    let folder = Folder::new("paths");
    let mut lab = Lab::up(&LabSpec::named(format!("op{}", std::process::id()))).unwrap();
    let loss: Probability = "5%".parse().unwrap();
    let lossy = Impairment { loss, ..Impairment::default() };
    // Eight paths take the spines that their ports are hashed to: at least one path takes one of these.
    for spine in 1..4 {
        lab.impair(&format!("l0-s{spine}"), Direction::Both, &lossy).unwrap();
    }
    let mut command = folder.command("watched_ping", &["0"]);
    command.env("WEFT_PATHS", "8").stdout(Stdio::piped());
    let server = Server::of(lab.spawn("h0", &mut command).unwrap());
    let to = format!("{}:{}", lab.fabric().address(0), server.port);
    let mut command = folder.command("watched_ping", &[&to, "4000", "1000000000"]);
    command.env("WEFT_PATHS", "8").stdout(Stdio::null());
    let client = Running(lab.spawn("h1", &mut command).unwrap());
    let pid: u64 = client.0.id().into();
    let seen = until("losses and retransmissions", || {
        let seen = folder.json(&["stat"]);
        let network = channel(&seen, pid)?["network"].clone();
        let paths = network["path_list"].as_array()?;
        let lost: u64 = paths.iter().filter_map(|path| path["lost"].as_u64()).sum();
        (lost > 0 && network["retransmits"].as_u64() > Some(0)).then_some(network)
    });
    assert_eq!((&seen["carrier"], &seen["paths"]), (&"network".into(), &8.into()), "{seen}");
    assert_eq!(seen["encrypted"], Value::Bool(true), "{seen}");
    let (least, most) = (seen["rtt_min"].as_u64().unwrap(), seen["rtt_max"].as_u64().unwrap());
    assert!(0 < least && least <= most && most < 1_000_000_000, "{seen}");
    assert!(seen["retransmits"].as_u64() < seen["sent"].as_u64(), "{seen}");
    let table = until("paths in the table", || {
        let table = said(&folder.weft(&["stat", "paths"]));
        table.contains("up").then_some(table)
    });
    assert!(table.contains(&lab.fabric().address(0).to_string()), "{table}");
    assert!(table.contains("ethernet (rtt-groups, ") && table.contains(", 8 paths)"), "{table}");

    // The monitor has the paths too, and keeps them for a while.
    let monitor = Monitor::serve(&folder, &[]);
    let paths = until("paths in the picture", || {
        let picture: Value = serde_json::from_str(&monitor.get("/v1/picture")).unwrap();
        let all = picture["paths"].as_array()?.clone();
        all.into_iter().find(|paths| paths["pid"] == pid)
    });
    let round_trip = |path: &Value| path[1].as_u64();
    let measured = paths["paths"].as_array().unwrap().iter().filter_map(round_trip).count();
    assert!(measured > 1 && paths["retransmits"].as_u64() > Some(0), "{paths}");
    let metrics = monitor.get("/metrics");
    let retransmits = metrics.lines().find(|line| {
        line.starts_with("weft_retransmits_total") && line.contains(&format!("pid=\"{pid}\""))
    });
    assert!(retransmits.is_some() && metrics.contains("weft_path_rtt_seconds{"), "{metrics}");
}
