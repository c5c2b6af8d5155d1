//! Daemons whose main loop hangs: the service manager notices, although other threads go on.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use weft_testkit::can_run;

use crate::daemon::{Stage, is_missing};
use crate::unit::for_each_unit;

/// Stops the thread that its argument names, by ptrace(2), until its standard input ends.
const STOP: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT = 0x4206, 0x4207
for request in SEIZE, INTERRUPT:
    if libc.ptrace(request, int(sys.argv[1]), 0, 0):
        sys.exit(os.strerror(ctypes.get_errno()))
print('stopped', flush=True)
sys.stdin.read()
";

/// A thread that stands still while this lives.
struct Stopped(Child);

impl Stopped {
    fn stop(thread: u32) -> Self {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", STOP, &thread.to_string()]);
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "stopped\n");
        Self(child)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The kernel lets the thread go on when its tracer ends.
        let _ = self.0.stdin.take().map(|mut input| input.flush());
        let _ = self.0.wait();
    }
}

/// Returns the thread of a process with this name.
fn thread_named(pid: Pid, name: &str) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut threads = tasks.map(|task| task.unwrap().path());
    let is_it = |path: &PathBuf| fs::read_to_string(path.join("comm")).unwrap().trim_end() == name;
    let found = threads.find(is_it).unwrap_or_else(|| panic!("no thread {name}"));
    found.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

#[test]
fn a_loop_that_hangs_sends_nothing_until_it_goes_on() {
    let test = "daemons that hang";
    if is_missing(test) || !can_run(test, "/usr/bin/python3", &["--version"], "python3") {
        return;
    }
    for_each_unit(|unit| {
        let stage = Stage::new("hang", &unit.name);
        let daemon = stage.start(unit);
        stage.manager.until("WATCHDOG=1\n");
        let thread = match unit.name.as_str() {
            // A thread that carries frames: the main one only asks whether it goes on.
            "weft-vpc" => "vpc-0",
            "weft-device" => "weft-engine",
            _ => "weft",
        };
        let stopped = Stopped::stop(thread_named(daemon.pid(), thread));
        // Messages that left before it stopped.
        stage.manager.rest();
        let silent_for = Duration::from_millis(2_500);
        let message = stage.manager.next_within(silent_for);
        assert_eq!(
            message, None,
            "{}: {thread} hangs, and messages are due each second",
            unit.name
        );
        drop(stopped);
        stage.manager.until("WATCHDOG=1\n");
    });
}
