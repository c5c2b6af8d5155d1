//! The device that programs find: its name, its addresses, its capabilities.

use core::ffi::{c_char, c_int};
use std::net::IpAddr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::attach::{Amounts, Answer, CallError, Caller, Description, Request, daemon_socket};
use crate::guest::inside;
use crate::interfaces::{self, Address};
use weft_verbs_abi::*;

pub mod limits;

/// The name of a device in this process.
pub(crate) const NAME: &str = "weft0";

/// The environment variable that names a daemon's device to use instead.
const VARIABLE: &str = "WEFT_DEVICE";

/// A locally administered OUI: no vendor has it.
const VENDOR: u32 = 0x02_5745;

/// Returns an address as a RoCE v2 GID (IBTA annex A17: an IPv4 address is mapped into IPv6).
pub(crate) fn gid_of(ip: IpAddr) -> ibv_gid {
    let raw = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    ibv_gid { raw, align: [] }
}

/// Returns the address of a GID.
pub(crate) fn ip_of(gid: &ibv_gid) -> IpAddr {
    std::net::Ipv6Addr::from(gid.raw).to_canonical()
}

/// The MTU of an ordinary Ethernet, bytes. A larger one needs `WEFT_MTU`: the links behind the first one are not known.
const ETHERNET_MTU: u32 = 1_500;

/// The rate of the port, in the words of verbs and of sysfs.
pub(crate) struct Rate {
    width: u8,
    speed: u8,
    pub(crate) text: &'static str,
}

/// Four lanes of 25 Gb/s, for programs that choose by it: the real link is UDP. 2 and 32 are the codes of these values in
/// ibv_query_port(3).
pub(crate) const RATE: Rate = Rate { width: 2, speed: 32, text: "100 Gb/sec (4X EDR)" };

/// The device as programs hold it, and its attributes.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) public: ibv_device,
    pub(crate) addresses: Vec<Address>,
    pub(crate) guid: [u8; 8],
    limits: Amounts,
    location: Location,
    /// `true` if programs find it: a daemon may refuse it to this program, or have ended.
    is_there: bool,
}

/// The place of the device.
#[derive(Debug)]
pub(crate) enum Location {
    /// In this process.
    Embedded,
    /// In a daemon, under this name.
    Attached(String),
    /// In a daemon of the host of this virtual machine, under this name.
    Guest(String),
}

// SAFETY: the pointers of the public part are never followed.
unsafe impl Send for Device {}
// SAFETY: it never changes.
unsafe impl Sync for Device {}

/// The one device of this process.
pub(crate) static DEVICE: Current = Current(AtomicPtr::new(core::ptr::null_mut()));

/// The device as it was found last. Programs hold pointers to a device for as long as they run, so none is freed.
#[derive(Debug)]
pub(crate) struct Current(AtomicPtr<Device>);

impl core::ops::Deref for Current {
    type Target = Device;

    fn deref(&self) -> &Device {
        // SAFETY: the pointer is null or a device that is never freed.
        match unsafe { self.0.load(Ordering::Acquire).as_ref() } {
            Some(device) => device,
            None => self.put(core::ptr::null_mut(), Device::find()),
        }
    }
}

impl Current {
    /// Puts a device in the place of `former`, unless another thread did. Returns the one that is there now.
    fn put(&self, former: *mut Device, device: Device) -> &'static Device {
        let new = Box::into_raw(Box::new(device));
        let put = self.0.compare_exchange(former, new, Ordering::AcqRel, Ordering::Acquire);
        let current = put.map_or_else(
            |other| {
                // SAFETY: it was made above, and nothing else refers to it.
                drop(unsafe { Box::from_raw(new) });
                other
            },
            |_| new,
        );
        // SAFETY: `former` was replaced, so it is not null, and no device there is freed.
        unsafe { &*current }
    }

    /// Looks for the device again if it was not there, or if the daemon that had it has ended, which is `lost` then: another
    /// one may have it now.
    pub(crate) fn look_again(&self, lost: bool) {
        let former = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is null or a device that is never freed.
        let Some(known) = (unsafe { former.as_ref() }) else { return };
        if known.daemon().is_some() && (!known.is_there || lost) {
            let found = Device::find();
            if !found.is_like(known) {
                self.put(former, found);
            }
        }
    }
}

