//! Programs of two processes, on our libibverbs, which they load at run time like any other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use weft_testkit::{Server, link_verbs, program_on};
use weft_wire::{ChannelOffer, U24};
// The archive is made with the library.
use weft_verbs as _;

static LIBRARY: LazyLock<PathBuf> =
    LazyLock::new(|| link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("xrdma"), false));

/// Returns the path of an example that cargo built with these tests.
fn example(name: &str) -> String {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in a folder");
    let path = deps.parent().expect("in the build's folder").join("examples").join(name);
    path.to_str().expect("a path of ours").to_owned()
}

/// Compiles the same program on bare verbs from its C files. Returns its path.
fn bare(name: &str, files: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/bare");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bare-{name}"));
    let program = program.to_str().expect("a path of ours").to_owned();
    let mut cc = Command::new("cc");
    cc.current_dir(folder).args(["-O2", "-Wall", "-Wextra", "-Werror", "-o", &program]);
    let output = cc.args(files).arg("-libverbs").output().expect("apt-get install gcc");
    assert!(output.status.success(), "{} (apt-get install libibverbs-dev)", output_text(&output));
    program
}

fn serve(words: &[&str]) -> Server {
    Server::start(&LIBRARY, words)
}

fn run(words: &[&str]) -> Output {
    program_on(&LIBRARY, words).output().expect("it runs")
}

fn output_text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

#[test]
fn messages_of_every_kind_go_there_and_back() {
    let program = example("ping_pong");
    let server = serve(&[&program, "0"]);
    for (size, count) in
        [("0", "50"), ("64", "500"), ("4096", "200"), ("4097", "50"), ("3000000", "5")]
    {
        let output = run(&[&program, &server.at, size, count]);
        assert!(output.status.success(), "{size} bytes: {}", output_text(&output));
    }
}

/// A client can ask for a channel whose TCP connection stays (`S`) or not (`C`). Such a connection is not encrypted.
#[test]
fn a_server_that_requires_encryption_keeps_no_stream() {
    let mut command = Command::new(example("ping_pong"));
    command.arg("0").env("LD_LIBRARY_PATH", &*LIBRARY).env("WEFT_ENCRYPTION", "required");
    let server = Server::of(command);
    let offer = ChannelOffer {
        qp: U24::truncate(77),
        psn: U24::truncate(1),
        gid: Ipv4Addr::LOCALHOST.to_ipv6_mapped(),
        depth: 32,
        ack_frames: 8,
        small: 4096,
        longest: 1 << 20,
        token: 5,
        attempt: 0,
        shared: false,
    };
    let answer = |kind: u8| {
        let mut socket = TcpStream::connect(&server.at).expect("it listens");
        socket.write_all(&[&[kind], &offer.emit()[..]].concat()).expect("it reads");
        let mut answer = Vec::new();
        let read = socket.take(ChannelOffer::LEN as u64).read_to_end(&mut answer);
        read.map(|_| answer.len()).unwrap_or_default()
    };
    assert_eq!(
        [answer(b'C'), answer(b'S'), answer(b'C')],
        [ChannelOffer::LEN, 0, ChannelOffer::LEN]
    );
}

/// Clients run one after another, faster than the server detects that earlier ones are gone: each has the address and
/// the numbers of an earlier client, which the server still probes.
#[test]
fn successive_clients_are_not_confused_with_earlier_ones() {
    let program = example("ping_pong");
    let server = serve(&[&program, "0"]);
    for client in 0..25 {
        let output = run(&[&program, &server.at, "64", "50"]);
        assert!(output.status.success(), "client {client}: {}", output_text(&output));
    }
}

#[test]
fn bare_verbs_play_the_same_ping_pong() {
    let program = bare("ping_pong", &["ping_pong.c"]);
    let server = serve(&[&program, "0"]);
    for (size, count) in [("0", "50"), ("64", "500"), ("4096", "200"), ("3000000", "5")] {
        let output = run(&[&program, &server.at, size, count]);
        assert!(output.status.success(), "{size} bytes: {}", output_text(&output));
    }
    let output = run(&[&program, "127.0.0.1:1"]);
    assert!(
        !output.status.success() && output_text(&output).contains("refused"),
        "{}",
        output_text(&output)
    );
}

