//! Unmodified programs of Debian find the device.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The folder with the library, linked from the archive that cargo built beside this test.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verbs");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let linked = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["run", "--quiet", "--package", "xtask", "--", "verbs", "--archive"])
        .arg(archive())
        .arg("--out")
        .arg(&out)
        .output()
        .expect("cargo runs");
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    out
});

/// The crate's archive: the latest beside this test.
fn archive() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().expect("in a folder").read_dir().expect("that can be read");
    let archives = folder.filter_map(Result::ok).filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libweft_verbs-") && name.ends_with(".a")
    });
    let made_at = |entry: &DirEntry| entry.metadata().and_then(|about| about.modified()).ok();
    archives.max_by_key(made_at).expect("cargo builds the archive with the library").path()
}

/// Runs a program on our device.
fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).env("LD_LIBRARY_PATH", &*LIBRARY).output().unwrap_or_else(
        |error| panic!("{program}: {error} (apt-get install ibverbs-utils perftest)"),
    )
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn ibv_devices_lists_the_device_without_a_warning() {
    let listed = run("ibv_devices", &[]);
    assert!(listed.status.success() && text(&listed).contains("weft0"), "{listed:?}");
    assert!(listed.stderr.is_empty(), "{listed:?}");
}

#[test]
fn ibv_devinfo_describes_it() {
    let described = run("ibv_devinfo", &["-v"]);
    assert!(described.status.success() && described.stderr.is_empty(), "{described:?}");
    let text = text(&described);
    for line in ["hca_id:\tweft0", "PORT_ACTIVE (4)", "Ethernet", "RC_RNR_NAK_GEN", "GID["] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}

/// perftest links with drivers of real hardware, which ask for the private version.
#[test]
fn programs_that_link_with_drivers_load() {
    let version = run("ib_write_bw", &["--version"]);
    assert!(text(&version).contains("Version"), "{version:?}");
    assert!(version.stderr.is_empty(), "{version:?}");
}
