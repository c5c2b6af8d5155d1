//! The system calls that configure a TAP interface (tuntap.rst, netdevice(7)). All unsafe code of
//! the TAP port is here.
#![expect(unsafe_code, reason = "ioctl(2) has no safe form that knows these requests")]

use std::fs::OpenOptions;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::{c_char, c_int, c_short, c_ulong, ifreq, in6_ifreq};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::TapConfig;
use super::address::add_ipv4;
use crate::{HEADER_LEN, PortError};

/// Offloads that the kernel may leave to the port (linux/if_tun.h): checksums, and segmentation of
/// TCP and UDP.
const TUN_F_CSUM: c_ulong = 0x01;
const TUN_F_TSO4: c_ulong = 0x02;
const TUN_F_TSO6: c_ulong = 0x04;
const TUN_F_TSO_ECN: c_ulong = 0x08;
const TUN_F_USO4: c_ulong = 0x20;
const TUN_F_USO6: c_ulong = 0x40;

/// Sets of offloads in order of preference: USO came with Linux 6.2.
const OFFLOADS: [c_ulong; 3] = [
    TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN | TUN_F_USO4 | TUN_F_USO6,
    TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN,
    TUN_F_CSUM,
];

/// An open TAP interface.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) fd: OwnedFd,
    /// The kernel's name of the interface.
    pub(super) name: String,
    /// `true` if the kernel accepts unsegmented UDP frames.
    pub(super) takes_uso: bool,
}

/// Opens the interface in its namespace; the descriptor works from anywhere.
pub(super) fn open(config: &TapConfig) -> Result<Device, PortError> {
    let Some(namespace) = &config.namespace else { return open_here(config) };
    namespace.run(|| open_here(config))?
}

fn open_here(config: &TapConfig) -> Result<Device, PortError> {
    let mut request = request_for(&config.name)?;
    let fd: OwnedFd = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(PortError::io("open /dev/net/tun (is the tun module there?)"))?
        .into();
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = c_short::try_from(flags).expect("flags of TUNSETIFF are short");
    call(&fd, libc::TUNSETIFF as c_ulong, &raw mut request)
        .map_err(PortError::io(format!("create the TAP interface {}", config.name)))?;
    let name = name_in(&request);
    let mut header = c_int::try_from(HEADER_LEN).expect("twelve");
    call(&fd, libc::TUNSETVNETHDRSZ as c_ulong, &raw mut header)
        .map_err(PortError::io(format!("give {name} virtio headers of 12 bytes")))?;
    let offload = set_offload(&fd)
        .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
        .map_err(PortError::io(format!("let {name} leave checksums to us")))?;
    set_value(&fd, libc::TUNSETPERSIST as c_ulong, c_ulong::from(config.persistent))
        .map_err(PortError::io(format!("make {name} persistent or not")))?;
    configure(config, &name)?;
    Ok(Device { fd, name, takes_uso: offload & TUN_F_USO4 != 0 })
}

/// Sets and returns the best set of offloads that the kernel accepts.
fn set_offload(fd: &OwnedFd) -> Option<c_ulong> {
    OFFLOADS
        .into_iter()
        .find(|&offload| set_value(fd, libc::TUNSETOFFLOAD as c_ulong, offload).is_ok())
}

/// Sets the MTU, MAC address and addresses, and sets the interface up.
fn configure(config: &TapConfig, name: &str) -> Result<(), PortError> {
    let socket = |family| {
        socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| PortError::io("open a socket for interfaces")(errno.into()))
    };
    let inet = socket(AddressFamily::INET)?;
    let mut request = request_for(name)?;
    if let Some(mtu) = config.mtu {
        request.ifr_ifru.ifru_mtu = c_int::try_from(mtu).unwrap_or(c_int::MAX);
        call(&inet, libc::SIOCSIFMTU, &raw mut request)
            .map_err(PortError::io(format!("set the MTU of {name} to {mtu}")))?;
    }
    if let Some(mac) = config.mac {
        request.ifr_ifru.ifru_hwaddr = libc::sockaddr {
            sa_family: libc::ARPHRD_ETHER,
            sa_data: std::array::from_fn(|at| mac.get(at).map_or(0, |&byte| byte.cast_signed())),
        };
        call(&inet, libc::SIOCSIFHWADDR, &raw mut request)
            .map_err(PortError::io(format!("set the MAC address of {name}")))?;
    }
    let mut labels = labels(name);
    for &(address, prefix) in &config.addresses {
        let set = match address {
            IpAddr::V4(address) => match labels.next().flatten() {
                Some(label) => set_ipv4(&inet, &label, address.octets(), prefix),
                None => {
                    index_of(&inet, name).and_then(|interface| add_ipv4(interface, address, prefix))
                }
            },
            IpAddr::V6(address) => {
                set_ipv6(&inet, &socket(AddressFamily::INET6)?, name, address.octets(), prefix)
            }
        };
        set.map_err(PortError::io(format!("give {name} the address {address}/{prefix}")))?;
    }
    if config.up {
        let mut request = request_for(name)?;
        call(&inet, libc::SIOCGIFFLAGS, &raw mut request)
            .map_err(PortError::io(format!("read the flags of {name}")))?;
        // SAFETY: SIOCGIFFLAGS has filled in this member of the union.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        let up = c_short::try_from(libc::IFF_UP).expect("flags of interfaces are short");
        request.ifr_ifru.ifru_flags = flags | up;
        call(&inet, libc::SIOCSIFFLAGS, &raw mut request)
            .map_err(PortError::io(format!("set {name} up")))?;
    }
    Ok(())
}

