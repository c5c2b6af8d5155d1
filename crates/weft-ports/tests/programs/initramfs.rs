//! A Linux that boots into a script: busybox and the modules of a Debian kernel, in the kernel's format
//! (Documentation/driver-api/early-userspace/buffer-format.rst, "newc").

use std::fs;
use std::path::{Path, PathBuf};

/// Modules for a network interface on PCI, in the order of their dependencies.
const MODULES: [&str; 8] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
];

/// A kernel image and its modules.
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// Finds the kernel that Debian's `linux-image-cloud-amd64` installs.
    pub(crate) fn find() -> Option<Self> {
        let names = fs::read_dir("/boot")
            .ok()?
            .flatten()
            .filter_map(|file| file.file_name().into_string().ok());
        let version = names
            .filter_map(|name| Some(name.strip_prefix("vmlinuz-")?.to_owned()))
            .filter(|version| version.ends_with("cloud-amd64"))
            .max()?;
        let modules = Path::new("/lib/modules").join(&version).join("kernel");
        modules.is_dir().then(|| Self { image: format!("/boot/vmlinuz-{version}").into(), modules })
    }

    fn module(&self, name: &str) -> PathBuf {
        let file = format!("{name}.ko");
        let mut folders = vec![self.modules.join("drivers"), self.modules.join("net")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else if entry.file_name() == *file {
                    return entry.path();
                }
            }
        }
        panic!("the kernel has no module {name}");
    }

    /// Returns an archive that loads the modules and then runs `script` with busybox.
    pub(crate) fn initramfs(&self, busybox: &Path, script: &str) -> Vec<u8> {
        let mut archive = Archive::default();
        for folder in ["bin", "proc", "sys", "dev", "modules"] {
            archive.add(folder, 0o040_755, &[]);
        }
        archive.add("bin/busybox", 0o100_755, &fs::read(busybox).unwrap());
        let mut init =
            String::from("#!/bin/busybox sh\n/bin/busybox --install -s /bin\nexport PATH=/bin\n");
        init += "mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys\n";
        for name in MODULES {
            archive.add(
                &format!("modules/{name}.ko"),
                0o100_644,
                &fs::read(self.module(name)).unwrap(),
            );
            init += &format!("insmod /modules/{name}.ko\n");
        }
        init += script;
        archive.add("init", 0o100_755, init.as_bytes());
        archive.finish()
    }
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    files: usize,
}

impl Archive {
    fn add(&mut self, name: &str, mode: usize, content: &[u8]) {
        self.files += 1;
        let fields = [self.files, mode, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.map(|field| format!("{field:08x}")).concat().bytes());
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}
