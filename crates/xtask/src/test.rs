//! `cargo xtask test`: builds the tests of the workspace and runs several programs of tests at once. `cargo test` runs
//! them one after another, and many of them wait for network namespaces, timers and programs.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Artifact, Message, TargetKind};

/// The number of programs at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Programs of tests that run at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// One program of tests.
struct Program {
    /// The package, and the target within it.
    name: String,
    executable: PathBuf,
    /// The directory of the package, where `cargo test` runs its tests.
    directory: PathBuf,
    /// `true` for a file under `tests/`. These programs take longest and run first.
    integration: bool,
}

/// A program that ended.
struct Ended {
    name: String,
    output: Output,
    took: Duration,
}

/// Returns the current time, for the printed durations.
#[expect(clippy::disallowed_methods, reason = "no engine runs here")]
fn now() -> Instant {
    Instant::now()
}

/// Builds all tests, runs them, then those in documentation. After a failure the other programs run too.
///
/// # Errors
/// Returns the programs that failed, or an error if the tests do not build.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let started = now();
    let mut programs = build(root)?;
    programs.sort_by_key(|program| !program.integration);
    println!("tests: {} programs built in {} s", programs.len(), started.elapsed().as_secs());

    let mut failed = run_all(programs, args.jobs)?;
    if !cargo_test(root).args(["--doc", "--no-fail-fast"]).status()?.success() {
        failed.push("documentation".to_owned());
    }
    ensure!(failed.is_empty(), "tests failed: {}", failed.join(", "));
    Ok(())
}

fn cargo_test(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["test", "--workspace", "--quiet"]);
    command
}

/// Builds the programs of tests and returns them.
fn build(root: &Path) -> Result<Vec<Program>> {
    let mut cargo = cargo_test(root)
        .args(["--no-run", "--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .spawn()
        .context("`cargo test` does not start")?;
    let output = cargo.stdout.take().context("`cargo test` has no output")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(std::io::BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message? {
            programs.extend(program(&artifact));
        }
    }
    ensure!(cargo.wait()?.success(), "the tests do not build");
    Ok(programs)
}

/// Returns `artifact` as a program of tests; `None` if it is none.
fn program(artifact: &Artifact) -> Option<Program> {
    let executable = artifact.executable.as_ref().filter(|_| artifact.profile.test)?;
    let directory = artifact.manifest_path.parent()?;
    let target = &artifact.target;
    Some(Program {
        name: format!("{} {}", directory.file_name()?, target.name),
        executable: executable.into(),
        directory: directory.into(),
        integration: target.kind.contains(&TargetKind::Test),
    })
}

/// Runs the programs, `jobs` at a time, and prints the output of each when it ends. Returns the names of those that
/// failed.
fn run_all(programs: Vec<Program>, jobs: usize) -> Result<Vec<String>> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (sender, ended) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(program) = next() {
                    // The receiver is dropped only after an error, which is then reported.
                    let _ = sender.send(run_one(program));
                }
            });
        }
        drop(sender);
        let mut failed = Vec::new();
        for program in ended {
            let program = program?;
            print(&program);
            if !program.output.status.success() {
                failed.push(program.name);
            }
        }
        Ok(failed)
    })
}

fn run_one(program: Program) -> Result<Ended> {
    let started = now();
    let output = Command::new(&program.executable)
        .arg("--quiet")
        .current_dir(&program.directory)
        .env("CARGO_MANIFEST_DIR", &program.directory)
        .output()
        .with_context(|| format!("{} does not start", program.executable.display()))?;
    Ok(Ended { name: program.name, output, took: started.elapsed() })
}

fn print(ended: &Ended) {
    let result = if ended.output.status.success() { "passed" } else { "FAILED" };
    println!("\n{} {result} in {:.1} s", ended.name, ended.took.as_secs_f64());
    let (stdout, stderr) = (&ended.output.stdout, &ended.output.stderr);
    for text in [stdout, stderr].map(|bytes| String::from_utf8_lossy(bytes)) {
        let text = text.trim();
        if !text.is_empty() {
            println!("{text}");
        }
    }
    if !ended.output.status.success() {
        println!("{}: {}", ended.name, ended.output.status);
    }
}
