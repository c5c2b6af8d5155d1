//! Background load on the machine.

use std::process::{Child, Command, Stdio};

/// Processes that keep processors busy until this value is dropped.
pub(crate) struct Loops(Vec<Child>);

impl Loops {
    pub(crate) fn start(count: usize) -> Self {
        let start = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            shell.spawn().expect("a shell")
        };
        Self((0..count).map(|_| start()).collect())
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the kernel's one-minute load average: processes that run or wait to run.
pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").into()
}
