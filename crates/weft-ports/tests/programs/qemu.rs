//! Linux in QEMU, on emulated processors: it fetches a file, checks it, and sends it back.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weft_ports::{Port, VhostConfig, VhostPort};

use crate::common::guest::Socket;
use crate::common::namespace::Namespace;
use crate::common::network::{noise, with_network};
use crate::common::skipped;
use crate::common::wire::Weather;
use crate::initramfs::Kernel;
use crate::{program, tap};

/// What the guest does: it says each step on its console.
const SCRIPT: &str = "\
ip link set eth0 up; ip address add 10.77.4.2/24 dev eth0
ping -c 3 -W 20 10.77.4.1 && echo step ping
wget -q -O /file http://10.77.4.1:8000/file && echo step fetch
nc 10.77.4.1 8001 < /file && echo step send
poweroff -f
";

/// Ends with the test.
struct Guest(Child);

impl Guest {
    fn boot(
        qemu: &std::path::Path,
        kernel: &Kernel,
        initramfs: &std::path::Path,
        socket: &Socket,
    ) -> Self {
        let path = socket.0.display();
        let child = Command::new(qemu)
            .args(["-accel", "tcg", "-cpu", "max", "-m", "256", "-smp", "1", "-nodefaults"])
            .args(["-display", "none", "-serial", "stdio", "-no-reboot"])
            .args(["-object", "memory-backend-memfd,id=m,size=256M,share=on"])
            .args(["-machine", "pc,memory-backend=m"])
            .args(["-chardev", &format!("socket,id=c,path={path}")])
            .args(["-netdev", "vhost-user,id=n,chardev=c"])
            // QEMU 7.2 crashes with MSI-X on emulated processors, so there are no vectors.
            .args(["-device", "virtio-net-pci,netdev=n,mac=02:00:00:00:77:04,romfile=,vectors=0"])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// What it says until it is switched off.
    fn console(mut self) -> String {
        let mut said = vec![];
        self.0.stdout.take().unwrap().read_to_end(&mut said).unwrap();
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The next connection, as long as there may be one.
fn accept(listener: &TcpListener) -> TcpStream {
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

fn serve(file: &[u8], mut stream: TcpStream) {
    let mut request = [0; 4_096];
    let len = stream.read(&mut request).unwrap();
    assert!(request[..len].starts_with(b"GET /file "));
    let header = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", file.len());
    stream.write_all(header.as_bytes()).unwrap();
    stream.write_all(file).unwrap();
}

#[test]
fn a_linux_guest_gets_and_sends_a_file_whole_over_a_bad_network() {
    let (Some(qemu), Some(busybox), Some(kernel)) =
        (program("qemu-system-x86_64"), program("busybox"), Kernel::find())
    else {
        let packages = "apt-get install qemu-system-x86 linux-image-cloud-amd64 busybox-static";
        return skipped("a guest in QEMU", &format!("no QEMU, kernel or busybox ({packages})"));
    };
    if let Some(missing) = Namespace::missing() {
        return skipped("a guest in QEMU", &missing);
    }
    let space = Namespace::new("wpqemu");
    let mut tap = tap(&space, "10.77.4.1");
    let socket = Socket::new("qemu");
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap();
    let initramfs = socket.0.with_extension("initramfs");
    fs::write(&initramfs, kernel.initramfs(&busybox, SCRIPT)).unwrap();
    let file = noise(4 << 20);
    let listen = |port| space.enter(|| TcpListener::bind(format!("10.77.4.1:{port}")).unwrap());
    let [http, upload] = [8_000, 8_001].map(listen);

    let weather = Weather { loss: 10, reordering: 32 };
    let ((said, sent_back), wires) = with_network([&mut tap, &mut port], weather, || {
        let guest = Guest::boot(&qemu, &kernel, &initramfs, &socket);
        std::thread::scope(|scope| {
            let files = scope.spawn(|| {
                serve(&file, accept(&http));
                let mut back = vec![];
                accept(&upload).read_to_end(&mut back).unwrap();
                back
            });
            (guest.console(), files.join().unwrap())
        })
    });
    let _ = fs::remove_file(&initramfs);
    for step in ["ping", "fetch", "send"] {
        assert!(said.contains(&format!("step {step}")), "no {step}: {said}");
    }
    assert!(sent_back == file, "{} bytes came back of {}", sent_back.len(), file.len());
    let (counters, custody) = (port.counters(), port.custody());
    println!(
        "{counters:?} {custody:?}, largest frames {:?}",
        wires.each_ref().map(|wire| wire.largest)
    );
    assert_eq!((counters.bad_chain, counters.bad_frame, counters.bad_header), (0, 0, 0));
    // Linux leaves its buffers alone until it has them back, so they hold most frames without a copy.
    assert_eq!(counters.recycled_early, 0);
    assert!(2 * counters.uncopied > counters.sent_frames, "{counters:?}");
    // Super-frames both ways: what the guest's TCP sends, and what it is sent.
    assert!(wires.iter().all(|wire| wire.largest > 5_000));
    assert_eq!(port.holdings().taken, 0);
}
