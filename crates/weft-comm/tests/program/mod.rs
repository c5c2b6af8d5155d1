//! The example `all_reduce` as a rank's process.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use weft_comm::{TOKEN_VARIABLE, Token};

pub(crate) static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    // Several programs of tests include this file and run at once: each links its own.
    let own = concat!(env!("CARGO_PKG_NAME"), "-", env!("CARGO_CRATE_NAME"));
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join(own), false)
});

pub(crate) static TOKEN: LazyLock<Token> =
    LazyLock::new(|| Token::random().expect("the kernel is random"));

pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in a folder");
    deps.parent().expect("in the build's folder").join("examples/all_reduce")
}

pub(crate) fn command(words: &[String]) -> Command {
    // `timeout` ends a program that hangs.
    let mut command = Command::new("timeout");
    command.args(["--kill-after=2", "60"]).arg(program()).args(words);
    command.env("LD_LIBRARY_PATH", &*LIBRARY).env("WEFT_PATHS", "16");
    command.env(TOKEN_VARIABLE, TOKEN.reveal());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn words(
    rank: usize,
    ranks: usize,
    at: SocketAddr,
    elements: usize,
    rounds: usize,
) -> Vec<String> {
    let numbers = [rank, ranks].map(|number| number.to_string());
    let [rank, ranks] = numbers;
    vec![rank, ranks, at.to_string(), elements.to_string(), rounds.to_string()]
}

pub(crate) fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Waits for a rank. Returns `true` if it succeeded, and its output.
pub(crate) fn outcome(child: Child) -> (bool, String) {
    let output = child.wait_with_output().expect("it ends");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

pub(crate) fn all_right(children: Vec<Child>, rounds: usize) {
    for (rank, child) in children.into_iter().enumerate() {
        let (ended, output) = outcome(child);
        assert!(ended, "rank {rank}: {output}");
        let right = output.lines().filter(|line| line.ends_with(", 0 wrong")).count();
        assert_eq!(right, rounds, "rank {rank}: {output}");
    }
}

/// Reads a rank's lines until one contains a word.
pub(crate) fn read_until(child: &mut Child, word: &str) {
    let out = child.stdout.as_mut().expect("piped");
    let mut lines = BufReader::with_capacity(1, out).lines();
    let found = lines.by_ref().map_while(Result::ok).any(|line| line.contains(word));
    assert!(found, "it never printed {word:?}");
}

/// Kills a rank's process, and returns when it is sent the signal. The process is the program, not the `timeout` that
/// runs it.
pub(crate) fn kill(child: &Child) {
    let inner = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
    let inner: i32 = inner.expect("a child").trim().parse().expect("a number");
    let killed = Command::new("kill").args(["-9", &inner.to_string()]).status().expect("kill runs");
    assert!(killed.success());
}

/// Reads and drops a rank's further output, which would fill the pipe.
pub(crate) fn drain(child: &mut Child) {
    let out = child.stdout.take().expect("piped");
    std::thread::spawn(move || BufReader::new(out).lines().for_each(drop));
}