/// Runs a client with these lines as input. Returns its output.
fn feed(client: &str, at: &str, lines: String) -> String {
    let mut command = program_on(&LIBRARY, &[client, at]);
    let mut client =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = client.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || Write::write_all(&mut stdin, lines.as_bytes()));
    let output = client.wait_with_output().expect("it ends");
    writer.join().expect("it ends").expect("it was read");
    assert!(output.status.success(), "{}", output_text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks three shards with several concurrent clients, some of whose values are too long for a frame.
fn check_store(server: &str, client: &str) {
    let shards: Vec<Server> = (0..3).map(|_| serve(&[server, "0"])).collect();
    let at = shards.iter().map(|shard| shard.at.as_str()).collect::<Vec<_>>().join(",");
    let serve = |who: usize| {
        let (mut lines, mut want) = (String::new(), String::new());
        let value = |number: usize| format!("{who}-{number}").repeat(1 + (number % 10) * 300);
        for number in 0..100 {
            lines += &format!("set {who}.{number} {}\n", value(number));
            want += "+\n";
        }
        for number in 0..100 {
            lines += &format!("get {who}.{number}\n");
            want += &format!("+{}\n", value(number));
        }
        lines += &format!("set {who}.8 new\ndel {who}.7\nget {who}.7\nget nothing\nfrobnicate 8\n");
        want += &format!("+{}\n+{}\n-\n-\n-\n", value(8), value(7));
        assert_eq!(feed(client, &at, lines), want, "client {who}");
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|who| drop(scope.spawn(move || serve(who))));
    });
    let long = "x".repeat(20 << 20);
    let answers = feed(client, &at, format!("set long {long}\nget long\n"));
    assert_eq!(answers, format!("+\n+{long}\n"));
}

#[test]
fn a_key_value_store_keeps_its_values() {
    check_store(&example("kv_server"), &example("kv_client"));
}

#[test]
fn a_key_value_store_on_bare_verbs_keeps_its_values() {
    let server = bare("kv_server", &["kv_server.c", "kv.c"]);
    check_store(&server, &bare("kv_client", &["kv_client.c", "kv.c"]));
}

#[test]
fn a_peer_that_is_killed_ends_the_channel_with_a_reason() {
    let mut server = serve(&[&example("kv_server"), "0"]);
    let mut command = program_on(&LIBRARY, &[&example("kv_client"), &server.at]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = command.spawn().expect("it starts");
    let mut stdin = client.stdin.take().expect("piped");
    // A response shows that the channel is open.
    writeln!(stdin, "get something").expect("it reads");
    let mut answer = String::new();
    let mut answers = BufReader::new(client.stdout.take().expect("piped"));
    answers.read_line(&mut answer).expect("it answers");
    assert_eq!(answer, "-\n");
    server.child.kill().expect("it runs");
    server.child.wait().expect("it was killed");
    writeln!(stdin, "get something").expect("it reads");
    let output = client.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("PeerUnreachable"), "{errors}");
}

#[test]
fn no_listener_and_a_foreign_listener_give_different_errors() {
    let program = example("ping_pong");
    let output = run(&[&program, "127.0.0.1:1"]);
    assert!(output_text(&output).contains("nobody listens there"), "{}", output_text(&output));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("it has one").to_string();
    let answers = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept()?;
        Write::write_all(&mut socket, &[b'H'; 100])
    });
    let output = run(&[&program, &at]);
    assert!(output_text(&output).contains("does not speak X-RDMA"), "{}", output_text(&output));
    answers.join().expect("it ends").expect("it was connected to");
}

#[test]
fn without_a_device_the_error_names_a_remedy() {
    let output = Command::new(example("ping_pong"))
        .arg("127.0.0.1:1")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("it runs");
    let printed = output_text(&output);
    // Machines with RDMA hardware fail later.
    let known = ["NoDevice", "Missing", "nobody listens"];
    assert!(known.iter().any(|word| printed.contains(word)), "{printed}");
}
