//! A Linux in QEMU, on emulated processors, that runs a test of this program: its kernel has queueing disciplines that
//! this machine's need not have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_testkit::{Files, Kernel, installed};

/// The kernel's modules of cables and of queueing disciplines; `fq_codel` is in its image.
const MODULES: [&str; 6] = ["veth", "sch_tbf", "sch_red", "sch_codel", "sch_pie", "sch_cake"];

/// The programs that a lab requires, and a shell that runs them: busybox's prefers its own.
const TOOLS: [(&str, &str); 5] =
    [("ip", "ip"), ("tc", "tc"), ("nft", "nft"), ("ethtool", "ethtool"), ("sh", "dash")];

/// Runs an ignored test of this program in a guest, for at most five minutes, and returns what its console printed.
///
/// # Errors
/// Returns the missing programs with their packages.
pub(crate) fn run(test: &str) -> Result<String, String> {
    let found = (installed("qemu-system-x86_64"), installed("busybox"), Kernel::find());
    let (Some(qemu), Some(busybox), Some(kernel)) = found else {
        return Err("no QEMU, busybox or kernel (scripts/setup.sh tenants)".into());
    };
    let script = format!(
        "\
mkdir -p /run /var; mount -t tmpfs run /run; ln -s /run /var/run
ip link set lo up
/test --ignored --exact {test} --nocapture
poweroff -f
"
    );
    let archive = kernel.initramfs(&busybox, &MODULES, &files()?, &script);
    let initramfs = Initramfs::write(&archive);
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]).arg(qemu);
    command.args(["-accel", "tcg", "-cpu", "max", "-m", "768", "-smp", "1"]);
    command.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initramfs.0);
    command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]);
    let output = command.output().expect("coreutils has timeout");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(text(&output.stdout) + &text(&output.stderr))
}

/// Returns this program and the tools of a lab, with their libraries.
fn files() -> Result<Files, String> {
    let mut files = Files::default();
    files.add_program("test", &std::env::current_exe().expect("it has a path"));
    for (name, tool) in TOOLS {
        let path = installed(tool).ok_or_else(|| format!("no {tool} (scripts/setup.sh lab)"))?;
        files.add_program(&format!("bin/{name}"), &path);
    }
    Ok(files)
}

/// The file of an archive, which is removed with this value.
struct Initramfs(PathBuf);

impl Initramfs {
    fn write(archive: &[u8]) -> Self {
        let name = format!("marks-{}.cpio", std::process::id());
        let file = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        fs::write(&file.0, archive).expect("room for an archive");
        file
    }
}

impl Drop for Initramfs {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
