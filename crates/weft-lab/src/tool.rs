//! The programs that a lab runs (`ip`, `tc`, `nft`, `ethtool`), and the error if one is missing.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use crate::LabError;

/// A program and the Debian package that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}

pub(crate) const IP: Tool = Tool { name: "ip", package: "iproute2" };
pub(crate) const TC: Tool = Tool { name: "tc", package: "iproute2" };
pub(crate) const NFT: Tool = Tool { name: "nft", package: "nftables" };
pub(crate) const ETHTOOL: Tool = Tool { name: "ethtool", package: "ethtool" };

impl Tool {
    /// Runs the tool in this thread's network namespace with `input` on its standard input. Returns its standard
    /// output.
    ///
    /// # Errors
    /// Returns `MissingTool` if it is not installed, `Command` with its message if it fails, `Io` if it cannot be
    /// started, written to or waited for.
    pub(crate) fn run(self, arguments: &[&str], input: &str) -> Result<String, LabError> {
        let command = || format!("{} {}", self.name, arguments.join(" "));
        let mut child = Command::new(self.name)
            .args(arguments)
            .env("PATH", search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => {
                    LabError::MissingTool { tool: self.name, package: self.package }
                }
                _ => LabError::Io { what: format!("run {}", command()), source: error },
            })?;
        let mut stdin = child.stdin.take().expect("standard input was asked to be a pipe");
        // A tool that fails early closes its input; its error message is more useful than the broken pipe.
        let written = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output =
            child.wait_with_output().map_err(LabError::io(format!("wait for {}", command())))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(LabError::Command { command: command(), stderr });
        }
        written.map_err(LabError::io(format!("write to {}", command())))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns `true` if the tool is installed.
    pub(crate) fn is_installed(self) -> bool {
        std::env::split_paths(&search_path()).any(|folder| folder.join(self.name).is_file())
    }
}

/// Returns `PATH` followed by the system's folders of programs, which the `PATH` of users and cron jobs often lacks.
fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_debian_package() {
        let tool = Tool { name: "weft-no-such-program", package: "nosuch" };
        let message = tool.run(&[], "").unwrap_err().to_string();
        assert!(message.contains("apt-get install nosuch"), "{message}");
        assert!(!tool.is_installed());
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let tool = Tool { name: "ls", package: "coreutils" };
        let message = tool.run(&["/no/such/folder"], "").unwrap_err().to_string();
        assert!(message.starts_with("`ls /no/such/folder` failed: ls: cannot"), "{message}");
    }
}
