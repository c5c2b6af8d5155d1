//! The commands of iproute2 that print JSON.

use std::process::Command;

use serde::de::DeserializeOwned;

use crate::reach::search_path;
use crate::{AnswerFault, SteerError};

/// Runs a program in this thread's namespace and parses its output; `what` is the command in words.
///
/// # Errors
/// Returns `Io` if the program cannot be run, `Answer` if it fails or prints other JSON.
pub(super) fn show<T: DeserializeOwned>(
    program: &str,
    arguments: &[&str],
    what: &'static str,
) -> Result<T, SteerError> {
    let mut command = Command::new(program);
    let run = command.args(arguments).env("PATH", search_path()).output();
    let output =
        run.map_err(SteerError::io(format!("run `{program}` (apt-get install iproute2)")))?;
    let wrong = |reason| SteerError::Answer { router: "this machine".into(), what, reason };
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(wrong(AnswerFault::Command(stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| wrong(error.into()))
}
