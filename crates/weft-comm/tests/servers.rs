//! Ranks on several servers in one group: shared memory inside a server, RDMA between them. A server is a host of a lab, a
//! name, or a mount namespace with its own `/dev/shm`, as containers have.

mod program;

use std::net::SocketAddr;
use std::process::{Child, Command};

use weft_lab::{Lab, LabSpec, LinkCounters};
// The archive is made with the library.
use weft_verbs as _;

use program::{all_right, command, drain, free, kill, outcome, read_until, words};

const ELEMENTS: usize = 500_000;
const ROUNDS: usize = 3;

/// Returns the command of a rank with these options.
fn rank(rank: usize, ranks: usize, at: SocketAddr, options: &str) -> Command {
    let mut command = command(&words(rank, ranks, at, ELEMENTS, ROUNDS));
    command.env("WEFT_COLL", options);
    command
}

/// Checks that all ranks had right sums and found these servers.
fn check(children: Vec<Child>, servers: &str) {
    let want = format!("servers {servers}");
    let mut found = Vec::new();
    for child in children {
        let (ended, output) = outcome(child);
        assert!(ended && output.contains(&want), "not {want}: {output}");
        found.push(output);
    }
    for output in found {
        let right = output.lines().filter(|line| line.ends_with(", 0 wrong")).count();
        assert_eq!(right, ROUNDS, "{output}");
    }
}

/// Checks that all ranks refuse to start, with this reason.
fn check_refused(children: Vec<Child>, why: &str) {
    for child in children {
        let (ended, output) = outcome(child);
        assert!(!ended && output.contains(why), "not {why:?}: {output}");
    }
}

/// Starts four ranks on these hosts of a lab, and returns the bytes that the hosts send.
fn over_lab(lab: &Lab, hosts: [usize; 4], options: &str, servers: &str) -> u64 {
    let sent = |all: &[LinkCounters]| all[..2].iter().map(|link| link.forward.bytes).sum::<u64>();
    counted(lab, hosts, options, servers, sent)
}

/// Starts four ranks on these hosts of a lab, and returns the bytes that `count` adds up.
fn counted(
    lab: &Lab,
    hosts: [usize; 4],
    options: &str,
    servers: &str,
    count: impl Fn(&[LinkCounters]) -> u64,
) -> u64 {
    let before = count(&lab.counters().expect("counters"));
    let at = SocketAddr::from((lab.fabric().address(hosts[0]), 7000));
    let start = |(number, host): (usize, &usize)| {
        let mut command = rank(number, 4, at, options);
        lab.spawn(&format!("h{host}"), &mut command).expect("it starts")
    };
    check(hosts.iter().enumerate().map(start).collect(), servers);
    count(&lab.counters().expect("counters")) - before
}

#[test]
fn sums_are_right_over_memory_in_two_hosts_and_rdma_between_them() {
    if weft_testkit::lab_is_missing("collectives of two servers", &[]) {
        return;
    }
    let spec = LabSpec { spines: 2, ..LabSpec::named(format!("ws{}", std::process::id())) };
    let lab = Lab::up(&spec).expect("a lab");
    let buffers = (4 * ELEMENTS * ROUNDS) as u64;
    let ring = over_lab(&lab, [0, 0, 1, 1], "channels=auto", "[[0, 1], [2, 3]]");
    // Two ranks of a ring are on the other server than the next, and send it 2 (n - 1) / n of the buffer.
    assert!((3 * buffers..4 * buffers).contains(&ring), "{ring} bytes, buffers of {buffers}");
    // The launcher deals the ranks to the hosts in turn. The order of rings follows the servers all the same.
    for (algorithm, least) in [("tree", 2), ("ring", 3), ("hierarchical:2", 2), ("hierarchical", 2)]
    {
        let options = format!("channels=auto algorithm={algorithm}");
        let sent = over_lab(&lab, [0, 1, 0, 1], &options, "[[0, 2], [1, 3]]");
        assert!((least * buffers..(least + 1) * buffers).contains(&sent), "{algorithm}: {sent}");
    }
    // Hosts of a lab are one machine: by one name they share memory, and only messages of the set-up are packets.
    let named = over_lab(&lab, [0, 0, 1, 1], "channels=auto server=all", "[[0, 1, 2, 3]]");
    assert!(named < buffers / 4, "{named} bytes, buffers of {buffers}");
}

