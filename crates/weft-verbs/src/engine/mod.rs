//! The device that programs' objects are on: in this process ([`Embedded`]), or a daemon's.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use weft_rnic::Limits;
use weft_seal::{SealConfig, Seals};
use weft_transport::{EndpointConfig, Secret, TransportConfig};
pub(crate) use weft_udp::wait::timespec;
use weft_udp::{
    Budget, Driver, EncryptionSettings, SettingError, TransportSettings, describe_encryption,
    reserve_overhead,
};
use weft_units::{BitRate, ByteCount, Duration, Instant, Seed};

use crate::device::{DEVICE, Location, limits, mtu_of};
use crate::errno::{Errno, Outcome};
use crate::interfaces::Address;

mod attached;
pub(crate) mod blocking;
mod client;
pub(crate) mod command;
mod commands;
mod current;
mod embedded;
pub(crate) mod events;
mod exit;
pub(crate) mod fork;
mod host;
mod links;
mod memory;
mod pace;
mod planned;
mod progress;
mod same_host;
mod settings;
mod show;
mod source_ports;

use attached::Attached;
pub use client::{ClientAddress, DeviceClient, Done};
pub(crate) use command::Region;
pub(crate) use commands::address_of;
use embedded::Embedded;
pub(crate) use host::{Asynchronous, Channel, Host, Object, Posted, Watcher, Watchers};
use links::{Links, port_of};
pub(crate) use memory::{Fault, OWNER, owner_of};
use planned::Planned;
use progress::ask_for_short_slices;
use same_host::Neighbours;
#[cfg(fuzzing)]
pub(crate) use same_host::properties as same_host_properties;
pub use settings::HeldSettings;
pub(crate) use settings::{Settings, describe_held};
use show::Shown;

/// Default number of paths of a connection, unless settings, a published profile or a plan override it (STELLAR,
/// section 7.2).
const PATHS: u16 = 128;

/// Maximum length of the headers before a payload, bytes: IPv6, UDP, data, message, RDMA.
const HEADERS: u32 = 40 + 8 + 20 + 12 + 24;

/// Length of the headers of IPv4 and UDP, bytes.
const IPV4_UDP: u32 = 20 + 8;
/// UDP's largest payload over IPv4, bytes: one system call sends this much to a path, and the kernel cuts it into
/// datagrams (GSO).
const BURST: u32 = 65_507;

/// The engine behind the device.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a process has one, and it is not moved")]
pub(crate) enum Engine {
    /// The device is in this process.
    Embedded(Embedded),
    /// The device is in a daemon.
    Attached(Attached),
}

impl Engine {
    /// Returns the engine of this process; opens it if there is none, or if its daemon has ended.
    ///
    /// # Errors
    /// The kernel has no more sockets or threads, no port is free, or the daemon refuses.
    pub(crate) fn current() -> Outcome<Arc<Self>> {
        let former = current::get();
        match former {
            Some(engine) if !engine.has_ended() => return Ok(engine),
            _ => {}
        }
        let new = Arc::new(Self::open(former.is_some())?);
        if let Some(other) = current::replace(former.as_ref(), &new) {
            // Another thread was faster.
            return Ok(other);
        }
        fork::watch(&new.descriptors());
        match &*new {
            Self::Embedded(_) => {
                exit::watch();
                progress::start(new.clone())?;
            }
            Self::Attached(_) => Attached::start(new.clone())?,
        }
        Ok(new)
    }

    /// Returns `true` if the daemon that this process was attached to has ended.
    pub(crate) fn has_lost_daemon() -> bool {
        current::get().is_some_and(|engine| engine.has_ended())
    }

    /// Returns `true` if the engine is that of a parent, which a child of `fork` may neither use nor free.
    pub(crate) fn is_inherited(&self) -> bool {
        match self {
            Self::Embedded(_) => false,
            Self::Attached(attached) => attached.is_inherited(),
        }
    }

    /// Returns `true` if the daemon has ended, or has ended this process's device.
    fn has_ended(&self) -> bool {
        match self {
            Self::Embedded(_) => false,
            Self::Attached(attached) => attached.has_ended(),
        }
    }

    /// Opens an engine; `again` if this process had one whose daemon has ended, which may be starting.
    fn open(again: bool) -> Outcome<Self> {
        match DEVICE.location() {
            Location::Attached(name) => Attached::open(name, again).map(Self::Attached),
            Location::Guest(name) => Attached::open_in_guest(name).map(Self::Attached),
            Location::Embedded => Embedded::open().map(Self::Embedded),
        }
    }