/// Returns the labels of an interface's IPv4 addresses; `None` for one that is longer than a name may be. The request for an
/// address replaces the one with the same label, so that a persistent interface has each once, and the kernel takes them for the
/// interface before the colon.
fn labels(name: &str) -> impl Iterator<Item = Option<String>> {
    let more = (1..).map(move |number: u32| Some(format!("{name}:{number}")));
    let labels = std::iter::once(Some(name.to_owned())).chain(more);
    labels.map(|label| label.filter(|label| label.len() < libc::IFNAMSIZ))
}

fn set_ipv4(socket: &OwnedFd, name: &str, octets: [u8; 4], prefix: u8) -> io::Result<()> {
    let mask = u32::MAX.checked_shl(32_u32.saturating_sub(u32::from(prefix))).unwrap_or(0);
    for (command, value) in
        [(libc::SIOCSIFADDR, octets), (libc::SIOCSIFNETMASK, mask.to_be_bytes())]
    {
        let mut request = request_for(name).map_err(io::Error::other)?;
        request.ifr_ifru.ifru_addr.sa_family =
            libc::sa_family_t::try_from(libc::AF_INET).expect("families are small");
        // Two bytes of port precede the address (ip(7)).
        for (to, from) in request_address(&mut request)[2..6].iter_mut().zip(value) {
            *to = from.cast_signed();
        }
        call(socket, command, &raw mut request)?;
    }
    Ok(())
}

fn request_address(request: &mut ifreq) -> &mut [c_char; 14] {
    // SAFETY: every bit pattern is a `sockaddr`, and the union was zeroed before this member was written.
    unsafe { &mut request.ifr_ifru.ifru_addr.sa_data }
}

fn set_ipv6(
    inet: &OwnedFd,
    inet6: &OwnedFd,
    name: &str,
    octets: [u8; 16],
    prefix: u8,
) -> io::Result<()> {
    let mut address = in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: octets },
        ifr6_prefixlen: u32::from(prefix),
        ifr6_ifindex: index_of(inet, name)?.cast_signed(),
    };
    match call(inet6, libc::SIOCSIFADDR, &raw mut address) {
        // A persistent interface has kept it.
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        done => done,
    }
}

/// Returns the kernel's number of an interface.
fn index_of(socket: &OwnedFd, name: &str) -> io::Result<u32> {
    let mut request = request_for(name).map_err(io::Error::other)?;
    call(socket, libc::SIOCGIFINDEX, &raw mut request)?;
    // SAFETY: SIOCGIFINDEX has filled in this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex }.cast_unsigned())
}

fn request_for(name: &str) -> Result<ifreq, PortError> {
    let fits = (1..libc::IFNAMSIZ).contains(&name.len());
    if !fits || name.bytes().any(|byte| byte == b'/' || byte <= b' ') {
        return Err(PortError::BadName { name: name.into() });
    }
    // SAFETY: all members of `ifreq` are integers, arrays of them and a pointer, for which zero is a value.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

fn name_in(request: &ifreq) -> String {
    let bytes = request.ifr_name.iter().map(|&byte| byte.cast_unsigned());
    String::from_utf8_lossy(&bytes.take_while(|&byte| byte != 0).collect::<Vec<u8>>()).into_owned()
}

/// Calls an ioctl whose argument the kernel reads and writes.
fn call<T: Argument>(fd: &OwnedFd, request: c_ulong, argument: *mut T) -> io::Result<()> {
    // SAFETY: every caller passes a local that is initialised and alive, of the type that the kernel
    // documents for the request.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Argument types of the requests above.
trait Argument {}
impl Argument for ifreq {}
impl Argument for in6_ifreq {}
impl Argument for c_int {}

/// Calls an ioctl whose argument is the value itself.
fn set_value(fd: &OwnedFd, request: c_ulong, value: c_ulong) -> io::Result<()> {
    // SAFETY: the kernel takes the value as it is and touches no memory.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, value) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused_with_the_rule() {
        for name in ["", "a/b", "two words", "sixteen-letters-"] {
            let message = request_for(name).unwrap_err().to_string();
            assert!(message.contains("1 to 15 bytes"), "{message}");
        }
        assert_eq!(name_in(&request_for("fifteen-letters").unwrap()), "fifteen-letters");
    }

    #[test]
    fn a_label_that_is_longer_than_a_name_may_be_is_left_out() {
        let first = |name: &str| labels(name).take(2).map(|it| it.is_some()).collect::<Vec<_>>();
        assert_eq!(first("thirteen-byte"), [true, true]);
        assert_eq!(first("fourteen-bytes"), [true, false]);
        assert_eq!(first("fifteen-letters"), [true, false]);
        assert_eq!(labels("thirteen-byte").nth(10), Some(None));
    }
}