#[test]
fn trees_cross_the_spines_half_as_often_where_the_blocks_are_known() {
    if weft_testkit::lab_is_missing("trees over two blocks", &[]) {
        return;
    }
    let name = format!("wb{}", std::process::id());
    let lab = Lab::up(&LabSpec { spines: 2, hosts_per_leaf: 2, ..LabSpec::named(name) });
    let lab = lab.expect("a lab");
    let uplinks = ["l0-s0", "l0-s1"].map(|link| lab.fabric().link(link).expect("a link"));
    let over_spines = |options: &str, servers: &str| {
        let bytes = |it: &LinkCounters| it.forward.bytes + it.backward.bytes;
        let count = |all: &[LinkCounters]| uplinks.iter().map(|&link| bytes(&all[link])).sum();
        // The launcher deals the ranks to the leaves in turn; each is a server.
        counted(&lab, [0, 2, 1, 3], options, servers, count)
    };
    let buffers = (4 * ELEMENTS * ROUNDS) as u64;
    // A tree carries half a buffer up and down each of its edges: two cross, in the order of the blocks too.
    let orders = [("0,1,2,3", "[[0], [1], [2], [3]]"), ("0,2,1,3", "[[0], [2], [1], [3]]")];
    for (order, servers) in orders {
        for (blocks, least) in [("", 4), (" blocks=0,1,0,1", 2)] {
            let sent = over_spines(&format!("algorithm=tree order={order}{blocks}"), servers);
            println!("order {order}{blocks}: {sent} bytes, buffers of {buffers}");
            assert!((least * buffers..(least + 1) * buffers).contains(&sent), "{order}{blocks}");
        }
    }
}

#[test]
fn a_killed_rank_is_named_on_its_server_and_on_the_other() {
    let at = free();
    let start = |number: usize| {
        let mut command = command(&words(number, 4, at, 100_000, 1_000_000));
        command.env("WEFT_COLL", format!("channels=auto server={}", number / 2));
        command.spawn().expect("it starts")
    };
    let mut children: Vec<Child> = (0..4).map(start).collect();
    read_until(&mut children[3], "round 3");
    kill(&children[3]);
    children.iter_mut().for_each(drain);
    for (number, child) in children.into_iter().enumerate().take(3) {
        let (ended, output) = outcome(child);
        assert!(!ended && output.contains("rank 3 is gone"), "rank {number}: {output}");
    }
}

/// Starts three ranks of one network namespace, the last of which has its own `/dev/shm`, mounted with these options.
fn with_container(options: &str, mount: &str) -> Vec<Child> {
    let at = free();
    let start = |number: usize| {
        let mut inner = rank(number, 3, at, options);
        if number < 2 {
            return inner.spawn().expect("it starts");
        }
        let script = format!("mount -t tmpfs -o {mount} tmpfs /dev/shm && exec \"$@\"");
        let mut outer = Command::new("unshare");
        outer.args(["--mount", "sh", "-c", &script, "sh"]).arg(inner.get_program());
        outer.args(inner.get_args());
        outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        outer.spawn().expect("it starts")
    };
    (0..3).map(start).collect()
}

#[test]
fn a_rank_with_another_dev_shm_uses_rdma_where_that_is_allowed() {
    if !rustix::process::geteuid().is_root() {
        return weft_testkit::skip("a container's /dev/shm", "only root makes mount namespaces");
    }
    // Its own memory, none that it can write, and too little.
    for mount in ["size=64m", "ro", "size=4k"] {
        check(with_container("channels=auto", mount), "[[0, 1], [2]]");
    }
    let apart = "ranks 0 and 2 cannot map each other's memory";
    check_refused(with_container("channels=shm", "size=64m"), apart);
    let uneven = "all servers must have as many ranks, and those found have ranks [[0, 1], [2]]";
    check_refused(with_container("channels=auto algorithm=hierarchical", "size=64m"), uneven);
}

#[test]
fn ranks_of_one_host_with_other_names_share_no_memory() {
    let at = free();
    let named = |names: [&'static str; 2], channels: &'static str| {
        let start = move |number: usize| {
            let options = format!("channels={channels} server={}", names[number]);
            rank(number, 2, at, &options).spawn().expect("it starts")
        };
        (0..2).map(start).collect::<Vec<Child>>()
    };
    check(named(["a", "b"], "auto"), "[[0], [1]]");
    check(named(["a", "a"], "auto"), "[[0, 1]]");
    check_refused(named(["a", "b"], "shm"), "channels=shm is for ranks of one server");
    all_right(named(["a", "a"], "hybrid"), ROUNDS);
}