impl Device {
    /// Returns `true` if programs see no difference between two devices of one name.
    fn is_like(&self, other: &Self) -> bool {
        let what = |it: &Self| (it.is_there, it.limits);
        what(self) == what(other) && self.addresses == other.addresses
    }

    fn find() -> Self {
        let named = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
        let (name, described, location) = match (named, inside::device()) {
            (Some(name), _) => (name.clone(), describe(&name), Location::Attached(name)),
            (None, Some(name)) => (name.clone(), inside::describe(&name), Location::Guest(name)),
            (None, None) => return Self::embedded(addresses()),
        };
        match described {
            Ok(Description { limits, addresses }) => {
                let addresses = addresses.into_iter().map(Address::from).collect();
                Self::new(&name, addresses, limits, location)
            }
            Err(error) => {
                // The program will report that there are no devices; this line gives its user the reason.
                eprintln!("weft: device {name}: {error}");
                Self { is_there: false, ..Self::new(&name, Vec::new(), Amounts::NONE, location) }
            }
        }
    }

    fn new(name: &str, addresses: Vec<Address>, limits: Amounts, location: Location) -> Self {
        Self {
            public: ibv_device {
                _ops: [core::ptr::null(); 2],
                node_type: IBV_NODE_CA,
                transport_type: IBV_TRANSPORT_IB,
                name: text(name),
                dev_name: text(name),
                dev_path: text(&format!("/sys/class/infiniband_verbs/{name}")),
                ibdev_path: text(&format!("/sys/class/infiniband/{name}")),
            },
            guid: guid(&addresses),
            addresses,
            limits,
            location,
            is_there: true,
        }
    }

    /// Returns `true` if programs find it.
    pub(crate) const fn is_there(&self) -> bool {
        self.is_there
    }

    /// Returns the device of this process, with these addresses.
    pub(crate) fn embedded(addresses: Vec<Address>) -> Self {
        Self::new(NAME, addresses, Amounts::default(), Location::Embedded)
    }

    /// Returns the name that programs see.
    pub(crate) fn name(&self) -> &str {
        self.daemon().unwrap_or(NAME)
    }

    /// Returns its name if it is a daemon's.
    pub(crate) fn daemon(&self) -> Option<&str> {
        match &self.location {
            Location::Attached(name) | Location::Guest(name) => Some(name),
            Location::Embedded => None,
        }
    }

    /// Returns its place.
    pub(crate) const fn location(&self) -> &Location {
        &self.location
    }

    /// Returns the device's attributes.
    pub(crate) fn attributes(&self) -> ibv_device_attr {
        // SAFETY: all-zero bytes are valid for numbers.
        let zero: ibv_device_attr = unsafe { core::mem::zeroed() };
        let count = |limit: u32| c_int::try_from(limit).unwrap_or(c_int::MAX);
        let max_qp = count(self.limits.queue_pairs);
        ibv_device_attr {
            fw_ver: text(env!("CARGO_PKG_VERSION")),
            node_guid: be64::from_ne_bytes(self.guid),
            sys_image_guid: be64::from_ne_bytes(self.guid),
            max_mr_size: u64::MAX,
            page_size_cap: !0 << 12,
            vendor_id: VENDOR,
            vendor_part_id: 1,
            max_qp,
            max_qp_wr: limits::QP_WR,
            device_cap_flags: device_cap::RC_RNR_NAK_GEN
                | device_cap::MEM_WINDOW
                | device_cap::MEM_MGT_EXTENSIONS
                | device_cap::MEM_WINDOW_TYPE_2B,
            max_sge: limits::SGE,
            max_sge_rd: limits::SGE,
            max_cq: count(self.limits.completion_queues),
            max_cqe: limits::CQE,
            max_mr: count(self.limits.regions),
            max_pd: count(self.limits.domains),
            max_qp_rd_atom: limits::RD_ATOM,
            max_res_rd_atom: limits::RD_ATOM * max_qp,
            max_qp_init_rd_atom: limits::RD_ATOM,
            atomic_cap: IBV_ATOMIC_HCA,
            max_mw: limits::MW,
            max_ah: limits::AH,
            max_srq: count(self.limits.shared_receive_queues),
            max_srq_wr: limits::SRQ_WR,
            max_srq_sge: limits::SGE,
            max_pkeys: 1,
            phys_port_cnt: 1,
            ..zero
        }
    }

