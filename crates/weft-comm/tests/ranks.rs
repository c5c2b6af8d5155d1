//! Ranks as processes: on one host, and over kernel routers whose paths lose packets and fail.

mod program;

use std::net::SocketAddr;
use std::process::Child;

use weft_comm::{TOKEN_VARIABLE, Token};
use weft_lab::{Direction, Impairment, Lab, LabSpec};
// The archive is made with the library.
use weft_verbs as _;

use program::{all_right, command, drain, free, kill, outcome, read_until, words};

#[test]
fn ranks_of_one_host_sum_over_every_kind_of_channel() {
    for (ranks, channels) in [(1, "net"), (4, "net"), (3, "auto"), (3, "shm"), (2, "hybrid")] {
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

#[test]
fn a_killed_rank_is_named_by_the_others() {
    let at = free();
    let mut children: Vec<Child> = (0..3)
        .map(|rank| command(&words(rank, 3, at, 100_000, 1_000_000)).spawn().unwrap())
        .collect();
    read_until(&mut children[2], "round 3");
    kill(&children[2]);
    children.iter_mut().for_each(drain);
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
