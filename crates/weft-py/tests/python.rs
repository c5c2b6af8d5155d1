//! The package as an interpreter loads it, on our libibverbs: its own tests, its examples, a client of a server in
//! Rust, the checks of mypy; the packages that read its tables, and the notebooks.

#[path = "python/ray_cluster.rs"]
mod ray_cluster;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use weft_testkit::{Server, link_verbs, program_on};
// The archive is made with the library.
use weft_verbs as _;

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Returns the path of a file that cargo built for these tests.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in a folder");
    deps.parent().expect("in the build's folder").join(name)
}

static LIBRARY: LazyLock<PathBuf> =
    LazyLock::new(|| link_verbs(folder().join("weft-py-verbs"), false));

/// A folder with the package as installed.
static SITE: LazyLock<PathBuf> = LazyLock::new(|| {
    let site = folder().join("weft-py-site");
    let package = site.join("weft");
    let _ = std::fs::remove_dir_all(&site);
    std::fs::create_dir_all(&package).expect("a folder of ours");
    let sources = Path::new(PACKAGE).join("python/weft").read_dir().expect("the package is there");
    for source in sources.filter_map(Result::ok).filter(|source| source.path().is_file()) {
        std::fs::copy(source.path(), package.join(source.file_name())).expect("a file of ours");
    }
    let library = built("deps/lib_weft.so");
    std::fs::copy(&library, package.join("_weft.abi3.so"))
        .expect("cargo builds it for these tests");
    site
});

fn output_text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Returns a command that runs Python with the package.
fn python(words: &[&str]) -> Command {
    with_package(program_on(&LIBRARY, &[&["python3"], words].concat()))
}

fn with_package(mut command: Command) -> Command {
    command.env("PYTHONPATH", &*SITE).env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(PACKAGE);
    command
}

/// Runs a program, which must succeed, and returns its output.
fn run(words: &[&str]) -> String {
    let output = python(words).output().expect("python3 runs");
    assert!(output.status.success(), "{words:?}: {} {}", output.status, output_text(&output));
    output_text(&output)
}

fn serve(program: &str) -> Server {
    let mut command = Command::new("python3");
    command.args([program, "0"]).env("LD_LIBRARY_PATH", &*LIBRARY);
    Server::of(with_package(command))
}

#[test]
fn the_packages_own_tests_pass() {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "180", "python3", "-m", "unittest", "discover"]);
    command.args(["--start-directory", "tests/python"]).env("LD_LIBRARY_PATH", &*LIBRARY);
    let output = with_package(command).output().expect("python3 runs");
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(output_text(&output).contains("\nOK"), "{}", output_text(&output));
}

#[test]
fn the_front_page_shows_a_program_that_runs() {
    let page = include_str!("../src/lib.rs").lines().map_while(|line| line.strip_prefix("//!"));
    let code = page.skip_while(|line| *line != " ```python").skip(1);
    let code: Vec<_> = code.take_while(|line| *line != " ```").collect();
    assert!(code.len() > 10, "{code:?}");
    let lines = code.iter().map(|line| line.strip_prefix(' ').unwrap_or(line));
    run(&["-c", &lines.collect::<Vec<_>>().join("\n")]);
}

#[test]
fn the_examples_are_short_and_their_two_ends_exchange_messages() {
    for (program, words, want) in [
        ("examples/ping_pong.py", ["4097", "50"], "50 times 4097 bytes there and back"),
        ("examples/ping_pong_asyncio.py", ["8", "50"], "8 times 50 there and back"),
    ] {
        let source =
            std::fs::read_to_string(Path::new(PACKAGE).join(program)).expect("it is there");
        assert!(source.lines().count() < 50, "{program}: {} lines", source.lines().count());
        let server = serve(program);
        let printed = run(&[program, &server.at, words[0], words[1]]);
        assert!(printed.contains(want), "{printed}");
    }
}

#[test]
fn a_client_in_python_uses_the_store_in_rust() {
    let server = built("examples/rust_kv_server");
    let server = server.to_str().expect("a path of ours");
    let shards: Vec<_> = (0..3).map(|_| Server::start(&LIBRARY, &[server, "0"])).collect();
    let at: Vec<_> = shards.iter().map(|shard| shard.at.as_str()).collect();
    let printed = run(&["tests/python/kv_client.py", &at.join(",")]);
    assert!(printed.contains("200 values kept by 3 shards"), "{printed}");
}