    /// Returns the attributes of its only port.
    pub(crate) fn port(&self) -> ibv_port_attr {
        ibv_port_attr {
            state: IBV_PORT_ACTIVE,
            max_mtu: IBV_MTU_4096,
            active_mtu: IBV_MTU_4096,
            gid_tbl_len: c_int::try_from(self.addresses.len()).unwrap_or(c_int::MAX),
            port_cap_flags: port_cap::CM_SUP | port_cap::IP_BASED_GIDS,
            max_msg_sz: limits::MESSAGE,
            bad_pkey_cntr: 0,
            qkey_viol_cntr: 0,
            pkey_tbl_len: 1,
            lid: 0,
            sm_lid: 0,
            lmc: 0,
            max_vl_num: 1,
            sm_sl: 0,
            subnet_timeout: 0,
            init_type_reply: 0,
            active_width: RATE.width,
            active_speed: RATE.speed,
            phys_state: PHYS_STATE_LINK_UP,
            link_layer: IBV_LINK_LAYER_ETHERNET,
            flags: 0,
            port_cap_flags2: 0,
        }
    }
}

/// Asks the daemon to describe a device.
fn describe(name: &str) -> Result<Description, CallError> {
    let mut daemon = Caller::connect(&daemon_socket())?;
    match daemon.call(&Request::Describe { name: name.into() }, &[])? {
        (Answer::Description(description), _) => Ok(description),
        _ => Err(CallError::Nonsense),
    }
}

/// Returns the MTU of the device's packets with their IP header, bytes: the one `requested`, or else an Ethernet's, and
/// at most that of any interface.
pub(crate) fn mtu_of(addresses: &[Address], requested: Option<u32>) -> u32 {
    let limit = requested.unwrap_or(ETHERNET_MTU);
    addresses.iter().map(|address| address.mtu).fold(limit, u32::min)
}

/// Returns a string in a field of `N` bytes, with a zero at its end.
pub(crate) fn text<const N: usize>(string: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field[..N - 1].iter_mut().zip(string.bytes()) {
        *to = from.cast_signed();
    }
    field
}

/// Returns the addresses of this host: first those that others can reach, then the local ones.
pub(crate) fn addresses() -> Vec<Address> {
    let mut found = interfaces::addresses();
    found.sort_by_key(|address| (address.ip.is_loopback(), address.ip.is_ipv6()));
    found
}

/// Returns a locally administered EUI-64 that stays the same while the first address does.
fn guid(addresses: &[Address]) -> [u8; 8] {
    let octets = addresses.first().map_or([0; 16], |address| gid_of(address.ip).raw);
    let mut guid = [0; 8];
    for (index, octet) in octets.into_iter().enumerate() {
        guid[index % 8] ^= octet;
    }
    guid[0] = 0x02;
    guid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_is_the_requested_one_up_to_that_of_every_interface() {
        let address = |mtu| Address { ip: std::net::Ipv4Addr::LOCALHOST.into(), interface: 1, mtu };
        let wide = [address(65_536), address(9_000)];
        assert_eq!(mtu_of(&wide, None), 1_500);
        assert_eq!(mtu_of(&wide, Some(4_200)), 4_200);
        assert_eq!(mtu_of(&[address(9_000), address(1_400)], Some(9_000)), 1_400);
    }
}
