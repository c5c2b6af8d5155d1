//! Tests of processes and the device: threads, forks, wrong order of calls, sleep, sudden death.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::for_everybody::ForEverybody;
use crate::library::{LIBRARY, program};
use crate::pair::{alone, next_port, output, until_listening};

/// Compiles a program of `c/`, with these libraries besides, and returns its path.
pub(crate) fn compile(name: &str, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/c").join(name);
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace('.', "-"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wno-unused-function"]).arg(&source).arg("-o").arg(&binary);
    let compiled = compiler.args(["-libverbs", "-lpthread"]).args(libraries).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    binary
}

/// Compiles a program of `c/` and runs it; it prints a line on success.
fn run_c(name: &str) {
    run_c_with(name, |_| {});
}

pub(crate) fn run_c_with(name: &str, equip: impl FnOnce(&mut Command)) {
    let binary = compile(name, &[]);
    let mut program = program(&[binary.to_str().unwrap()]);
    equip(&mut program);
    let ran = alone(|| program.output().unwrap());
    assert!(ran.status.success() && ran.stdout == b"done\n", "{name}: {ran:?}");
}

#[test]
fn objects_in_use_are_not_destroyed() {
    run_c("order.c");
}

#[test]
fn children_have_devices_of_their_own() {
    run_c("fork.c");
}

#[test]
fn threads_share_a_device() {
    run_c("threads.c");
}

#[test]
fn regions_of_files_are_addressed_by_their_iova() {
    run_c("file_region.c");
}

#[test]
fn processes_that_sleep_or_watch_memory_are_served() {
    run_c("asleep.c");
}

/// Shared memory is mapped, and private memory is accessed by system calls: the programs check the counts of both.
#[test]
fn memory_is_accessed_while_its_process_is_stopped_until_it_is_revoked() {
    for kind in ["private", "memfd", "sealed", "shm", "closed", "segment"] {
        run_c_with("one_sided.c", |program| {
            program.arg(kind).env("WEFT_STAT", status_folder("one-sided"));
        });
    }
}

#[test]
fn a_process_outlives_the_memory_that_its_neighbour_truncates() {
    for action in ["handler", "default"] {
        run_c_with("truncated.c", |program| {
            program.arg(action).env("WEFT_STAT", status_folder("truncated"));
        });
    }
}

/// Returns an empty folder for status files.
fn status_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("status-of-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// The last actions need the engine, which threads of the program still use then.
#[test]
fn a_program_whose_threads_poll_takes_its_status_file_with_it() {
    let folder = status_folder("exit");
    run_c_with("exit.c", |program| {
        program.env("WEFT_STAT", &folder);
    });
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    assert!(files.is_empty(), "{files:?}");
}

/// A process that is killed when this is dropped, even if a test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A sending program detects the death of its peer in bounded time, as on hardware.
#[test]
fn a_peer_that_dies_is_noticed() {
    alone(|| {
        let port = next_port();
        let mut words = format!("-n 5000000 -p {port}");
        let mut server = Killed(write_bw(&words));
        until_listening(&mut server.0, port);
        words += " 127.0.0.1";
        let mut client = Killed(write_bw(&words));
        // It polls without pause once it sends.
        let ticks = |client: &Child| ticks_of(client.id());
        until(&mut client.0, |client| descriptors_of(client.id()) > 100);
        let at_first = ticks(&client.0);
        until(&mut client.0, |client| ticks(client) > at_first + 30);
        drop(server);
        let output = until_its_end(&mut client.0);
        assert!(output.contains("Failed status 12"), "{output}");
    });
}

/// Starts ib_write_bw without `timeout`, so that its process ID is the program's.
fn write_bw(words: &str) -> Child {
    let mut command = Command::new("ib_write_bw");
    spawn(command.args(words.split_whitespace()).env("LD_LIBRARY_PATH", &*LIBRARY))
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Neighbours communicate through shared memory; processes without mutual access communicate all the same.
#[test]
fn neighbours_use_shared_memory_and_other_processes_udp() {
    let strangers: [(&str, &[&str]); 2] = [
        ("another user", &["setpriv", "--reuid=65534", "--clear-groups"]),
        ("another namespace of processes", &["unshare", "--pid", "--fork", "--kill-child"]),
    ];
    let library = ForEverybody::new();
    alone(|| {
        assert!(shares_memory(&library.0, &["env"]), "neighbours");
        let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
        for (kind, prefix) in strangers {
            if !is_root {
                weft_testkit::skip(kind, "cannot become that (run as root)");
                continue;
            }
            assert!(!shares_memory(&library.0, prefix), "{kind}");
        }
    });
}

/// Returns `true` if a client shares memory with a server on the library in that folder, started by `prefix`.
fn shares_memory(library: &Path, prefix: &[&str]) -> bool {
    let port = next_port();
    let words = format!("ib_write_bw -n 5000000 -p {port}");
    let mut server = Command::new(prefix[0]);
    server.args(&prefix[1..]).args(words.split_whitespace());
    let mut server = Killed(spawn(server.env("LD_LIBRARY_PATH", library)));
    until_listening(&mut server.0, port);
    let mut client = Killed(write_bw(&format!("-n 5000000 -p {port} 127.0.0.1")));
    // It polls without pause once it sends.
    until(&mut client.0, |client| descriptors_of(client.id()) > 100);
    let at_first = ticks_of(client.0.id());
    until(&mut client.0, |client| ticks_of(client.id()) > at_first + 30);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", client.0.id())).unwrap();
    maps.contains("weft-channel")
}

/// Waits until `condition`, or fails when the program ends or half a minute has passed.
fn until(program: &mut Child, condition: impl Fn(&Child) -> bool) {
    let began = Instant::now();
    while !condition(program) {
        assert!(program.try_wait().unwrap().is_none(), "it ended: {}", until_its_end(program));
        assert!(began.elapsed() < Duration::from_secs(30));
        weft_testkit::pause();
    }
}

/// Returns a program's output; fails when it does not end within half a minute.
fn until_its_end(program: &mut Child) -> String {
    let began = Instant::now();
    while program.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not end");
        weft_testkit::pause();
    }
    output(program)
}

fn descriptors_of(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}

/// Returns a process's own processor time, hundredths of a second.
pub(crate) fn ticks_of(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    after_name.split(' ').nth(11).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}
