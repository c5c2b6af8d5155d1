//! Commands on a router, local or remote.

use std::io::{self, ErrorKind, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{RouterEntry, SteerError};

impl RouterEntry {
    /// Runs a shell script on the router and returns its standard output. The script is sent on standard input, so that
    /// no shell in between interprets its words.
    ///
    /// # Errors
    /// Returns `Command` with the router's message or if it does not answer within [`COMMAND_TIMEOUT`], or `Io` if the
    /// command cannot be started.
    pub(crate) fn run(&self, what: &str, script: &str) -> Result<String, SteerError> {
        self.run_within(COMMAND_TIMEOUT, what, script)
    }

    fn run_within(&self, limit: Duration, what: &str, script: &str) -> Result<String, SteerError> {
        let words: Vec<&str> = self.reach.iter().map(String::as_str).chain(["sh", "-s"]).collect();
        let (program, arguments) = words.split_first().expect("there is at least `sh`");
        let failed = |stderr: String| SteerError::Command {
            router: self.name.clone(),
            command: what.to_owned(),
            stderr,
        };
        let child = Command::new(program)
            .args(arguments)
            .env("PATH", search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => failed(format!("{program} is not installed")),
                _ => SteerError::io(format!("run {program}"))(error),
            })?;
        let output = output_within(limit, child, script.to_owned())
            .map_err(SteerError::io(format!("wait for {program}")))?
            .ok_or_else(|| failed(format!("no answer within {limit:?}; is it reachable?")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(failed(if stderr.is_empty() { output.status.to_string() } else { stderr }))
    }
}

/// Maximum time of a command on a router. The kernel alone gives up a router that left the network after 2 to 15 minutes.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

/// Sends a process its input and returns its output, or `None` if it has not ended within the limit; then it is killed.
///
/// # Errors
/// Returns the kernel's error.
fn output_within(limit: Duration, mut child: Child, input: String) -> io::Result<Option<Output>> {
    // Unlike its number, this cannot become that of another process.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let (sender, output) = channel();
    // Both a full pipe and a silent router stop this thread only.
    thread::Builder::new().name("command".into()).spawn(move || {
        let mut stdin = child.stdin.take().expect("standard input was asked to be a pipe");
        // A shell that ends early closes its input; its error message is more useful than the broken pipe.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let _ = sender.send(child.wait_with_output());
    })?;
    match output.recv_timeout(limit) {
        Ok(output) => output.map(Some),
        Err(_) => {
            // It may have ended just now.
            let _ = pidfd_send_signal(process, Signal::KILL);
            Ok(None)
        }
    }
}

/// Returns `PATH` with the administrator's folders, which users and services often lack.
pub(crate) fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method;

    fn router(reach: &[&str]) -> RouterEntry {
        RouterEntry {
            name: "r".into(),
            reach: reach.iter().map(|&word| word.into()).collect(),
            agent: [127, 0, 0, 1].into(),
            sources: vec![],
            apply: Method::Kernel,
            ports: vec![],
        }
    }

    #[test]
    fn a_script_runs_after_the_words_that_reach_the_router() {
        assert_eq!(router(&[]).run("echo", "echo 'a b'").unwrap(), "a b\n");
        assert_eq!(router(&["env", "X=c d"]).run("echo", "echo \"$X\"").unwrap(), "c d\n");
    }

    #[test]
    fn a_router_that_fails_is_named_with_its_message() {
        let error = router(&[]).run("the test", "echo no >&2; exit 3").unwrap_err().to_string();
        assert_eq!(error, "router \"r\": `the test` failed: no");
        let error = router(&["weft-no-such-program"]).run("it", "").unwrap_err().to_string();
        assert!(error.ends_with("weft-no-such-program is not installed"), "{error}");
    }

    #[test]
    fn a_router_that_does_not_answer_is_given_up_and_its_command_killed() {
        let file = std::env::temp_dir().join(format!("ws-reach-{}", std::process::id()));
        let script = format!("echo $$ >{}; exec sleep 1000", file.display());
        let limit = Duration::from_secs(1);
        let error = router(&[]).run_within(limit, "the test", &script).unwrap_err().to_string();
        assert_eq!(error, "router \"r\": `the test` failed: no answer within 1s; is it reachable?");
        let pid = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        while std::path::Path::new("/proc").join(pid.trim()).exists() {
            weft_testkit::pause();
        }
    }
}
