//! A virtual machine in QEMU with a device of a daemon: emulated processors, Debian's kernel, and programs of this
//! machine on Weft's libraries. Its network reaches this machine at 10.0.2.2 (QEMU's user network).

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use weft_testkit::{Files, Kernel, installed};
use weft_units::ByteCount;
use weft_verbs::GuestDevice;

use super::host::Host;
use crate::library::LIBRARY;

/// The time limit of a guest, in seconds.
const TIME_LIMIT: &str = "600";

/// The programs that guests have, all of Debian's.
const PROGRAMS: [&str; 6] =
    ["ibv_devinfo", "ibv_rc_pingpong", "ib_write_bw", "ib_send_lat", "ib_read_bw", "ucx_perftest"];

/// The folder with UCX's transports.
const UCX: &str = "/usr/lib/x86_64-linux-gnu/ucx";

/// The parts of guests.
pub(crate) struct Parts {
    qemu: PathBuf,
    busybox: PathBuf,
    kernel: Kernel,
    files: Files,
}

impl Parts {
    /// Finds the parts.
    ///
    /// # Errors
    /// A part is missing; the text names it.
    pub(crate) fn find() -> Result<Self, String> {
        let found = (installed("qemu-system-x86_64"), installed("busybox"), Kernel::find());
        let (Some(qemu), Some(busybox), Some(kernel)) = found else {
            return Err(
                "no QEMU, busybox or linux-image-cloud-amd64 (scripts/setup.sh tenants)".into()
            );
        };
        let mut files = Files::default();
        for name in PROGRAMS {
            let program = installed(name);
            let program = program.ok_or_else(|| format!("no {name} (scripts/setup.sh verbs)"))?;
            files.add_program(&format!("bin/{name}"), &program);
        }
        for transport in fs::read_dir(UCX).map_err(|error| format!("{UCX}: {error}"))?.flatten() {
            files.add_library(&transport.path());
        }
        for library in fs::read_dir(&*LIBRARY).unwrap().map(Result::unwrap) {
            let name = library.file_name();
            files.add_program(&format!("weft/{}", name.display()), &library.path());
        }
        Ok(Self { qemu, busybox, kernel, files })
    }
}

/// A running virtual machine.
pub(crate) struct Machine {
    qemu: Child,
    /// Serves its ports.
    device: Option<GuestDevice>,
    folder: PathBuf,
}

impl Machine {
    /// Boots a machine with `device`, whose root runs a script of busybox's shell. Connections to these ports of this
    /// machine lead to the same ports of it.
    pub(crate) fn boot(
        parts: &Parts,
        host: &Host,
        device: &str,
        ports: &[u16],
        script: &str,
    ) -> Self {
        let folder = format!("weft-machine-{}-{device}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        let memory = ByteCount(512 << 20);
        let guest = GuestDevice::start(device, memory, 2, &folder, Some(&host.socket)).unwrap();
        let forwards: String =
            ports.iter().map(|port| format!(",hostfwd=tcp:127.0.0.1:{port}-:{port}")).collect();
        let set_up = format!(
            "\
ip link set lo up; ip link set eth0 up; ip address add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
export LD_LIBRARY_PATH=/weft UCX_NET_DEVICES={device}:1
mkdir /dev/infiniband; ln -s /dev/null /dev/infiniband/{device}
"
        );
        let script = format!("{set_up}{script}\npoweroff -f\n");
        let initramfs = folder.join("initramfs.cpio");
        let Parts { qemu, busybox, kernel, files } = parts;
        let archive = kernel.initramfs(busybox, &["virtio_console"], files, &script);
        fs::write(&initramfs, archive).unwrap();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", TIME_LIMIT]).arg(qemu);
        // QEMU 7.2 emulates memory barriers, which rings shared with the daemon need, only if there may be several processors.
        command.args(["-accel", "tcg", "-cpu", "max", "-smp", "1,maxcpus=2", "-nodefaults"]);
        command.args(["-display", "none", "-serial", "stdio", "-no-reboot"]);
        command.args(["-netdev", &format!("user,id=n0{forwards}")]);
        command.args(["-device", "virtio-net-pci,netdev=n0,romfile=,vectors=0"]);
        command.args(guest.options());
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initramfs);
        // On a busy machine the emulated timer is late, which Linux takes for a broken one.
        command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"]);
        let console = File::create(folder.join("console")).unwrap();
        command.stdin(Stdio::null()).stderr(console.try_clone().unwrap()).stdout(console);
        Self { qemu: command.spawn().unwrap(), device: Some(guest), folder }
    }

    /// Returns the text on its console.
    pub(crate) fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join("console")).unwrap()).into_owned()
    }

    /// Waits until its console has a text, and returns all of it.
    pub(crate) fn until(&mut self, text: &str) -> String {
        loop {
            let console = self.console();
            if console.contains(text) {
                return console;
            }
            let ended = self.qemu.try_wait().unwrap();
            assert!(ended.is_none(), "{text:?} never came: {}", self.console());
            weft_testkit::pause();
        }
    }

    /// Waits until it has run its script, and returns the text on its console.
    pub(crate) fn finish(mut self) -> String {
        self.qemu.wait().unwrap();
        self.console()
    }

    /// Ends the relays of its ports.
    pub(crate) fn end_relays(&mut self) {
        self.device = None;
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        // `timeout` passes the signal on to QEMU, which it would not with SIGKILL.
        let _ = kill_process(Pid::from_child(&self.qemu), Signal::TERM);
        let _ = self.qemu.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
