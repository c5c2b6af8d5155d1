//! `cargo xtask test`: builds the tests of the workspace, and runs each program of tests as soon as it is built, several
//! at once. `cargo test` builds all first and runs them one after another, and many of them wait for network namespaces,
//! timers and programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
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

/// Programs that are built and wait to run.
struct Queue {
    built: Receiver<Program>,
    waiting: Vec<Program>,
}

impl Queue {
    /// Waits for a program to run; `None` if all have been taken and the build has ended.
    fn pop(&mut self) -> Option<Program> {
        self.waiting.extend(self.built.try_iter());
        if self.waiting.is_empty() {
            self.waiting.extend(self.built.recv().ok());
        }
        let next = self.waiting.iter().position(|program| program.integration).unwrap_or(0);
        (next < self.waiting.len()).then(|| self.waiting.remove(next))
    }
}

/// Builds all tests and runs them, then those in documentation. After a failure the other programs run too.
///
/// # Errors
/// Returns the programs that failed, with the build if that failed.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let started = now();
    // The build replaces this program, and `current_exe` then names a file that is gone.
    let xtask = std::env::current_exe().context("this program has no path")?;
    let (sender, built) = mpsc::channel();
    let queue = Mutex::new(Queue { built, waiting: Vec::new() });
    let (documentation, failed) = thread::scope(|scope| {
        // The channel closes with the build, however that ends. The last programs run beside the tests in documentation,
        // which need all that was built.
        let build = scope.spawn(move || {
            let programs = build(root, &sender)?;
            drop(sender);
            println!("\ntests: {programs} programs built in {} s", started.elapsed().as_secs());
            run_documentation(root)
        });
        let failed = run_all(&queue, &xtask, args.jobs);
        (build.join().unwrap_or_else(|_| Err(anyhow!("the build panicked"))), failed)
    });
    let mut failed = failed?;
    match documentation {
        Err(error) => failed.push(format!("the build ({error:#})")),
        Ok(documentation) => {
            print(&documentation);
            if !documentation.output.status.success() {
                failed.push(documentation.name);
            }
        }
    }
    ensure!(failed.is_empty(), "tests failed: {}", failed.join(", "));
    Ok(())
}

/// Runs the tests in documentation.
fn run_documentation(root: &Path) -> Result<Ended> {
    let started = now();
    let output = cargo(root, "test").args(["--doc", "--no-fail-fast"]).output()?;
    Ok(Ended { name: "documentation".to_owned(), output, took: started.elapsed() })
}

/// Returns `cargo command --workspace`. Tests have timeouts; the build has none, and yields the processors to them.
fn cargo(root: &Path, command: &str) -> Command {
    let mut cargo = Command::new("nice");
    cargo.current_dir(root).args(["cargo", command, "--workspace", "--quiet"]);
    cargo
}

/// Builds the programs of tests, sends each as soon as it is built, and returns their number. Before them it builds the
/// commands, examples and libraries, which tests of all packages start.
fn build(root: &Path, built: &Sender<Program>) -> Result<usize> {
    let programs = cargo(root, "build").args(["--lib", "--bins", "--examples"]).status()?;
    ensure!(programs.success(), "the workspace does not build");
    let mut tests = cargo(root, "test")
        .args(["--no-run", "--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .spawn()
        .context("`cargo test` does not start")?;
    let output = tests.stdout.take().context("`cargo test` has no output")?;
    let mut programs = 0;
    for message in Message::parse_stream(std::io::BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message?
            && let Some(program) = program(&artifact)
        {
            programs += 1;
            // The receiver outlives the build.
            let _ = built.send(program);
        }
    }
    ensure!(tests.wait()?.success(), "the tests do not build");
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

/// Runs the programs of the queue, `jobs` at a time, and prints the output of each when it ends. Returns the names of
/// those that failed.
fn run_all(queue: &Mutex<Queue>, xtask: &Path, jobs: usize) -> Result<Vec<String>> {
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(program) = next() {
                    // The receiver is dropped only after an error, which is then reported.
                    let _ = sender.send(run_one(program, xtask));
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

fn run_one(program: Program, xtask: &Path) -> Result<Ended> {
    let started = now();
    let output = Command::new(&program.executable)
        .arg("--quiet")
        .current_dir(&program.directory)
        // Tests that link libraries call it; `cargo run` would wait for the end of the build.
        .env("WEFT_XTASK", xtask)
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