    /// Returns the descriptors that a child of `fork` must close.
    fn descriptors(&self) -> Vec<std::os::fd::RawFd> {
        match self {
            Self::Embedded(embedded) => embedded.descriptors(),
            Self::Attached(attached) => attached.descriptors(),
        }
    }
}

impl Host {
    /// Opens a device with these limits, and sockets on these addresses of this host, of which a turn reads within
    /// `budget`; with `neighbours` also shared memory with other processes of the host, for a device that uses memory of
    /// this process only.
    ///
    /// # Errors
    /// The kernel has no more sockets, or no port is free.
    pub(crate) fn open(
        addresses: &[Address],
        limits: Limits,
        budget: Budget,
        neighbours: bool,
        settings: &Settings,
    ) -> Outcome<Self> {
        let planned = Planned::from_environment()?;
        let encryption = encryption(&settings.encryption)?;
        let transport = transport(addresses, planned.paths(), &settings.transport);
        let transport = reserve_overhead(transport, &encryption);
        let label = settings.transport.label(&transport);
        let mut described = settings.transport.describe(&transport);
        described.extend(describe_encryption(&encryption));
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.ip).collect();
        let shown = Shown::open(addresses.first().copied(), &label, weft_udp::Clock.now());
        let key_log = settings.encryption.open_key_log().map_err(refuse)?;
        let seals = Seals::new(encryption, random()?);
        let is_on = seals.is_on();
        let wire = settings.transport.wire.unwrap_or_default();
        let links = Links::open(&addresses, transport.paths, transport.mtu, wire, &planned)
            .map_err(Errno::from_socket)?;
        let share = links.share();
        let mut driver = Driver::new(links, seals, budget);
        driver.key_log = key_log;
        let port = port_of(u32::from(share) << 16);
        let endpoint = EndpointConfig {
            transport,
            receive_port: port,
            thread_id: 0,
            accept: true,
            max_connections: 1 << 17,
        };
        let seed = Seed(u64::from_le_bytes(random()?));
        let limits = settings.held.apply(limits);
        let device = weft_rnic::Device::new(limits, endpoint, seed, Secret::new(random()?));
        let device = device.map_err(|_| Errno(libc::EINVAL))?;
        // `Links::push` chooses a socket by the peer's address and the path alone.
        let device = device.sharing_host(share).sharing_ports();
        let device = if is_on { device.with_ended() } else { device };
        // A capture shows only packets on the network.
        let captures = std::env::var_os("WEFT_CAPTURE").is_some();
        let neighbours = if neighbours && settings.same_host != Some(false) && !captures {
            Neighbours::open(port, addresses).map_err(Errno::from)?
        } else {
            Neighbours::none().map_err(Errno::from)?
        };
        let mut host = Self::new(device, driver, neighbours, shown);
        host.transport = described;
        Ok(host)
    }
}

/// Returns limits of the engine that match the attributes that programs see.
pub(crate) fn own_limits() -> Limits {
    let count = |limit: i32| u32::try_from(limit).expect("limits are positive");
    Limits {
        protection_domains: count(limits::PD),
        keys: count(limits::MR) + count(limits::MW),
        completion_queues: count(limits::CQ),
        completions: count(limits::CQE),
        shared_receive_queues: count(limits::SRQ),
        queue_pairs: count(limits::QP),
        work_requests: count(limits::QP_WR),
        scatter_gather: count(limits::SGE),
        inline_bytes: limits::INLINE,
        reads: u8::try_from(limits::RD_ATOM).expect("limits are positive and small"),
        message_bytes: limits::MESSAGE,
        ..Limits::default()
    }
}

/// Returns the transport configuration of the device's connections: the settings, for these addresses' interfaces.
fn transport(
    addresses: &[Address],
    planned: Option<u16>,
    settings: &TransportSettings,
) -> TransportConfig {
    let mtu = mtu_of(addresses, settings.mtu);
    // A plan names the ports that packets leave from, so it overrides a profile.
    let paths = settings.paths.or(planned);
    let set = TransportSettings { paths, ..*settings }.config(PATHS);
    let set = TransportConfig { spray_unit: set.spray_unit.min(burst(mtu)), ..set };
    let mtu = mtu.saturating_sub(HEADERS).max(512);
    let rate = settings.line_rate;
    TransportConfig {
        mtu: u16::try_from(mtu).expect("at most that of Ethernet"),
        line_rate: rate.unwrap_or(set.line_rate),
        base_rtt: rate.map_or(set.base_rtt, |rate| round_trip(&set, rate, mtu)),
        // A request is complete when it is acknowledged, and a program may wait for that.
        ack_delay: Duration::ZERO,
        ..set
    }
}

