//! Linux in QEMU on emulated processors, with an interface on vhost-user, and its peer's listener.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weft_testkit::{Kernel, installed};

/// A running QEMU, which is killed when this is dropped.
pub(crate) struct Guest(Child);

impl Guest {
    /// Boots a guest with an interface of this address on the vhost-user back end that listens at `socket`.
    pub(crate) fn boot(
        (qemu, kernel): (&Path, &Kernel),
        initramfs: &Path,
        socket: &Path,
        mac: &str,
    ) -> Self {
        let path = socket.display();
        let child = Command::new(qemu)
            .args(["-accel", "tcg", "-cpu", "max", "-m", "256", "-smp", "1", "-nodefaults"])
            .args(["-display", "none", "-serial", "stdio", "-no-reboot"])
            .args(["-object", "memory-backend-memfd,id=m,size=256M,share=on"])
            .args(["-machine", "pc,memory-backend=m"])
            .args(["-chardev", &format!("socket,id=c,path={path},reconnect=1")])
            .args(["-netdev", "vhost-user,id=n,chardev=c"])
            // QEMU 7.2 crashes with MSI-X on emulated processors, so there are no vectors.
            .args(["-device", &format!("virtio-net-pci,netdev=n,mac={mac},romfile=,vectors=0")])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", "console=ttyS0 quiet panic=-1"])
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