/// Debian's interpreter, for which Debian packages PyTorch.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// Starts one process of a group; rank 0 listens for the others at `port`.
fn rank_of(
    rank: usize,
    ranks: usize,
    port: u16,
    python: &Path,
    words: &[&str],
) -> std::process::Child {
    let mut command = job(python, words);
    command.envs([("RANK", rank.to_string()), ("WORLD_SIZE", ranks.to_string())]);
    command.envs([("MASTER_ADDR", "127.0.0.1".to_owned()), ("MASTER_PORT", port.to_string())]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.spawn().expect("it starts")
}

/// Returns a command that runs a program of a job, for five minutes at most.
fn job(python: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]).arg(python).args(words);
    command.envs([("LD_LIBRARY_PATH", LIBRARY.as_os_str()), ("OMP_NUM_THREADS", "1".as_ref())]);
    // Ranks listen at the device's address, which other hosts can reach.
    command.env("WEFT_JOB_TOKEN", "a-token-of-this-tests-jobs");
    with_package(command)
}

/// Returns rank 0's output, after all have ended successfully.
fn group_of(ranks: usize, python: &Path, words: &[&str]) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    drop(listener);
    let children: Vec<_> =
        (0..ranks).map(|rank| rank_of(rank, ranks, port, python, words)).collect();
    let outputs: Vec<Output> =
        children.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", output_text(output));
    }
    String::from_utf8_lossy(&outputs[0].stdout).into_owned()
}

/// Returns `true` if PyTorch is installed; otherwise records that the test was skipped.
fn has_torch() -> bool {
    let torch = Command::new(SYSTEM_PYTHON).args(["-c", "import torch"]).output();
    let is_there = torch.is_ok_and(|output| output.status.success());
    if !is_there {
        weft_testkit::skip("PyTorch", "no python3-torch of Debian's (scripts/setup.sh torch)");
    }
    is_there
}

/// Messages between three ranks print the same as over gloo.
fn check_pipeline(python: &Path) {
    let printed = |backend| group_of(3, python, &["tests/python/torch_messages.py", backend]);
    let (gloo, weft) = (printed("gloo"), printed("weft"));
    assert!(gloo.lines().count() == 4 && gloo.ends_with("all right\n"), "{gloo}");
    assert_eq!(weft, gloo);
}

/// A program that trains prints gloo's losses, to nine decimal places, which is to the bit: sums of two have one order.
fn check_losses(python: &Path, program: &str) {
    let source = Path::new(PACKAGE).join(program);
    assert!(std::fs::read_to_string(source).expect("it is there").lines().count() < 50);
    let losses = |backend| group_of(2, python, &[program, backend, "8"]);
    let (gloo, weft) = (losses("gloo"), losses("weft"));
    assert_eq!(gloo.lines().count(), 8, "{gloo}");
    assert_eq!(weft, gloo, "{program}");
}

/// Every collective, type and reduction is right, and late ranks are named.
fn check_collectives(python: &Path, reductions: &str) {
    let printed = group_of(3, python, &["tests/python/torch_collectives.py"]);
    assert!(printed.contains(reductions) && printed.ends_with("all right\n"), "{printed}");
    let printed = group_of(3, python, &["tests/python/torch_waits.py"]);
    assert!(printed.ends_with("all right\n"), "{printed}");
}

#[test]
fn a_pipeline_of_pytorch_exchanges_messages_as_over_gloo() {
    if has_torch() {
        check_pipeline(Path::new(SYSTEM_PYTHON));
    }
}

#[test]
fn pytorch_trains_with_the_losses_of_gloo_and_all_collectives_are_correct() {
    if has_torch() {
        check_losses(Path::new(SYSTEM_PYTHON), "examples/ddp.py");
        check_collectives(Path::new(SYSTEM_PYTHON), "67 reductions");
    }
}

/// Returns the interpreter of the environment with PyTorch and Ray of PyPI.
fn stock_python() -> PathBuf {
    let python = built("../stock-torch/bin/python");
    assert!(python.exists(), "{} (scripts/setup.sh stock-torch)", python.display());
    python
}

#[test]
#[ignore = "its wheels have gigabytes: make torch"]
fn pytorch_of_pypi_passes_the_same_tests_and_shards_models() {
    let python = stock_python();
    check_pipeline(&python);
    check_losses(&python, "examples/ddp.py");
    check_losses(&python, "examples/fsdp.py");
    check_collectives(&python, "77 reductions");
}

