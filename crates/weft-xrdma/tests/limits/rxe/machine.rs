//! Linux in QEMU on emulated processors, with rxe and the stock libibverbs, and two cables to another guest.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use weft_testkit::{Files, Kernel, installed};

/// The modules of rxe, in the order of their dependencies.
const MODULES: [&str; 6] =
    ["udp_tunnel", "ip6_udp_tunnel", "crc32_generic", "ib_core", "ib_uverbs", "rdma_rxe"];

/// libibverbs and its driver for rxe, as Debian's packages install them.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";
const DRIVER: &str = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so";
const DRIVER_NAME: &str = "/etc/libibverbs.d/rxe.driver";

/// The parts of a guest: a kernel with rxe, busybox, this program, and the files of this machine that it needs.
pub(super) struct Image {
    qemu: PathBuf,
    busybox: PathBuf,
    kernel: Kernel,
    files: Files,
}

impl Image {
    /// Finds the parts, or returns an error with what is missing.
    pub(super) fn find() -> Result<Self, String> {
        let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("rxe");
        let found = (installed("qemu-system-x86_64"), installed("busybox"), installed("rdma"));
        let (Some(qemu), Some(busybox), Some(rdma)) = found else {
            return Err("no QEMU, busybox or rdma (scripts/setup.sh rxe)".into());
        };
        let (Some(kernel), true) =
            (Kernel::find_below(&unpacked, "-amd64"), Path::new(DRIVER).exists())
        else {
            return Err("no kernel with rxe, or no library for it (scripts/setup.sh rxe)".into());
        };
        let mut files = Files::default();
        let own = std::env::current_exe().expect("it has a path");
        files.add_program("limits", &own);
        files.add_program("bin/rdma-link", &rdma);
        for library in [LIBRARY, DRIVER] {
            files.add_program(library.trim_start_matches('/'), Path::new(library));
        }
        files.add(Path::new(DRIVER_NAME));
        Ok(Self { qemu, busybox, kernel, files })
    }
}

/// The cables between two guests: sockets of their ends in a folder.
pub(super) struct Cables<'a>(&'a Path);

impl<'a> Cables<'a> {
    pub(super) const fn new(folder: &'a Path) -> Self {
        Self(folder)
    }

    /// Returns the path of the capture at the second guest's end of the first cable.
    pub(super) fn capture(&self) -> PathBuf {
        self.0.join("capture.pcap")
    }

    /// Returns QEMU's options for a guest's end of a cable, whose interface there is `eth` and the cable's number.
    fn end(&self, guest: u8, cable: u8) -> [String; 4] {
        let socket = |guest| self.0.join(format!("{guest}-{cable}")).display().to_string();
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
}

/// A running QEMU, which is ended when this is dropped.
pub(super) struct Guest {
    process: Child,
    /// The file with the output of its console and of QEMU.
    output: PathBuf,
}

impl Guest {
    /// Boots a guest with a number, 1 or 2, that runs a script. It is ended after ten minutes.
    pub(super) fn boot(image: &Image, cables: &Cables<'_>, number: u8, script: &str) -> Self {
        let initramfs = cables.0.join(format!("{number}.cpio"));
        let archive = image.kernel.initramfs(&image.busybox, &MODULES, &image.files, script);
        fs::write(&initramfs, archive).expect("room for an archive");
        let mut qemu = Command::new("timeout");
        qemu.args(["--kill-after=5", "600"]).arg(&image.qemu);
        qemu.args(["-accel", "tcg", "-cpu", "max", "-m", "1024", "-smp", "1", "-nodefaults"]);
        qemu.args(["-display", "none", "-serial", "stdio", "-no-reboot"]);
        qemu.args((0..2).flat_map(|cable| cables.end(number, cable)));
        if number == 2 {
            let file = cables.capture().display().to_string();
            // The headers are enough.
            let filter = format!("filter-dump,id=f,netdev=n0,maxlen=96,file={file}");
            qemu.args(["-object", &filter]);
        }
        qemu.arg("-kernel").arg(&image.kernel.image).arg("-initrd").arg(&initramfs);
        qemu.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]);
        let output = cables.0.join(format!("{number}.txt"));
        let file = File::create(&output).expect("room for a file");
        qemu.stdin(Stdio::null()).stderr(file.try_clone().expect("a descriptor")).stdout(file);
        Self { process: qemu.spawn().expect("it starts"), output }
    }

    /// Waits until the guest is switched off, or its time is over.
    pub(super) fn wait(&mut self) {
        self.process.wait().expect("it is a child");
    }

    /// Returns what the console printed.
    pub(super) fn console(&self) -> String {
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
