//! Two Linux guests in QEMU on emulated processors, with a cable for RDMA and one for TCP between them: the RDMA device is the
//! kernel's rxe, which this machine's kernel need not have, and libibverbs is rdma-core's, with no part of Weft.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::initramfs::{Files, Kernel, installed};
use crate::pause;

/// The modules of rxe and siw, in the order of their dependencies.
const MODULES: [&str; 10] = [
    "udp_tunnel",
    "ip6_udp_tunnel",
    "crc32_generic",
    "crc32c_generic",
    "libcrc32c",
    "ib_core",
    "ib_uverbs",
    "rdma_rxe",
    "iw_cm",
    "siw",
];

/// The folder in which Debian's packages install libibverbs.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// The time limit of a guest, in seconds.
const TIME_LIMIT: &str = "900";

/// The address of a guest, 1 or 2, on the cable of RDMA ends in its number.
pub const NETWORK: &str = "10.79.0";
/// The same in IPv6.
pub const NETWORK_V6: &str = "fd79:";
/// The address of a guest on the cable of TCP ends in its number.
pub const TCP_NETWORK: &str = "10.80.0";

/// The parts of two guests: a kernel with rxe and siw, busybox, libibverbs, and the programs of a test.
#[derive(Debug)]
pub struct Guests {
    qemu: PathBuf,
    busybox: PathBuf,
    kernel: Kernel,
    files: Files,
}

/// The output of two guests.
#[derive(Debug)]
pub struct Outcome {
    /// The text of the consoles: the first guest's, then the second's.
    pub consoles: [String; 2],
    /// The first 96 bytes of each packet on the cable of RDMA, in libpcap's format.
    pub capture: Vec<u8>,
}

impl Guests {
    /// Finds the parts.
    ///
    /// # Errors
    /// A part is missing; the text names it, and the command that installs it.
    ///
    /// # Panics
    /// Panics if `ldd` does not run.
    pub fn find() -> Result<Self, String> {
        let found = (installed("qemu-system-x86_64"), installed("busybox"), installed("rdma"));
        let (Some(qemu), Some(busybox), Some(rdma)) = found else {
            return Err("no QEMU, busybox or rdma (scripts/setup.sh rxe)".into());
        };
        let kernel = Kernel::find_below(&unpacked(), "-amd64");
        let kernel = kernel.filter(|kernel| MODULES.iter().all(|module| kernel.has(module)));
        let kernel = kernel.ok_or("no kernel with rxe and siw (scripts/setup.sh rxe)")?;
        let mut files = Files::default();
        files.add_program("bin/rdma-link", &rdma);
        for file in
            ["libibverbs.so.1", "libibverbs/librxe-rdmav34.so", "libibverbs/libsiw-rdmav34.so"]
        {
            let file = Path::new(LIBRARIES).join(file);
            if !file.exists() {
                return Err(format!("no {} (scripts/setup.sh rxe)", file.display()));
            }
            files.add_library(&file);
        }
        for device in ["rxe", "siw"] {
            files.add(Path::new(&format!("/etc/libibverbs.d/{device}.driver")));
        }
        Ok(Self { qemu, busybox, kernel, files })
    }

    /// Returns the files of both guests, for programs of the test.
    pub const fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    /// Boots both guests, each of which runs a script of busybox's shell after its interfaces and its device, `rxe0`, are
    /// there. Returns when the second guest has run its script, or the first one ended, and ends both.
    ///
    /// # Panics
    /// Panics if there is no room for files, or QEMU does not start.
    pub fn run(&self, first: &str, second: &str) -> Outcome {
        let folder = Scratch::new();
        let mut server = Guest::boot(self, &folder.0, 1, first);
        let mut client = Guest::boot(self, &folder.0, 2, &format!("{second}\npoweroff -f\n"));
        while client.is_running() && server.is_running() {
            pause();
        }
        let consoles = [server.console(), client.console()];
        Outcome { consoles, capture: fs::read(capture(&folder.0)).unwrap_or_default() }
    }
}

