//! Calls whose daemon serves a request although its answer does not arrive: an address is free only after its port.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use serde_json::json;

use crate::harness::{Call, Hosts};

/// The behaviour of a relay after the answer that it has lost.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Relays,
    AnswersNothing,
}

/// A control socket in front of a daemon's own. The daemon serves all requests; the first answer to one of a kind is lost.
struct Relay {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn start(hosts: &Hosts, kind: &'static str, after: After) -> Self {
        let (path, daemon) = (hosts.folder.join("relay.sock"), hosts.trial.control(0));
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || relay(&listener, &daemon, kind, after));
        Self { path, thread: Some(thread) }
    }

    /// Returns a call whose requests go through the relay.
    fn before(&self, call: &Call) -> Call {
        let mut call = call.clone();
        call.config["control"] = json!(self.path);
        call
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // A connection without a request ends the thread.
        drop(UnixStream::connect(&self.path));
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

fn relay(listener: &UnixListener, daemon: &Path, kind: &str, after: After) {
    let mut is_lost = false;
    for client in listener.incoming() {
        let mut client = client.unwrap();
        let (mut request, mut answer) = (String::new(), String::new());
        BufReader::new(&client).read_line(&mut request).unwrap();
        if request.is_empty() {
            return;
        }
        if is_lost && after == After::AnswersNothing {
            continue;
        }
        let mut to_daemon = UnixStream::connect(daemon).unwrap();
        to_daemon.write_all(request.as_bytes()).unwrap();
        BufReader::new(to_daemon).read_line(&mut answer).unwrap();
        if !is_lost && request.contains(kind) {
            is_lost = true;
        } else {
            client.write_all(answer.as_bytes()).unwrap();
        }
    }
}

#[test]
fn an_add_without_an_answer_removes_the_port_before_it_frees_the_address() {
    let Some(hosts) = Hosts::up("lost") else { return };
    let one = hosts.namespace(0);
    let call = Call::new(hosts.config(0, "1.1.0"), "4f2c", &one);
    let relay = Relay::start(&hosts, "add-port", After::Relays);
    assert_eq!(relay.before(&call).code("ADD"), 11);
    assert!(hosts.ports(0).is_empty() && hosts.reserved(0).is_empty() && !one.has("eth0"));
    // The same container again.
    call.add();
    call.done("DEL");
}

#[test]
fn an_add_keeps_its_address_while_the_daemon_may_have_the_port() {
    let Some(hosts) = Hosts::up("unknown") else { return };
    let one = hosts.namespace(0);
    let call = Call::new(hosts.config(0, "1.1.0"), "4f2c", &one);
    for finish in ["DEL", "GC", "ADD"] {
        let relay = Relay::start(&hosts, "add-port", After::AnswersNothing);
        let error = relay.before(&call).run("ADD").stdout;
        let error: serde_json::Value = serde_json::from_slice(&error).unwrap();
        assert_eq!(error["code"], 11, "{error}");
        assert!(error["details"].as_str().unwrap().contains("stay reserved"), "{error}");
        assert_eq!((hosts.ports(0).len(), hosts.reserved(0).len()), (1, 1), "{finish}");
        // As long as it does not answer, nothing changes.
        assert_eq!(relay.before(&call).code("DEL"), 11);
        assert_eq!((hosts.ports(0).len(), hosts.reserved(0).len()), (1, 1), "{finish}");
        drop(relay);
        std::fs::remove_file(hosts.folder.join("relay.sock")).unwrap();
        match finish {
            "DEL" => call.done("DEL"),
            "GC" => {
                let mut gc = call.clone();
                gc.config["cni.dev/valid-attachments"] = json!([]);
                gc.done("GC");
            }
            // A runtime has removed the container's interface, not its port.
            _ => {
                assert!(one.run(&["ip", "link", "del", "eth0"]).status.success());
                call.add();
                assert_eq!((hosts.ports(0).len(), hosts.reserved(0).len()), (1, 1));
                call.done("DEL");
            }
        }
        assert!(hosts.ports(0).is_empty() && hosts.reserved(0).is_empty(), "{finish}");
        assert!(!one.has("eth0"), "{finish}");
    }
}

#[test]
fn a_collection_frees_no_address_of_a_port_that_it_could_not_remove() {
    let Some(hosts) = Hosts::up("kept") else { return };
    let namespaces = [0, 1].map(|index| hosts.namespace(index));
    let calls = [("a1", 0), ("b2", 1)]
        .map(|(id, index)| Call::new(hosts.config(0, "1.1.0"), id, &namespaces[index]));
    calls.iter().for_each(|call| drop(call.add()));
    let relay = Relay::start(&hosts, "remove-port", After::AnswersNothing);
    let mut gc = calls[0].clone();
    gc.config["cni.dev/valid-attachments"] = json!([]);
    assert_eq!(relay.before(&gc).code("GC"), 11);
    assert_eq!(hosts.ports(0), ["cni/pods/b2/eth0"]);
    assert_eq!(hosts.reserved(0).len(), 2, "one of them is the port's that is left");
    gc.done("GC");
    assert!(hosts.ports(0).is_empty() && hosts.reserved(0).is_empty());
}
