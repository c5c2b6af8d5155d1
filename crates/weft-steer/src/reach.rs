//! Commands on a router, local or remote.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use crate::{RouterEntry, SteerError};

impl RouterEntry {
    /// Runs a shell script on the router and returns its standard output. The script is sent on standard input, so that
    /// no shell in between interprets its words.
    ///
    /// # Errors
    /// Returns `Command` with the router's message, or `Io` if the command cannot be started.
    pub(crate) fn run(&self, what: &str, script: &str) -> Result<String, SteerError> {
        let words: Vec<&str> = self.reach.iter().map(String::as_str).chain(["sh", "-s"]).collect();
        let (program, arguments) = words.split_first().expect("there is at least `sh`");
        let failed = |stderr: String| SteerError::Command {
            router: self.name.clone(),
            command: what.to_owned(),
            stderr,
        };
        let mut child = Command::new(program)
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
        let mut stdin = child.stdin.take().expect("standard input was asked to be a pipe");
        // A shell that ends early closes its input; its error message is more useful than the broken pipe.
        let _ = stdin.write_all(script.as_bytes());
        drop(stdin);
        let output =
            child.wait_with_output().map_err(SteerError::io(format!("wait for {program}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(failed(if stderr.is_empty() { output.status.to_string() } else { stderr }))
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
}
