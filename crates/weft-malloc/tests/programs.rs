//! Programs with this malloc: C programs of `c/`, Python, and a program of perftest on Weft's device.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

/// The folder of the libraries.
static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    weft_testkit::link_malloc(Path::new(env!("CARGO_TARGET_TMPDIR")).join("malloc"))
});

/// Returns a command that runs a program with the libraries, for three minutes at most.
fn program(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "180"]).args(words);
    with_libraries(&mut command);
    command
}

fn with_libraries(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", LIBRARIES.join("libweft_malloc.so.1"));
    command.env("LD_LIBRARY_PATH", &*LIBRARIES)
}

/// Runs a program, which must succeed and write no error; returns its standard output.
fn run(words: &[&str]) -> String {
    let output = program(words).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Compiles a program of `c/`, without knowledge of malloc's semantics, and returns its path.
fn compile(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace('.', "-"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-builtin", "-Wall", "-Wno-unused-result", "-pthread", "-o"]);
    let compiled = compiler.arg(&binary).arg(source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    binary
}

fn run_c(name: &str) {
    assert_eq!(run(&[compile(name).to_str().unwrap()]), "done\n", "{name}");
}

#[test]
fn every_function_keeps_its_contract_in_any_order_of_operations() {
    run_c("operations.c");
}

#[test]
fn freed_memory_returns_to_the_system() {
    run_c("lifetime.c");
}

#[test]
fn processes_of_a_fork_have_their_memory_as_at_the_call() {
    run_c("fork.c");
}

#[test]
fn a_block_that_is_freed_twice_ends_the_program() {
    let output = program(&[compile("twice.c").to_str().unwrap()]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("weft: free or realloc of"), "{output:?}");
}

/// A process with a limit of files or addresses that is too low for the arena has blocks of the C library.
#[test]
fn a_process_with_limits_has_no_arena() {
    let lines =
        "b = bytearray(10 << 20); print(len(b), 'weft-malloc' in open('/proc/self/maps').read())";
    let python =
        |limit: &str| run(&["sh", "-c", &format!("ulimit {limit}; exec python3 -c \"$0\""), lines]);
    assert_eq!(python("-c 0"), "10485760 True\n");
    assert_eq!(python("-f 1000000"), "10485760 False\n");
    assert_eq!(python("-v 4000000"), "10485760 False\n");
}

/// Returns the output of a script of `python/`.
fn python(name: &str) -> String {
    let script = format!("{}/tests/python/{name}", env!("CARGO_MANIFEST_DIR"));
    run(&["python3", &script])
}

#[test]
fn python_allocates_and_frees_gigabytes() {
    assert_eq!(python("gigabytes.py"), "done\n");
}

#[test]
fn processes_of_python_have_memory_of_their_own() {
    assert_eq!(python("processes.py"), "done\n");
}

#[test]
fn programs_of_perftest_run() {
    for words in ["ib_write_bw -n 200", "ib_read_bw -n 100", "ib_send_lat -n 100"] {
        let [client, server] =
            perftest(words).map(|mut end| end.0.take().unwrap().wait_with_output());
        for Output { status, stdout, stderr } in [client, server].map(Result::unwrap) {
            let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
            assert!(status.success() && stdout.contains("#bytes"), "{words}: {stdout}{stderr}");
        }
    }
}

/// perftest aligns its buffers to a page, so that those of 8 bytes lie in the arena too.
#[test]
fn buffers_of_perftest_can_be_mapped() {
    for end in &mut perftest("ib_write_lat -s 8 -D 100") {
        let child = end.0.as_mut().unwrap();
        let maps = format!("/proc/{}/maps", child.id());
        let is_in_arena =
            |line: &str| line.contains(" rw-s ") && line.contains("memfd:weft-malloc");
        while !std::fs::read_to_string(&maps).unwrap_or_default().lines().any(is_in_arena) {
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            weft_testkit::pause();
        }
    }
}

/// A program that is killed when this is dropped.
struct Killed(Option<Child>);

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the client and the server of a program of perftest.
fn perftest(words: &str) -> [Killed; 2] {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let start = |more: &[&str]| {
        let words: Vec<&str> = words.split(' ').chain(["-p", &port]).collect();
        let mut command = Command::new(words[0]);
        with_libraries(&mut command)
            .args(&words[1..])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Killed(Some(command.spawn().unwrap()))
    };
    let mut server = start(&[]);
    let child = server.0.as_mut().unwrap();
    while !listens(&port) {
        assert!(child.try_wait().unwrap().is_none(), "{words}: it has ended");
        weft_testkit::pause();
    }
    [start(&["127.0.0.1"]), server]
}

/// Returns `true` if a program listens on a TCP port.
fn listens(port: &str) -> bool {
    let hexadecimal = format!(":{:04X} ", port.parse::<u16>().unwrap());
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let sockets = std::fs::read_to_string(table).unwrap_or_default();
        sockets.lines().any(|line| line.contains(&hexadecimal) && line.contains(" 0A "))
    })
}
