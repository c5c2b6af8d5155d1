//! A killed peer on another host, and one whose cable is cut, are noticed in time and leak no resources.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use weft_lab::{Lab, LabSpec};
use weft_units::{Duration, Instant};
use weft_xrdma::{ChannelId, Event, Node, Options, Payload};
// The archive is made with the library.
use weft_verbs as _;

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-hosts"), false)
});

const KEEPALIVE: Duration = Duration::from_millis(200);
/// The time until the device reports a peer as unreachable.
const GIVE_UP_TIME: Duration = Duration::from_secs(2);
/// The margin for a busy machine.
const BUSY: Duration = Duration::from_secs(2);
const CHANNELS: usize = 8;

/// Starts an example of this crate on a host.
fn example(lab: &Lab, host: &str, name: &str, word: &str) -> Child {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in a folder");
    let path = deps.parent().expect("in the build's folder").join("examples").join(name);
    let mut command = Command::new(path);
    command.arg(word).env("LD_LIBRARY_PATH", &*LIBRARY);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    lab.spawn(host, &mut command).expect("it starts")
}

fn first_line(of: &mut Child) -> String {
    let mut lines = BufReader::new(of.stdout.take().expect("piped")).lines();
    lines.next().expect("it says something").expect("in words")
}

/// Returns the node's resources: bytes of memory registered and in use, and the number of channels.
fn held(node: &mut Node) -> (u64, u64, usize) {
    let weft_msg::MemoryUse { registered, used } = node.context().memory();
    (registered, used, node.context().channels().count())
}

/// Polls until `condition` returns `true`, and returns the time; fails after 30 seconds.
fn until(node: &mut Node, what: &str, mut condition: impl FnMut(&mut Node) -> bool) -> Instant {
    let late = node.now() + Duration::from_secs(30);
    while !condition(node) {
        assert!(node.now() < late, "not within half a minute: {what}; {:?}", held(node));
        node.wait(Some(Duration::from_millis(1)));
    }
    node.now()
}

/// Numbers of messages received and of channels ended.
#[derive(Default)]
struct EventCounts {
    messages: usize,
    ended: usize,
}

/// Takes all events, releases their memory and returns their numbers.
fn take(node: &mut Node) -> EventCounts {
    let mut counts = EventCounts::default();
    while let Some(event) = node.poll_event() {
        match event {
            Event::Channel(weft_msg::Event::Closed { .. }) => counts.ended += 1,
            Event::Channel(weft_msg::Event::Message { message, .. }) => {
                counts.messages += 1;
                let now = node.now();
                node.context().release(now, message);
            }
            _ => {}
        }
    }
    counts
}

/// Opens channels to a server on the other host, and accepts one from a client there; then runs `end`.
fn all_end_in_time(lab: &Lab, busy: bool, end: impl FnOnce(&mut Child, &mut Child)) {
    let mut options = Options::default();
    (options.config.keepalive, options.config.memory_keep) = (KEEPALIVE, Duration::from_millis(10));
    let mut node = Node::new(options).expect("a device");
    let own = lab.fabric().address(1);
    let listening = node.listen((own, 0).into()).expect("a port");
    let before = held(&mut node);

    let mut server = example(lab, "h0", "kv_server", "0");
    let port = first_line(&mut server).rsplit(':').next().and_then(|port| port.parse().ok());
    let at = (lab.fabric().address(0), port.expect("a port")).into();
    let all: Vec<ChannelId> =
        (0..CHANNELS).map(|_| node.connect_and_wait(at).expect("it is taken")).collect();
    let mut client = example(lab, "h0", "kv_client", &listening.to_string());
    until(&mut node, "a client", |node| node.context().channels().count() == CHANNELS + 1);
    writeln!(client.stdin.as_ref().expect("piped"), "get something").expect("it reads");
    until(&mut node, "a request", |node| take(node).messages == 1);

    if busy {
        let body = vec![7; 20_000];
        for &channel in &all {
            let now = node.now();
            node.context().request(now, channel, Payload::Copy(&body)).expect("it is taken");
        }
    }
    let ended = node.now();
    end(&mut server, &mut client);
    let mut left = CHANNELS + 1;
    let noticed = until(&mut node, "all channels end", |node| {
        left -= take(node).ended;
        left == 0
    });
    let took = noticed.since(ended);
    println!("busy {busy}: noticed after {took}");
    assert!(took < KEEPALIVE + GIVE_UP_TIME + BUSY, "{took}");
    until(&mut node, "nothing is kept", |node| held(node) == before);
    for process in [&mut server, &mut client] {
        let _ = process.kill();
        process.wait().expect("it ended");
    }
}

#[test]
fn a_killed_peer_and_a_cut_cable_are_noticed_in_time_and_leave_nothing() {
    if weft_testkit::lab_is_missing("a killed peer and a cut cable", &[]) {
        return;
    }
    weft_testkit::load_verbs(&LIBRARY);
    let lab = Lab::up(&LabSpec::named(format!("x{}", std::process::id()))).expect("a lab");
    let scenarios = || {
        for busy in [false, true] {
            all_end_in_time(&lab, busy, |server, client| {
                server.kill().expect("it runs");
                client.kill().expect("it runs");
            });
            let mut cut = Lab::open(lab.name()).expect("it is up");
            all_end_in_time(&lab, busy, |_, _| cut.set_black_hole("h0-l0", true).expect("a link"));
            cut.set_black_hole("h0-l0", false).expect("a link");
        }
    };
    lab.enter("h1", scenarios).expect("a host");
}
