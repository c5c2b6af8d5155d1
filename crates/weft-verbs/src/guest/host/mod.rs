//! The host's part: the files that a guest's memory and its device's BAR are, and a relay for each of its ports.

use std::fs::{self, File, Permissions};
use std::io;
#[cfg(test)]
use std::os::fd::BorrowedFd;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use weft_units::ByteCount;

mod ram;
mod relay;
mod translation;

use super::frames::Frames;
use super::slot::{SLOT, Slot};
use crate::attach::{CallError, Caller, Request, daemon_socket, listen_at};
use ram::{Ram, sealed};
use relay::Relay;

/// Maximum number of ports of a guest, each for a process.
const MAX_PORTS: u32 = 64;

/// A daemon's device in one virtual machine. It ends when this is dropped.
#[derive(Debug)]
pub struct GuestDevice {
    parts: Arc<Parts>,
    sockets: Vec<PathBuf>,
}

/// The parts that the relays share.
#[derive(Debug)]
struct Parts {
    /// The device's name.
    device: String,
    /// The daemon's socket.
    daemon: PathBuf,
    ram: Arc<Ram>,
    bar: OwnedFd,
    /// The slots of the BAR, one for each port.
    slots: Vec<Slot>,
    /// Readable when the relays are to end.
    stop: OwnedFd,
}

/// The error of a device that cannot be given to a guest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// The memory's size is not one that a guest has.
    #[error("{0} is no size of a guest's memory: it is a multiple of 1 MiB, from 1 MiB to 1 PiB")]
    Memory(ByteCount),
    /// The number of ports is not allowed.
    #[error("a guest has from 1 to {MAX_PORTS} ports, not {0}")]
    Ports(u32),
    /// The daemon does not answer, or does not have the device for this user.
    #[error("the daemon does not give the device")]
    Daemon(#[from] CallError),
    /// A port's socket cannot be made.
    #[error("cannot listen at {}", path.display())]
    Listen {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The kernel has no memory or no more descriptors.
    #[error("cannot make the guest's memory")]
    Kernel(#[from] io::Error),
}

impl GuestDevice {
    /// Makes the memory of a guest and its device's BAR, and serves its ports, at sockets in `folder`, from threads of
    /// this process. `daemon` is the daemon's socket; the default is that of programs.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub fn start(
        device: &str,
        memory: ByteCount,
        ports: u32,
        folder: &Path,
        daemon: Option<&Path>,
    ) -> Result<Self, GuestError> {
        const MIB: u64 = 1 << 20;
        if !memory.0.is_multiple_of(MIB) || !(MIB..=1 << 50).contains(&memory.0) {
            return Err(GuestError::Memory(memory));
        }
        if !(1..=MAX_PORTS).contains(&ports) {
            return Err(GuestError::Ports(ports));
        }
        let daemon = daemon.map_or_else(daemon_socket, PathBuf::from);
        let describe = Request::Describe { name: device.into() };
        Caller::connect(&daemon)?.call(&describe, &[])?;

        let bar = sealed("weft-guest-bar", (u64::from(ports) * SLOT).next_power_of_two())?;
        let slots: Vec<Slot> = (0..u64::from(ports))
            .map(|index| Slot::map(bar.as_fd(), index))
            .collect::<io::Result<_>>()?;
        slots.iter().enumerate().for_each(|(port, slot)| slot.set_name(&name_of(device, port)));
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let ram = Arc::new(Ram::create(memory.0)?);
        let parts = Arc::new(Parts { device: device.into(), daemon, ram, bar, slots, stop });
        let mut guest = Self { parts, sockets: Vec::new() };
        for port in 0..guest.parts.slots.len() {
            guest.listen(port, folder.join(format!("{}.sock", name_of(device, port))))?;
        }
        Ok(guest)
    }

    /// Serves a port at a path.
    fn listen(&mut self, port: usize, path: PathBuf) -> Result<(), GuestError> {
        let listener = listen(&path);
        let listener =
            listener.map_err(|cause| GuestError::Listen { path: path.clone(), cause })?;
        self.sockets.push(path);
        let parts = self.parts.clone();
        crate::thread::spawn(move || parts.serve(port, &listener))?;
        Ok(())
    }

    /// Returns the file of the guest's memory.
    #[cfg(test)]
    pub(crate) fn ram(&self) -> BorrowedFd<'_> {
        self.parts.ram.as_fd()
    }

    /// Returns the file of the BAR.
    #[cfg(test)]
    pub(crate) fn bar(&self) -> BorrowedFd<'_> {
        self.parts.bar.as_fd()
    }

    /// Returns the paths of the ports' sockets.
    #[cfg(test)]
    pub(crate) fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Returns the options with which QEMU gives the memory and the device to the guest. Its memory's size belongs to
    /// them (`-m`).
    pub fn options(&self) -> Vec<String> {
        let Parts { device, ram, bar, slots, .. } = &*self.parts;
        let file = |descriptor: i32| format!("/proc/{}/fd/{descriptor}", std::process::id());
        let backend = |id: &str, len: u64, descriptor: i32| {
            let path = file(descriptor);
            format!("memory-backend-file,id={id},share=on,size={len},mem-path={path}")
        };
        let bar_len = (slots.len() as u64 * SLOT).next_power_of_two();
        let mut options = vec![
            "-m".into(),
            format!("{}M", ram.len() >> 20),
            "-object".into(),
            backend("weft-ram", ram.len(), ram.as_fd().as_raw_fd()),
            "-machine".into(),
            "memory-backend=weft-ram,max-ram-below-4g=2G".into(),
            "-object".into(),
            backend("weft-bar", bar_len, bar.as_raw_fd()),
            "-device".into(),
            "ivshmem-plain,memdev=weft-bar".into(),
            "-device".into(),
            "virtio-serial-pci,id=weft-ports,max_ports=65,vectors=0".into(),
        ];
        for (port, socket) in self.sockets.iter().enumerate() {
            let (name, socket) =
                (name_of(device, port), socket.display().to_string().replace(',', ",,"));
            options.extend([
                "-chardev".into(),
                format!("socket,id=weft-{port},path={socket},reconnect=1"),
                "-device".into(),
                format!("virtserialport,bus=weft-ports.0,chardev=weft-{port},name={name}"),
            ]);
        }
        options
    }
}

