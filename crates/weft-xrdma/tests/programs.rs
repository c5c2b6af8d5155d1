//! Programs of two processes, on our libibverbs loaded at run time as any other would be.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use weft_testkit::{link_verbs, program_on};
// The archive is made with the library.
use weft_verbs as _;

static LIBRARY: LazyLock<PathBuf> =
    LazyLock::new(|| link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("xrdma"), false));

/// An example that cargo built with these tests.
fn example(name: &str) -> String {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in a folder");
    let path = deps.parent().expect("in the build's folder").join("examples").join(name);
    path.to_str().expect("a path of ours").to_owned()
}

/// A server that has said where it listens.
struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn start(words: &[&str]) -> Self {
        // Without a shell or a timeout between: it is to be killed, not asked.
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("LD_LIBRARY_PATH", &*LIBRARY);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = lines.next().expect("it says where").expect("in words");
        let port = line.rsplit(':').next().expect("a port");
        let at = format!("127.0.0.1:{port}");
        Self { child, at }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(words: &[&str]) -> Output {
    program_on(&LIBRARY, words).output().expect("it runs")
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

#[test]
fn messages_of_every_kind_go_there_and_back() {
    let program = example("ping_pong");
    let server = Server::start(&[&program, "0"]);
    for (size, count) in
        [("0", "50"), ("64", "500"), ("4096", "200"), ("4097", "50"), ("3000000", "5")]
    {
        let output = run(&[&program, &server.at, size, count]);
        assert!(output.status.success(), "{size} bytes: {}", said(&output));
    }
}

#[test]
fn a_key_value_store_of_three_shards_keeps_what_it_is_given() {
    let server = example("kv_server");
    let shards: Vec<Server> = (0..3).map(|_| Server::start(&[&server, "0"])).collect();
    let at = shards.iter().map(|shard| shard.at.as_str()).collect::<Vec<_>>().join(",");
    let mut command = program_on(&LIBRARY, &[&example("kv_client"), &at]);
    let mut client =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = String::new();
    let mut want = String::new();
    for number in 0..200 {
        // Some values are too long for a frame.
        let value = format!("{number}").repeat(1 + (number % 10) * 300);
        lines += &format!("set key{number} {value}\n");
        want += "+\n";
    }
    for number in 0..200 {
        let value = format!("{number}").repeat(1 + (number % 10) * 300);
        lines += &format!("get key{number}\n");
        want += &format!("+{value}\n");
    }
    lines += "del key7\nget key7\nget nothing\nfrobnicate key8\n";
    want += &format!("+{}\n-\n-\n-\n", "7".repeat(1 + 7 * 300));
    let mut stdin = client.stdin.take().expect("piped");
    let writer =
        std::thread::spawn(move || std::io::Write::write_all(&mut stdin, lines.as_bytes()));
    let output = client.wait_with_output().expect("it ends");
    writer.join().expect("it ends").expect("it was read");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), want);
}

#[test]
fn a_peer_that_is_killed_ends_the_channel_with_a_reason() {
    let program = example("ping_pong");
    let mut server = Server::start(&[&program, "0"]);
    let mut command = program_on(&LIBRARY, &[&program, &server.at, "64", "100000000"]);
    let mut client = command.stderr(Stdio::piped()).spawn().expect("it starts");
    server.child.kill().expect("it runs");
    let mut errors = String::new();
    let stderr = BufReader::new(client.stderr.take().expect("piped"));
    stderr.lines().map_while(Result::ok).for_each(|line| errors.push_str(&line));
    assert!(!client.wait().expect("it ends").success());
    let known = ["PeerGone", "nobody listens", "Io(", "closed before the channel"];
    assert!(known.iter().any(|reason| errors.contains(reason)), "{errors}");
}

#[test]
fn nobody_there_and_somebody_else_there_are_told_apart() {
    let program = example("ping_pong");
    let output = run(&[&program, "127.0.0.1:1"]);
    assert!(said(&output).contains("nobody listens there"), "{}", said(&output));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("it has one").to_string();
    let answers = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept()?;
        std::io::Write::write_all(&mut socket, &[b'H'; 100])
    });
    let output = run(&[&program, &at]);
    assert!(said(&output).contains("does not speak X-RDMA"), "{}", said(&output));
    answers.join().expect("it ends").expect("it was connected to");
}

#[test]
fn without_a_device_the_way_out_is_named() {
    let output = Command::new(example("ping_pong"))
        .arg("127.0.0.1:1")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("it runs");
    let said = said(&output);
    // Machines with RDMA hardware get further.
    let known = ["NoDevice", "Missing", "nobody listens"];
    assert!(known.iter().any(|word| said.contains(word)), "{said}");
}