/// Returns the folder beside the build's in which `scripts/setup.sh rxe` unpacks a kernel.
fn unpacked() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors().nth(3).expect("in the build's folder").join("rxe")
}

/// Returns a command line that waits until something listens at a port of the other guest.
pub fn wait_for(address: &str, port: u16) -> String {
    format!("until nc -w 1 {address} {port} -e true 2>/dev/null; do sleep 0.1; done\n")
}

/// Returns the beginning of both scripts: the interfaces' addresses, and the device.
fn set_up(guest: u8) -> String {
    format!(
        "\
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
ip link set lo up; ip link set eth0 up; ip link set eth1 up
ip address add {NETWORK}.{guest}/24 dev eth0
ip address add {NETWORK_V6}:{guest}/64 dev eth0
ip address add {TCP_NETWORK}.{guest}/24 dev eth1
rdma-link link add rxe0 type rxe netdev eth0
export RUST_BACKTRACE=0
"
    )
}

/// The folder of a run, which is removed with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("weft-rxe-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the path of the capture at the second guest's end of the first cable.
fn capture(folder: &Path) -> PathBuf {
    folder.join("capture.pcap")
}

/// Returns QEMU's options for a guest's end of a cable, whose interface there is `eth` and the cable's number.
fn cable_end(folder: &Path, guest: u8, cable: u8) -> [String; 4] {
    let socket = |guest| folder.join(format!("{guest}-{cable}")).display().to_string();
    let (own, other) = (socket(guest), socket(3 - guest));
    [
        "-netdev".into(),
        format!(
            "dgram,id=n{cable},local.type=unix,local.path={own},remote.type=unix,remote.path={other}"
        ),
        "-device".into(),
        // QEMU 7.2 crashes with MSI-X on emulated processors, so there are no vectors.
        format!(
            "virtio-net-pci,netdev=n{cable},mac=02:00:00:00:{:02x}:{guest:02x},romfile=,vectors=0",
            79 + cable
        ),
    ]
}

/// A running QEMU, which is ended when this is dropped.
struct Guest {
    process: Child,
    /// The file with the output of its console and of QEMU.
    output: PathBuf,
}

impl Guest {
    /// Boots a guest with a number, 1 or 2, that runs a script. It is ended after the time limit.
    fn boot(guests: &Guests, folder: &Path, number: u8, script: &str) -> Self {
        let initramfs = folder.join(format!("{number}.cpio"));
        let script = set_up(number) + script;
        let Guests { kernel, busybox, files, .. } = guests;
        let archive = kernel.initramfs(busybox, &MODULES, files, &script);
        fs::write(&initramfs, archive).expect("room for an archive");
        let mut qemu = Command::new("timeout");
        qemu.args(["--kill-after=5", TIME_LIMIT]).arg(&guests.qemu);
        qemu.args(["-accel", "tcg", "-cpu", "max", "-m", "1024", "-smp", "1", "-nodefaults"]);
        qemu.args(["-display", "none", "-serial", "stdio", "-no-reboot"]);
        qemu.args((0..2).flat_map(|cable| cable_end(folder, number, cable)));
        if number == 2 {
            let file = capture(folder).display().to_string();
            // The headers are enough.
            let filter = format!("filter-dump,id=f,netdev=n0,maxlen=96,file={file}");
            qemu.args(["-object", &filter]);
        }
        qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initramfs);
        // On a busy machine the emulated timer is late, which Linux takes for a broken one.
        qemu.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"]);
        let output = folder.join(format!("{number}.txt"));
        let file = File::create(&output).expect("room for a file");
        qemu.stdin(Stdio::null()).stderr(file.try_clone().expect("a descriptor")).stdout(file);
        Self { process: qemu.spawn().expect("it starts"), output }
    }

    fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("it is a child").is_none()
    }

    /// Returns what the console printed.
    fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).expect("it was created")).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // `timeout` passes the signal on to QEMU, which it would not with SIGKILL.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.process),
            rustix::process::Signal::TERM,
        );
        let _ = self.process.wait();
    }
}
