//! Ranks as processes: on one host, and over kernel routers whose paths lose packets and fail.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use weft_comm::{TOKEN_VARIABLE, Token};
use weft_lab::{Direction, Impairment, Lab, LabSpec};
// The archive is made with the library.
use weft_verbs as _;

static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    weft_testkit::link_verbs(Path::new(env!("CARGO_TARGET_TMPDIR")).join("comm"), false)
});

static TOKEN: LazyLock<Token> = LazyLock::new(|| Token::random().expect("the kernel is random"));

fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in a folder");
    deps.parent().expect("in the build's folder").join("examples/all_reduce")
}

fn command(words: &[String]) -> Command {
    // `timeout` ends a program that hangs.
    let mut command = Command::new("timeout");
    command.args(["--kill-after=2", "60"]).arg(program()).args(words);
    command.env("LD_LIBRARY_PATH", &*LIBRARY).env("WEFT_PATHS", "16");
    command.env(TOKEN_VARIABLE, TOKEN.reveal());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn words(rank: usize, ranks: usize, at: SocketAddr, elements: usize, rounds: usize) -> Vec<String> {
    let numbers = [rank, ranks].map(|number| number.to_string());
    let [rank, ranks] = numbers;
    vec![rank, ranks, at.to_string(), elements.to_string(), rounds.to_string()]
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Waits for a rank. Returns `true` if it succeeded, and its output.
fn outcome(child: Child) -> (bool, String) {
    let output = child.wait_with_output().expect("it ends");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn all_right(children: Vec<Child>, rounds: usize) {
    for (rank, child) in children.into_iter().enumerate() {
        let (ended, output) = outcome(child);
        assert!(ended, "rank {rank}: {output}");
        let right = output.lines().filter(|line| line.ends_with(", 0 wrong")).count();
        assert_eq!(right, rounds, "rank {rank}: {output}");
    }
}

#[test]
fn ranks_of_one_host_sum_over_every_kind_of_channel() {
    for (ranks, channels) in [(1, "net"), (4, "net"), (3, "shm"), (2, "hybrid")] {
        let at = free();
        let children = (0..ranks).map(|rank| {
            let mut words = words(rank, ranks, at, 3_000_001, 2);
            words.push(channels.into());
            command(&words).spawn().expect("it starts")
        });
        all_right(children.collect(), 2);
    }
}

/// The attacker: a host that knows the job's addresses and options, but not its token.
#[test]
fn a_rank_with_another_token_does_not_join_and_the_others_do_not_notice() {
    for token in [Some(Token::random().unwrap()), None] {
        let at = free();
        let start = |rank| command(&words(rank, 2, at, 1000, 1));
        let zero = start(0).spawn().unwrap();
        let mut pending_peer = start(1);
        match &token {
            Some(token) => pending_peer.env(TOKEN_VARIABLE, token.reveal()),
            None => pending_peer.env_remove(TOKEN_VARIABLE),
        };
        let (ended, output) = outcome(pending_peer.spawn().unwrap());
        assert!(!ended && output.contains("token") && output.contains(TOKEN_VARIABLE), "{output}");
        let one = start(1).spawn().unwrap();
        all_right(vec![zero, one], 1);
    }
}

/// Reads a rank's lines until one contains a word.
fn read_until(child: &mut Child, word: &str) {
    let out = child.stdout.as_mut().expect("piped");
    let mut lines = BufReader::with_capacity(1, out).lines();
    let found = lines.by_ref().map_while(Result::ok).any(|line| line.contains(word));
    assert!(found, "it never printed {word:?}");
}

#[test]
fn a_killed_rank_is_named_by_the_others() {
    let at = free();
    let mut children: Vec<Child> = (0..3)
        .map(|rank| command(&words(rank, 3, at, 100_000, 1_000_000)).spawn().unwrap())
        .collect();
    read_until(&mut children[2], "round 3");
    // The process to kill is the program, not the `timeout` that runs it.
    let inner = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", children[2].id()));
    let inner: i32 = inner.expect("a child").trim().parse().expect("a number");
    let killed = Command::new("kill").args(["-9", &inner.to_string()]).status().expect("kill runs");
    assert!(killed.success());
    for child in &mut children {
        // Unread output would fill the pipe.
        let out = child.stdout.take().expect("piped");
        std::thread::spawn(move || BufReader::new(out).lines().for_each(drop));
    }
    for (rank, child) in children.into_iter().enumerate().take(2) {
        let (ended, output) = outcome(child);
        assert!(!ended && output.contains("rank 2 is gone"), "rank {rank}: {output}");
    }
}

#[test]
fn sums_are_right_while_a_path_loses_packets_and_one_dies() {
    if weft_testkit::lab_is_missing("collectives over routers", &[]) {
        return;
    }
    let spec =
        LabSpec { leaves: 4, spines: 4, ..LabSpec::named(format!("wc{}", std::process::id())) };
    let mut lab = Lab::up(&spec).expect("a lab");
    let lossy = Impairment { loss: "1%".parse().unwrap(), ..Impairment::default() };
    for leaf in 0..4 {
        lab.impair(&format!("l{leaf}-s1"), Direction::Both, &lossy).expect("a link");
    }
    let at = SocketAddr::from((lab.fabric().address(0), 7000));
    let start = |rank| {
        let mut command = command(&words(rank, 4, at, 500_000, 12));
        lab.spawn(&format!("h{rank}"), &mut command).expect("it starts")
    };
    let mut children: Vec<Child> = (0..4).map(start).collect();
    read_until(&mut children[0], "round 1");
    lab.set_black_hole("l0-s2", true).expect("a link");
    for child in children.iter_mut().skip(1) {
        assert!(child.stdout.is_some());
    }
    let rounds = [10, 12, 12, 12];
    for ((rank, child), rounds) in children.into_iter().enumerate().zip(rounds) {
        let (ended, output) = outcome(child);
        assert!(ended, "rank {rank}: {output}");
        assert_eq!(
            output.lines().filter(|line| line.ends_with(", 0 wrong")).count(),
            rounds,
            "{output}"
        );
    }
}
