//! A Linux that boots into a script: busybox, the modules of a Debian kernel and programs of this machine, in the
//! kernel's format (Documentation/driver-api/early-userspace/buffer-format.rst, "newc").

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules for a network interface on PCI, in the order of their dependencies.
const NETWORK: [&str; 8] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
];

/// Returns the path of a program, if it is installed.
pub fn installed(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    folders.iter().map(|folder| PathBuf::from(folder).join(name)).find(|path| path.is_file())
}

/// A kernel image and its modules.
#[derive(Debug)]
pub struct Kernel {
    /// The image.
    pub image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// Finds the kernel that Debian's `linux-image-cloud-amd64` installs.
    pub fn find() -> Option<Self> {
        Self::find_below(Path::new("/"), "cloud-amd64")
    }

    /// Finds the newest kernel whose version ends in `flavour` in a package that is unpacked in a folder.
    pub fn find_below(folder: &Path, flavour: &str) -> Option<Self> {
        let names = fs::read_dir(folder.join("boot"))
            .ok()?
            .flatten()
            .filter_map(|file| file.file_name().into_string().ok());
        let version = names
            .filter_map(|name| Some(name.strip_prefix("vmlinuz-")?.to_owned()))
            .filter(|version| version.ends_with(flavour))
            .max()?;
        let modules = folder.join("lib/modules").join(&version).join("kernel");
        let image = folder.join(format!("boot/vmlinuz-{version}"));
        modules.is_dir().then_some(Self { image, modules })
    }

    /// Returns `true` if the kernel has a module.
    pub(crate) fn has(&self, module: &str) -> bool {
        self.module(module).is_some()
    }

    fn module(&self, name: &str) -> Option<PathBuf> {
        let file = format!("{name}.ko");
        files_below(&self.modules).find(|path| path.ends_with(&file))
    }

    /// Returns an archive that loads the modules for a network interface, then those of `modules`, and then runs `script`
    /// with busybox.
    ///
    /// # Panics
    /// Panics if a file cannot be read, or the kernel lacks a module.
    pub fn initramfs(
        &self,
        busybox: &Path,
        modules: &[&str],
        files: &Files,
        script: &str,
    ) -> Vec<u8> {
        let mut archive = Archive::default();
        for folder in ["bin", "proc", "sys", "dev", "tmp", "modules"] {
            archive.add_folder(folder);
        }
        archive.add_file("bin/busybox", 0o100_755, busybox);
        let mut init =
            String::from("#!/bin/busybox sh\n/bin/busybox --install -s /bin\nexport PATH=/bin\n");
        init += "mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys\n";
        for name in NETWORK.iter().chain(modules) {
            archive.add_file(
                &format!("modules/{name}.ko"),
                0o100_644,
                &self.module(name).unwrap_or_else(|| panic!("the kernel has no module {name}")),
            );
            init += &format!("insmod /modules/{name}.ko\n");
        }
        for (inside, outside) in &files.0 {
            archive.add_file(inside, 0o100_755, outside);
        }
        init += script;
        archive.add("init", 0o100_755, init.as_bytes());
        archive.finish()
    }
}

/// Files of this machine for a guest: their paths there, without the first slash, and here.
#[derive(Debug, Default)]
pub struct Files(BTreeSet<(String, PathBuf)>);

impl Files {
    /// Adds a file at the same path as here.
    pub fn add(&mut self, file: &Path) {
        let inside = file.display().to_string();
        self.0.insert((inside.trim_start_matches('/').to_owned(), file.to_owned()));
    }

    /// Adds a program or a shared library as `inside`, and the libraries that it is linked with.
    ///
    /// # Panics
    /// Panics if `ldd` does not run.
    pub fn add_program(&mut self, inside: &str, program: &Path) {
        self.add_as(inside, program);
        let listed = Command::new("ldd").arg(program).output().expect("libc-bin has ldd");
        let listed = String::from_utf8_lossy(&listed.stdout);
        let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
        paths.for_each(|library| self.add(Path::new(library)));
    }

    /// Adds a shared library at the same path as here, and the libraries that it is linked with.
    ///
    /// # Panics
    /// Panics if `ldd` does not run.
    pub fn add_library(&mut self, library: &Path) {
        let inside = library.display().to_string();
        self.add_program(inside.trim_start_matches('/'), library);
    }

    /// Adds a file as `inside`.
    pub fn add_as(&mut self, inside: &str, file: &Path) {
        self.0.insert((inside.to_owned(), file.to_owned()));
    }

    /// Adds the files below a folder, at the same paths as here, except those in folders with a name in `without`. Of
    /// shared libraries the libraries that they are linked with are added too.
    ///
    /// # Panics
    /// Panics if a folder cannot be read, or `ldd` does not run.
    pub fn add_below(&mut self, folder: &Path, without: &[&str]) {
        let left_out = |path: &Path| path.iter().any(|name| without.iter().any(|it| name == *it));
        for file in files_below(folder).filter(|path| !left_out(path)) {
            if file.extension().is_some_and(|extension| extension == "so") {
                self.add_library(&file);
            } else {
                self.add(&file);
            }
        }
    }
}

/// Returns the files in a folder and those below it, without those that a link to a folder leads to.
fn files_below(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let mut waiting = vec![folder.to_owned()];
    core::iter::from_fn(move || {
        loop {
            let path = waiting.pop()?;
            if !path.is_dir() {
                return Some(path);
            }
            if !path.is_symlink() {
                let entries = fs::read_dir(&path).expect("a folder that can be read");
                waiting.extend(entries.flatten().map(|entry| entry.path()));
            }
        }
    })
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    files: usize,
    folders: BTreeSet<PathBuf>,
}

impl Archive {
    /// Adds a folder, after those above it, once.
    fn add_folder(&mut self, name: impl AsRef<Path>) {
        let name = name.as_ref();
        if !name.as_os_str().is_empty() && self.folders.insert(name.to_owned()) {
            name.parent().into_iter().for_each(|above| self.add_folder(above));
            self.add(&name.display().to_string(), 0o040_755, &[]);
        }
    }

    fn add_file(&mut self, name: &str, mode: usize, file: &Path) {
        Path::new(name).parent().into_iter().for_each(|folder| self.add_folder(folder));
        let content = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(name, mode, &content);
    }

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
