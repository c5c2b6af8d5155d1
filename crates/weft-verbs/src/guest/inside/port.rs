//! Discovery of the device in a guest: a port of virtio-serial whose name begins with `weft.`, and the slot with that
//! name in the BAR of a shared-memory device (ivshmem), both in sysfs.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use weft_udp::Clock;
use weft_udp::wait::timespec;
use weft_units::Duration;

use crate::guest::slot::{SLOT, Slot};

/// The maximum wait for a port while all are in use or without a relay, and the interval of attempts.
const MAX_WAIT: Duration = Duration::from_secs(2);
const RETRY_EVERY: Duration = Duration::from_millis(10);

/// The vendor and the device of QEMU's `ivshmem-plain` (docs/specs/pci-ids in QEMU).
const IDS: [(&str, &str); 2] = [("vendor", "0x1af4"), ("device", "0x1110")];

/// A port of the device, which this process has opened alone, and its slot.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) port: File,
    pub(crate) bar: OwnedFd,
    /// The offset of the slot in the BAR, bytes.
    pub(crate) offset: u64,
    pub(crate) slot: Slot,
}

/// The reason that a process gets no port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    #[error(
        "all {0} ports are in use, each by a process: give the guest more (`weft device guest --ports`)"
    )]
    InUse(usize),
    #[error("cannot open {}: be root in the guest", path.display())]
    Open {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(
        "the port {0} has no relay: start QEMU and `weft device guest` again, whose command must go on for as long as the \
         guest has the device"
    )]
    NoRelay(String),
    #[error(
        "no ivshmem device has a slot for the port {0}: start QEMU with all options that `weft device guest` prints"
    )]
    NoSlot(String),
}

/// Returns the names of the device's ports, and their paths below `dev`; none on a host.
fn ports(sys: &Path, dev: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(sys.join("class/virtio-ports")) else { return Vec::new() };
    let named = entries.flatten().filter_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        let name = name.trim_end().to_owned();
        device_of(&name)?;
        Some((name, dev.join(entry.file_name())))
    });
    let mut ports: Vec<_> = named.collect();
    ports.sort();
    ports
}

/// Returns the device's name in a port's name.
fn device_of(port: &str) -> Option<&str> {
    let (device, number) = port.strip_prefix("weft.")?.rsplit_once('.')?;
    number.parse::<u32>().is_ok().then_some(device)
}

/// Returns the name of the device that this guest has, if any.
pub(crate) fn device() -> Option<String> {
    let (name, _) = ports(Path::new("/sys"), Path::new("/dev")).into_iter().next()?;
    device_of(&name).map(str::to_owned)
}

impl Port {
    /// Opens the first port of a device that no other process has open; waits two seconds for one.
    ///
    /// # Errors
    /// See [`PortError`].
    pub(crate) fn open(device: &str) -> Result<Self, PortError> {
        let until = Clock.now() + MAX_WAIT;
        loop {
            match Self::open_below(Path::new("/sys"), Path::new("/dev"), device) {
                // The guardian of a process that has just ended has its port for some milliseconds, and QEMU connects
                // to a relay that has closed a connection once a second.
                Err(PortError::InUse(_) | PortError::NoRelay(_)) if Clock.now() < until => {
                    let _ = poll(&mut [], Some(&timespec(RETRY_EVERY)));
                }
                opened => return opened,
            }
        }
    }

    fn open_below(sys: &Path, dev: &Path, device: &str) -> Result<Self, PortError> {
        let mut ports = ports(sys, dev);
        ports.retain(|(name, _)| device_of(name) == Some(device));
        for (name, path) in &ports {
            match File::options().read(true).write(true).open(path) {
                // Linux lets one process at a time open a port (virtio_console).
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(cause) => return Err(PortError::Open { path: path.clone(), cause }),
                Ok(port) if !has_relay(port.as_fd()) => {
                    return Err(PortError::NoRelay(name.clone()));
                }
                Ok(port) => {
                    let (bar, offset, slot) = find_slot(sys, name)?;
                    return Ok(Self { port, bar, offset, slot });
                }
            }
        }
        Err(PortError::InUse(ports.len()))
    }
}

/// Returns `true` if the host's end of a port is open. Without it a write waits (virtio_console).
fn has_relay(port: BorrowedFd<'_>) -> bool {
    // Without events to wait for, poll(2) returns for the end alone.
    let mut watched = [PollFd::new(&port, PollFlags::empty())];
    poll(&mut watched, Some(&timespec(Duration::ZERO))) == Ok(0)
}

