//! Linux in QEMU on emulated processors, with an interface on vhost-user, and its peer's listener.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weft_testkit::{Kernel, installed};

/// The network device of a guest.
pub(crate) struct Device<'a> {
    pub(crate) mac: &'a str,
    /// Number of pairs of queues, and of the guest's processors.
    pub(crate) queues: u8,
    /// `true` for packed rings.
    pub(crate) packed: bool,
    /// The file on tmpfs that is the guest's memory; `None` for memory of its own.
    pub(crate) memory: Option<&'a Path>,
}

impl<'a> Device<'a> {
    /// Returns a device with one pair of queues.
    pub(crate) fn of(mac: &'a str) -> Self {
        Self { mac, queues: 1, packed: false, memory: None }
    }
}

/// A running QEMU, which is killed when this is dropped.
pub(crate) struct Guest(Child);

impl Guest {
    /// Boots a guest with an interface of this address on the vhost-user back end that listens at `socket`.
    pub(crate) fn boot(
        programs: (&Path, &Kernel),
        initramfs: &Path,
        socket: &Path,
        device: &Device<'_>,
    ) -> Self {
        Self::boot_with(programs, initramfs, socket, device, &[])
    }

    /// Boots such a guest with more of QEMU's options.
    pub(crate) fn boot_with(
        (qemu, kernel): (&Path, &Kernel),
        initramfs: &Path,
        socket: &Path,
        &Device { mac, queues, packed, memory }: &Device<'_>,
        more: &[String],
    ) -> Self {
        let path = socket.display();
        let mq = if queues > 1 { ",mq=on" } else { "" };
        let packed = if packed { ",packed=on" } else { "" };
        let device = format!("virtio-net-pci,netdev=n,mac={mac},romfile=,vectors=0{mq}{packed}");
        // QEMU 7.2 emulates memory barriers only if there may be several processors. Without them a guest that asks for
        // an interrupt and then looks for used buffers can miss both, and sleeps until another interrupt.
        let processors = format!("{queues},maxcpus={}", queues.max(2));
        let memory = match memory {
            Some(file) => format!("file,mem-path={}", file.display()),
            None => "memfd".into(),
        };
        let child = Command::new(qemu)
            .args(["-accel", "tcg", "-cpu", "max", "-m", "256", "-nodefaults"])
            .args(["-smp", &processors])
            .args(["-display", "none", "-serial", "stdio", "-no-reboot"])
            .args(["-object", &format!("memory-backend-{memory},id=m,size=256M,share=on")])
            .args(["-machine", "pc,memory-backend=m"])
            .args(["-chardev", &format!("socket,id=c,path={path},reconnect=1")])
            .args(["-netdev", &format!("vhost-user,id=n,chardev=c,queues={queues}")])
            // QEMU 7.2 crashes with MSI-X on emulated processors, so there are no vectors.
            .args(["-device", &device])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Returns the console's output until it is switched off, and then QEMU's.
    pub(crate) fn console(mut self) -> String {
        let mut output = vec![];
        self.0.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        self.0.stderr.take().unwrap().read_to_end(&mut output).unwrap();
        String::from_utf8_lossy(&output).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the next connection and returns it.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < deadline, "no guest came: {error}"),
        }
        let mut none = [rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN)];
        let _ = rustix::event::poll(
            &mut none,
            Some(&rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 }),
        );
    }
}

/// Returns QEMU, busybox and a kernel to boot, or an error with the missing packages.
pub(crate) fn parts() -> Result<(PathBuf, PathBuf, Kernel), String> {
    let found = (installed("qemu-system-x86_64"), installed("busybox"), Kernel::find());
    let (Some(qemu), Some(busybox), Some(kernel)) = found else {
        let packages = "apt-get install qemu-system-x86 linux-image-cloud-amd64 busybox-static";
        return Err(format!("no QEMU, kernel or busybox ({packages})"));
    };
    Ok((qemu, busybox, kernel))
}
