//! Inside the guests: the scripts that they boot into, the program that starts other ends, and the tests of cables and
//! labels, which need the second guest.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use weft_testkit::rxe::{NETWORK_V6, TCP_NETWORK, wait_for};
use weft_units::Duration;
use weft_xrdma::{Carrier, ChannelId, Event, Node, Payload};

use super::{CHANNELS, CLASS, FLOW_LABEL};
use crate::end::{self, End, close, connect, node};
use crate::{alone, ended, wait_until};

/// The port at which the first guest starts other ends.
const PORT: u16 = 99;

/// The runs of this program in the second guest, by their arguments. A cable that is cut takes IPv6 addresses away.
pub(super) const RUNS: [&str; 4] = [
    "--ignored rxe::guest::labels",
    "carriers:: cycles:: resources::",
    "--ignored rxe::guest::a_cut_cable",
    "--ignored rxe::guest::devices_of_iwarp",
];

/// Returns the script of the guest that starts other ends.
pub(super) fn server_script() -> String {
    let address = end::ADDRESS;
    format!(
        "{address}={TCP_NETWORK}.1 /limits --ignored --exact rxe::guest::other_host --nocapture\n"
    )
}

/// Returns the script of the guest that runs the tests.
pub(super) fn client_script() -> String {
    let (host, at) = (end::HOST, format!("{TCP_NETWORK}.1"));
    let runs = RUNS.map(|run| format!("{host}={at}:{PORT} /limits --test-threads=1 {run}\n"));
    wait_for(&at, PORT) + &runs.concat()
}

#[test]
#[ignore = "it is the program of a guest, which starts other ends"]
fn other_host() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).expect("nothing else runs");
    for connection in listener.incoming().flatten() {
        std::thread::spawn(move || serve(connection));
    }
}

/// Reads a line. After `sh ` it is a command, which is executed; otherwise it has the parameters of another end, which
/// runs until the connection ends.
fn serve(mut connection: TcpStream) {
    let mut line = String::new();
    let input = connection.try_clone().expect("a descriptor");
    if BufReader::new(input).read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    if let Some(command) = line.strip_prefix("sh ") {
        let done = Command::new("sh").args(["-c", command]).output().expect("busybox has it");
        let _ = connection.write_all(&[done.stdout, done.stderr].concat());
        return;
    }
    let output: OwnedFd = connection.try_clone().expect("a descriptor").into();
    let mut process = end::command(line.trim()).stdout(Stdio::from(output)).spawn().expect("it is");
    let _ = std::io::copy(&mut connection, &mut std::io::sink());
    let _ = process.kill();
    let _ = process.wait();
}

/// Executes a command on the other host.
fn command_there(command: &str) {
    let mut connection =
        TcpStream::connect(std::env::var(end::HOST).expect("another host")).unwrap();
    writeln!(connection, "sh {command}").unwrap();
    connection.shutdown(Shutdown::Write).unwrap();
    let mut output = String::new();
    connection.read_to_string(&mut output).unwrap();
    assert_eq!(output, "", "{command}");
}

/// Calls with a body of `len` bytes, and checks the response.
fn call(node: &mut Node, channel: ChannelId, len: usize) {
    let body: Vec<u8> = (0..=250).cycle().take(len).collect();
    let answer = node.call(channel, Payload::Copy(&body), Some(Duration::from_secs(20)));
    let answer = answer.expect("an answer");
    assert_eq!(node.context().body(&answer), body);
    let now = node.now();
    node.context().release(now, answer);
}

#[test]
#[ignore = "it needs the second guest (make rxe)"]
fn labels_of_channels() {
    let _alone = alone();
    let label = format!("traffic_class={CLASS} sl=4 flow_label={FLOW_LABEL}");
    let there = format!("address={NETWORK_V6}:1");
    let here = format!("address={NETWORK_V6}:2");
    for (there, here) in [("", ""), ("", &*label), (&*there, &*here)] {
        let end = End::start(&[there]);
        let mut node = node(&[here]);
        let channels = connect(&mut node, &end, CHANNELS);
        for &channel in &channels {
            call(&mut node, channel, 100);
            call(&mut node, channel, 100_000);
        }
        close(&mut node, &channels);
    }
    // No library sets the source ports of rxe's queue pairs.
    let refused = Node::new("source_ports=50000-50003".parse().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("source_ports: rxe0 cannot have them"), "{refused}");
}

#[test]
#[ignore = "it needs the second guest (make rxe)"]
fn a_cut_cable_ends_channels_but_those_with_a_stream() {
    let _alone = alone();
    let end = End::start(&[]);
    let [mut bare, mut streamed] = ["", "streams=true"].map(|options| node(&[options]));
    let ending = bare.connect_and_wait(end.at).unwrap();
    let staying = streamed.connect_and_wait(end.at).unwrap();
    call(&mut bare, ending, 10);
    call(&mut streamed, staying, 10);
    assert_eq!(streamed.context().status(staying).unwrap().carrier, Carrier::Rdma);
    command_there("ip link set eth0 down");
    let cut = bare.now();
    wait_until(&mut bare, |node| {
        // An end that does not answer on the stream would be given up.
        streamed.poll();
        ended(node).contains(&ending)
    });
    let took = bare.now().since(cut);
    // The keepalive time, and rxe's retries.
    assert!(took < Duration::from_secs(6), "{took}");
    call(&mut streamed, staying, 100_000);
    assert_eq!(streamed.context().status(staying).unwrap().carrier, Carrier::Stream);
    let events = std::iter::from_fn(|| streamed.poll_event());
    let closed = |event: &Event| matches!(event, Event::Channel(weft_msg::Event::Closed { .. }));
    assert_eq!(events.filter(closed).count(), 0);
    command_there("ip link set eth0 up");
    let again = bare.connect_and_wait(end.at).expect("the cable is back");
    call(&mut bare, again, 100_000);
}

/// Executes a command of `rdma link` in this guest.
fn rdma_link(words: &str) {
    let status = Command::new("rdma-link").arg("link").args(words.split(' ')).status();
    assert!(status.expect("it is there").success(), "rdma link {words}");
}

#[test]
#[ignore = "it needs the second guest (make rxe)"]
fn devices_of_iwarp_are_passed_over_and_refused_by_name() {
    let _alone = alone();
    let end = End::start(&[]);
    // Of the two devices, that of iWARP is first.
    rdma_link("delete rxe0");
    rdma_link("add siw0 type siw netdev eth1");
    let refused = Node::new(weft_xrdma::Options::default()).unwrap_err().to_string();
    assert!(refused.contains("RDMA device siw0 is iWARP"), "{refused}");
    rdma_link("add rxe0 type rxe netdev eth0");
    let mut node = node(&[""; 0]);
    assert_eq!(node.context().verbs().name(), "rxe0");
    let channel = node.connect_and_wait(end.at).expect("it is taken");
    call(&mut node, channel, 100_000);
    let refused = Node::new("device=siw0".parse().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("RDMA device siw0 is iWARP"), "{refused}");
}