/// Returns the slot of a port: its BAR, its offset there, and its last page.
fn find_slot(sys: &Path, name: &str) -> Result<(OwnedFd, u64, Slot), PortError> {
    let devices = fs::read_dir(sys.join("bus/pci/devices")).into_iter().flatten().flatten();
    let is_shared_memory = |folder: &PathBuf| {
        let is = |file: &str, id: &str| {
            fs::read_to_string(folder.join(file)).is_ok_and(|text| text.trim_end() == id)
        };
        IDS.iter().all(|(file, id)| is(file, id))
    };
    for folder in devices.map(|entry| entry.path()).filter(is_shared_memory) {
        let path = folder.join("resource2");
        let failed = |cause| PortError::Open { path: path.clone(), cause };
        // A device that no driver has enabled does not answer.
        if fs::read_to_string(folder.join("enable")).is_ok_and(|text| text.trim_end() == "0") {
            fs::write(folder.join("enable"), "1").map_err(failed)?;
        }
        let bar = File::options().read(true).write(true).open(&path).map_err(failed)?;
        let slots = bar.metadata().map_err(failed)?.len() / SLOT;
        for index in 0..slots {
            let slot = Slot::map(bar.as_fd(), index).map_err(failed)?;
            if slot.is_of(name) {
                return Ok((bar.into(), index * SLOT, slot));
            }
        }
    }
    Err(PortError::NoSlot(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the files that a guest has, removed with this value.
    struct Guest(PathBuf);

    impl Guest {
        fn new(name: &str) -> Self {
            let folder = format!("weft-guest-{name}-{}", std::process::id());
            let guest = Self(std::env::temp_dir().join(folder));
            let _ = fs::remove_dir_all(&guest.0);
            fs::create_dir_all(guest.0.join("dev")).unwrap();
            guest
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn add_port(&self, file: &str, name: &str) {
            self.write(&format!("sys/class/virtio-ports/{file}/name"), &format!("{name}\n"));
            self.write(&format!("dev/{file}"), "");
        }

        /// Adds a device of shared memory with as many slots as names.
        fn add_memory(&self, place: &str, vendor: &str, names: &[&str]) {
            let folder = format!("sys/bus/pci/devices/{place}");
            self.write(&format!("{folder}/vendor"), &format!("{vendor}\n"));
            self.write(&format!("{folder}/device"), "0x1110\n");
            self.write(&format!("{folder}/enable"), "0\n");
            self.write(&format!("{folder}/resource2"), "");
            let path = self.0.join(&folder).join("resource2");
            let bar = File::options().read(true).write(true).open(path).unwrap();
            bar.set_len(names.len() as u64 * SLOT).unwrap();
            for (index, name) in (0..).zip(names) {
                Slot::map(bar.as_fd(), index).unwrap().set_name(name);
            }
        }

        fn open(&self) -> Result<Port, String> {
            let (sys, dev) = (self.0.join("sys"), self.0.join("dev"));
            let opened = Port::open_below(&sys, &dev, "tenant.7");
            opened.map_err(|error| error.to_string())
        }
    }

    impl Drop for Guest {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_port_s_slot_is_found_in_whichever_device_has_its_name() {
        let guest = Guest::new("found");
        assert!(guest.open().unwrap_err().contains("all 0 ports"));
        guest.add_port("vport0p1", "org.qemu.guest_agent.0");
        guest.add_port("vport1p1", "weft.other.0");
        guest.add_port("vport1p2", "weft.tenant.7.1");
        guest.add_memory("0000:00:03.0", "0x1af4", &["weft.other.0"]);
        guest.add_memory("0000:00:04.0", "0x8086", &["weft.tenant.7.1"]);
        assert!(guest.open().unwrap_err().contains("weft.tenant.7.1"), "of another vendor");
        guest.add_memory("0000:00:05.0", "0x1af4", &["weft.tenant.7.0", "weft.tenant.7.1"]);
        let port = guest.open().unwrap();
        assert_eq!(port.offset, SLOT);
        let enabled = guest.0.join("sys/bus/pci/devices/0000:00:05.0/enable");
        assert_eq!(fs::read_to_string(enabled).unwrap(), "1");
    }

    #[test]
    fn a_port_whose_other_end_has_closed_has_no_relay() {
        let (port, host) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(has_relay(port.as_fd()));
        drop(host);
        assert!(!has_relay(port.as_fd()));
    }

    #[test]
    fn a_device_s_name_is_between_the_prefix_and_the_number() {
        assert_eq!(device_of("weft.a.b.12"), Some("a.b"));
        let others = ["weft.a", "weft.a.x", "org.a.0", "weft."];
        assert_eq!(others.map(device_of), [None; 4]);
    }
}