impl Drop for GuestDevice {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.parts.stop, &1_u64.to_ne_bytes());
        for socket in &self.sockets {
            let _ = fs::remove_file(socket);
        }
    }
}

impl Parts {
    /// Connects to the daemon.
    fn connect(&self) -> Result<Caller, CallError> {
        Caller::connect(&self.daemon)
    }

    /// Serves one connection after the other until the relays are to end.
    fn serve(&self, port: usize, listener: &UnixListener) {
        loop {
            let mut watched =
                [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            let found = poll(&mut watched, None);
            if !watched[1].revents().is_empty() {
                return;
            }
            let (Ok(_), Ok((connection, _))) = (found, listener.accept()) else { continue };
            let frames = Frames::new(File::from(OwnedFd::from(connection)));
            if let Err(ended) = Relay::new(self, port, frames).run() {
                eprintln!(
                    "weft: device {}: process on port {port} of its guest: {ended}",
                    self.device
                );
            }
        }
    }
}

/// Returns the name of a port in the guest.
fn name_of(device: &str, port: usize) -> String {
    format!("weft.{device}.{port}")
}

/// Returns the offset of a slot in the BAR, bytes.
const fn slot_offset(port: usize) -> u64 {
    port as u64 * SLOT
}

/// Listens at a path, for this user alone.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let is_served = |path: &Path| UnixStream::connect(path).is_ok();
    let listener = listen_at(path, |path| UnixListener::bind(path), is_served)?;
    // A connection may be gone before it is accepted.
    listener.set_nonblocking(true)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}