/// Returns the transport of a device opened in this environment, in rows of name and value.
///
/// # Errors
/// A variable has a value that is not allowed, or the table of planned ports cannot be read.
pub fn describe_transport() -> io::Result<Vec<(String, String)>> {
    let kernel = |Errno(number)| io::Error::from_raw_os_error(number);
    let settings = Settings::from_environment().map_err(kernel)?;
    let planned = Planned::from_environment().map_err(kernel)?;
    let encryption = encryption(&settings.encryption).map_err(kernel)?;
    let transport = transport(&DEVICE.addresses, planned.paths(), &settings.transport);
    let mut rows = settings.transport.describe(&reserve_overhead(transport, &encryption));
    rows.extend(describe_encryption(&encryption));
    Ok(rows)
}

/// Returns the encryption of the device's connections, with the keys from their files.
///
/// # Errors
/// `EINVAL`: a file cannot be read or holds no key; standard error names it.
fn encryption(settings: &EncryptionSettings) -> Outcome<SealConfig> {
    settings.config().map_err(refuse)
}

fn refuse(error: SettingError) -> Errno {
    // The program gets only an error number, which does not name the cause.
    eprintln!("weft: {error}");
    Errno(libc::EINVAL)
}

/// Returns the limits of payload held for peers by a device opened in this environment, in rows of name and value.
///
/// # Errors
/// A variable has a value that is not allowed.
pub fn describe_limits() -> io::Result<Vec<(String, String)>> {
    let kernel = |Errno(number)| io::Error::from_raw_os_error(number);
    let settings = Settings::from_environment().map_err(kernel)?;
    Ok(describe_held(&settings.held.apply(own_limits())))
}

/// Returns the number of packets of this MTU in a burst.
fn burst(mtu: u32) -> u16 {
    u16::try_from(BURST / mtu.saturating_sub(IPV4_UDP).max(1)).unwrap_or(u16::MAX)
}

/// Returns the base round-trip time on a link of this rate: it includes the serialization delay of a burst to one path,
/// which matters on links slower than the transport's default for Ethernet.
fn round_trip(set: &TransportConfig, rate: BitRate, mtu: u32) -> Duration {
    let burst = ByteCount(u64::from(set.spray_unit) * u64::from(mtu));
    set.base_rtt + rate.serialization_delay(burst)
}

/// Returns random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Outcome<[u8; N]> {
    weft_udp::random().map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// The latest possible deadline.
const NEVER: Instant = Instant::FAR_FUTURE;

#[cfg(test)]
mod tests {
    use weft_transport::path;
    use weft_udp::AgentConfig;

    use super::*;

    #[test]
    fn the_transport_has_the_values_of_the_settings() {
        let address = Address { ip: [10, 0, 0, 1].into(), interface: 1, mtu: 1_500 };
        let set = |pairs: &[(&str, &str)]| {
            let mut settings = TransportSettings::default();
            pairs.iter().for_each(|(key, value)| settings.set(key, value).unwrap());
            transport(std::slice::from_ref(&address), None, &settings)
        };
        let default = set(&[]);
        assert_eq!((default.policy, default.paths), (path::Kind::ShortestQueue, 128));
        let stellar = set(&[("profile", "stellar")]);
        assert_eq!((stellar.policy, stellar.paths), (path::Kind::Oblivious, 128));
        let rto = stellar.retransmission.rto_min;
        assert_eq!((rto, stellar.spray_unit), (Duration::from_micros(250), 1));
        assert_eq!(set(&[("profile", "bifrost")]).spray_unit, 44);
        let slow = set(&[("profile", "stellar"), ("line-rate", "200Mbps"), ("paths", "4")]);
        assert_eq!((slow.paths, slow.line_rate), (4, "200Mbps".parse().unwrap()));
        assert!([&default, &stellar, &slow].iter().all(|it| it.mtu == 1_396));
        for config in [default, stellar, slow] {
            assert_eq!(config.validate(), Ok(()));
        }
    }

    #[test]
    fn a_burst_has_fewer_of_longer_packets() {
        assert_eq!([1_500, 4_200, 9_000].map(burst), [44, 15, 7]);
        // `AgentConfig::ethernet` has the value for ordinary packets.
        assert_eq!(AgentConfig::ethernet(1).spray_unit, burst(1_500));
    }
}