#[test]
#[ignore = "its wheels have gigabytes: make torch"]
fn torchrun_starts_the_ranks() {
    let python = stock_python();
    let losses = |backend| {
        let words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"];
        let words = [&words[..], &["examples/ddp.py", backend, "8"]].concat();
        let output = job(&python, &words).output().expect("it starts");
        assert!(output.status.success(), "{}", output_text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (gloo, weft) = (losses("gloo"), losses("weft"));
    assert_eq!(gloo.lines().count(), 8, "{gloo}");
    assert_eq!(weft, gloo);
}

#[test]
#[ignore = "its wheels have gigabytes: make torch"]
fn arrays_of_ray_move_over_weft() {
    let output = job(&stock_python(), &["examples/ray_arrays.py", "33"]).output();
    let output = output.expect("it starts");
    let printed = output_text(&output);
    // 33 MiB and fifteen numbers.
    for way in ["weft", "store"] {
        let line = format!("34603128 bytes by {way}");
        assert!(output.status.success() && printed.matches(&line).count() == 3, "{printed}");
    }
}

#[test]
fn without_a_device_the_error_names_a_remedy() {
    let mut command = python(&["-c", "import weft; weft.Node()"]);
    let output = command.env_remove("LD_LIBRARY_PATH").output().expect("python3 runs");
    // Machines with RDMA hardware have a device, so there is no error.
    let printed = output_text(&output);
    assert!(output.status.success() || printed.contains("weft.errors.DeviceError"), "{printed}");
    assert!(output.status.success() || printed.contains("weft run"), "{printed}");
}

/// Returns a program of the environment that scripts/setup.sh makes beside the build's folder; otherwise records that
/// the test was skipped.
fn installed(program: &str, what: &str) -> Option<PathBuf> {
    let program = built(&format!("../python/bin/{program}"));
    if !built("../python/installed").exists() {
        weft_testkit::skip(what, "no environment of Python packages (scripts/setup.sh bindings)");
        return None;
    }
    Some(program)
}

/// Runs a program of Python in that environment, without a library of RDMA, and returns its output.
fn run_installed(python: &Path, words: &[&str]) -> String {
    let mut command = with_package(Command::new(python));
    let output = command.args(words).output().expect("python runs");
    assert!(output.status.success(), "{words:?}: {} {}", output.status, output_text(&output));
    output_text(&output)
}

#[test]
fn other_packages_read_tables_where_they_are() {
    let Some(python) = installed("python", "Python packages that read tables") else { return };
    let printed = run_installed(&python, &["tests/python/readers.py"]);
    assert!(printed.contains("read by pyarrow"), "{printed}");
}

#[test]
fn the_notebooks_run_and_have_no_outputs() {
    let Some(python) = installed("python", "notebooks") else { return };
    let folder = Path::new(PACKAGE).join("../../notebooks");
    let files = folder.read_dir().expect("it is there").map(|file| file.expect("a file").path());
    let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    let words: Vec<&str> = files.iter().map(String::as_str).collect();
    let printed = run_installed(&python, &[&["tests/python/notebooks.py"], &words[..]].concat());
    assert_eq!(printed.matches(".ipynb: ").count(), 3, "{printed}");
}

#[test]
fn the_programs_of_the_guide_run() {
    let Some(python) = installed("python", "programs of docs/python.md") else { return };
    let page = include_str!("../../../docs/python.md");
    let blocks = page.split("```python\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().expect("it ends"));
    let blocks: Vec<&str> = blocks.collect();
    assert!(blocks.len() >= 6, "{} programs", blocks.len());
    // Process pools import the program again, so it must be a file.
    let program = folder().join("guide.py");
    std::fs::write(&program, blocks.join("\n")).expect("a file of ours");
    run_installed(&python, &[program.to_str().expect("a path of ours")]);
}

#[test]
fn the_types_pass_the_checks_of_mypy() {
    let Some(mypy) = installed("mypy", "types of the Python package") else { return };
    let mut command = Command::new(mypy);
    command.args(["--strict", "--cache-dir"]).arg(folder().join("mypy"));
    command.args(["python/weft", "examples/ping_pong.py", "examples/ping_pong_asyncio.py"]);
    command.args(["tests/python/test_sync.py", "tests/python/test_aio.py"]);
    command.arg("tests/python/test_sim.py");
    let output = command.env("MYPYPATH", "python:tests/python").current_dir(PACKAGE).output();
    let output = output.expect("mypy runs");
    assert!(output.status.success(), "{}", output_text(&output));
}
