//! TCP through WireGuard in user space over the same link, if a program for it is installed: the cost of another
//! encryption.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::namespaces::{End, Place};

/// Programs of WireGuard in user space, with the arguments that keep them in the foreground and with root privileges.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("boringtun-cli", &["--foreground", "--disable-drop-privileges"]),
    ("wireguard-go", &["--foreground"]),
];

/// The goodput of TCP through the tunnel of one program.
pub(crate) struct Measured {
    pub(crate) program: &'static str,
    pub(crate) gbps: f64,
}

/// Both ends of a tunnel. They are killed when the value is dropped.
struct Tunnel {
    ends: Vec<Child>,
}

/// Returns the goodput of iperf3's TCP through the fastest of the installed programs; `None` without namespaces or
/// without a program.
pub(crate) fn measure(place: &Place, seconds: u64) -> Option<Measured> {
    let Place::Namespaces { .. } = place else { return None };
    let measured = PROGRAMS.iter().filter_map(|&(program, arguments)| {
        let _tunnel = Tunnel::open(place, program, arguments)?;
        let gbps = place.iperf3_to("10.84.0.2", seconds)?;
        Some(Measured { program, gbps })
    });
    measured.max_by(|a, b| a.gbps.total_cmp(&b.gbps))
}

impl Tunnel {
    fn open(place: &Place, program: &str, arguments: &[&str]) -> Option<Self> {
        let keys = [Keys::new()?, Keys::new()?];
        let ends = [(End::Client, "weftbwgc", 1), (End::Server, "weftbwgs", 2)];
        let mut tunnel = Self { ends: Vec::new() };
        for (index, (end, name, last)) in ends.into_iter().enumerate() {
            let other = &keys[1 - index];
            let mut command = place.command(end, program);
            command.args(arguments).arg(name).stdin(Stdio::null());
            tunnel.ends.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?);
            let (peer, at) =
                (place.address(if index == 0 { End::Server } else { End::Client }), 3 - last);
            let set = format!(
                "wg set {name} private-key {} listen-port 51820 peer {} allowed-ips 10.84.0.{at}/32 endpoint {peer}:51820",
                keys[index].file.display(),
                other.public
            );
            until_done(|| run(place, end, &set))?;
            run(place, end, &format!("ip address add 10.84.0.{last}/24 dev {name}"))?;
            run(place, end, &format!("ip link set {name} mtu 1420 up"))?;
        }
        Some(tunnel)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for end in &mut self.ends {
            let _ = end.kill();
            let _ = end.wait();
        }
    }
}

/// A key pair of `wg`. The file of the private key is removed when the value is dropped.
struct Keys {
    file: PathBuf,
    public: String,
}

impl Keys {
    fn new() -> Option<Self> {
        let private = Command::new("wg").arg("genkey").output().ok()?.stdout;
        let mut child = Command::new("wg")
            .arg("pubkey")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        child.stdin.take()?.write_all(&private).ok()?;
        let public =
            String::from_utf8(child.wait_with_output().ok()?.stdout).ok()?.trim().to_owned();
        let name = format!(
            "weftb-wg-{}",
            public.chars().filter(char::is_ascii_alphanumeric).collect::<String>()
        );
        let file = std::env::temp_dir().join(name);
        write_private(&file, &private).ok()?;
        Some(Self { file, public })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn write_private(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?
        .write_all(bytes)
}

/// Runs a command at an end; `None` if it fails.
fn run(place: &Place, end: End, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let mut command = place.command(end, words.next()?);
    let status = command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    status.success().then_some(())
}

/// Repeats `attempt` until it succeeds, because the program makes its interface some time after its start. Returns
/// `None` after 5 s.
#[expect(clippy::disallowed_methods, reason = "a program starts in real time")]
fn until_done(mut attempt: impl FnMut() -> Option<()>) -> Option<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while attempt().is_none() {
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(())
}
