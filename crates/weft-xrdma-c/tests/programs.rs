//! Programs in C and C++, compiled as their authors would and run on our libibverbs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use weft_testkit::{Server, install_xrdma, link_verbs, program_on};
// The archive is made with the library.
use weft_verbs as _;

const C: &[&str] = &["cc", "-std=c11", "-D_GNU_SOURCE"];
const CXX: &[&str] = &["c++", "-std=c++17", "-x", "c++"];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The folder with libxrdma, its header and its pkg-config file, as `make build` installs them.
static XRDMA: LazyLock<PathBuf> = LazyLock::new(|| install_xrdma(folder().join("xrdma-c")));

/// The directories in which the loader finds libibverbs and libxrdma.
static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    let verbs = link_verbs(folder().join("xrdma-c-verbs"), false);
    PathBuf::from(format!("{}:{}", verbs.display(), XRDMA.join("lib").display()))
});

/// Returns pkg-config's output for libxrdma.
fn pkg_config(options: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    let command = command.args(options).arg("xrdma");
    let output = command.env("PKG_CONFIG_PATH", XRDMA.join("lib/pkgconfig")).output();
    let output = output.expect("pkg-config runs (package pkgconf)");
    assert!(output.status.success(), "{}", output_text(&output));
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(Into::into).collect()
}

/// Compiles a program of this crate and returns its path.
fn compile(compiler: &[&str], source: &str, name: &str, libraries: &[String]) -> String {
    let program = folder().join(name);
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]);
    command.args(pkg_config(&["--cflags"]));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source));
    // The files that follow are not C++.
    command.args(["-x", "none", "-o"]).arg(&program).args(libraries).arg("-lpthread");
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{}", output_text(&output));
    program.to_str().expect("a path of ours").to_owned()
}

fn output_text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Runs a program, which must succeed, and returns its output.
fn run(words: &[&str]) -> String {
    let output = program_on(&LIBRARIES, words).output().expect("it runs");
    assert!(output.status.success(), "{words:?}: {} {}", output.status, output_text(&output));
    output_text(&output)
}

fn ping_pong(name: &str) -> String {
    compile(C, "examples/ping_pong.c", name, &pkg_config(&["--libs"]))
}

#[test]
fn every_call_does_what_the_header_says_in_c_and_in_cxx() {
    let libraries = pkg_config(&["--libs"]);
    for (compiler, name) in [(C, "messages-c"), (CXX, "messages-cxx")] {
        let program = compile(compiler, "tests/c/messages.c", name, &libraries);
        assert!(run(&[&program]).contains("all calls behave as documented"));
    }
}

#[test]
fn hostile_programs_are_refused() {
    let server = Server::start(&LIBRARIES, &[&ping_pong("ping-pong-for-hostile"), "0"]);
    let program = compile(C, "tests/c/hostile.c", "hostile", &pkg_config(&["--libs"]));
    assert!(run(&[&program, &server.at]).contains("all was refused"));
    // The server still serves other clients.
    let other = ping_pong("ping-pong-after-hostile");
    assert!(run(&[&other, &server.at, "64", "10"]).contains("10 times 64 bytes"));
}

#[test]
fn calls_in_any_order_crash_nothing_and_leak_nothing() {
    let program = compile(C, "tests/c/random.c", "random", &pkg_config(&["--libs"]));
    for seed in 0..5 {
        let printed = run(&[&program, &seed.to_string()]);
        let messages = printed.split_whitespace().next().and_then(|word| word.parse().ok());
        assert!(messages.is_some_and(|messages: u32| messages > 5), "seed {seed}: {printed}");
    }
}

#[test]
fn the_example_is_short_and_its_two_ends_exchange_messages() {
    let source = include_str!("../examples/ping_pong.c");
    assert!(source.lines().count() < 50, "{} lines", source.lines().count());
    let program = ping_pong("ping-pong");
    let server = Server::start(&LIBRARIES, &[&program, "0"]);
    for (size, count) in [("0", "50"), ("64", "500"), ("4097", "50"), ("3000000", "5")] {
        let want = format!("{count} times {size} bytes there and back");
        assert!(run(&[&program, &server.at, size, count]).contains(&want));
    }
    let refused = program_on(&LIBRARIES, &[&program, "127.0.0.1:1"]).output().expect("it runs");
    assert!(output_text(&refused).contains("nobody listens there"), "{}", output_text(&refused));
}

#[test]
fn programs_can_link_the_library_statically() {
    let archive = XRDMA.join("lib/libxrdma.a").to_str().expect("a path of ours").to_owned();
    let whole = pkg_config(&["--libs", "--static"]);
    let rest = whole.into_iter().filter(|word| word != "-lxrdma" && !word.starts_with("-L"));
    let libraries: Vec<_> = std::iter::once(archive).chain(rest).collect();
    let program = compile(C, "examples/ping_pong.c", "ping-pong-static", &libraries);
    let server = Server::start(&LIBRARIES, &[&program, "0"]);
    assert!(run(&[&program, &server.at, "64", "10"]).contains("10 times 64 bytes"));
}

#[test]
fn the_library_has_its_soname_and_exports_only_the_header() {
    let library = XRDMA.join("lib/libxrdma.so.1");
    let objdump = Command::new("objdump").arg("-pT").arg(&library).output().expect("objdump runs");
    let text = output_text(&objdump);
    assert!(text.lines().any(|line| line.split_whitespace().eq(["SONAME", "libxrdma.so.1"])));
    let exported = text.lines().filter(|line| line.contains(" g ") && line.contains(".text"));
    let names: Vec<_> = exported.filter_map(|line| line.split_whitespace().last()).collect();
    let header = include_str!("../include/xrdma.h");
    assert!(names.len() > 25, "{text}");
    for name in names {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}
