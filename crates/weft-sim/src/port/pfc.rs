//! Priority flow control (IEEE 802.1Qbb): a switch whose buffer a link fills too much pauses the data of the link's
//! other end, so that no packet is lost.
//!
//! A pause frame names the span of the pause; the switch refreshes the pause before it ends, and ends it early with a
//! frame of span zero. So a pause outlives neither a switch nor a link that fails.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, NodeId, Topology};
use weft_units::{BitRate, ByteCount, Duration};

use super::buffer::Accounts;
use super::{Kind, PortConfig, PortError};
use crate::pace::Pace;
use crate::time::{SimSpan, SimTime};

/// Bytes of a pause frame.
pub const FRAME: u16 = 64;

/// Configuration of priority flow control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PfcConfig {
    /// `true` if switches pause their neighbours. Then no buffer refuses data.
    pub enabled: bool,
    /// The factor of the pool's free bytes above which a link's other end must pause.
    pub alpha: f64,
    /// The span of a pause on a link of 100 Gb/s; on others in proportion, as frames name it in bit times.
    pub pause: Duration,
    /// Bytes reserved for packets on a link into a switch when its other end must pause. Default: twice the link's
    /// capacity in flight, two packets, the packet that exceeded the threshold, and the pause frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<ByteCount>,
}

impl Default for PfcConfig {
    /// Returns alpha and pause of ConWeave's simulations.
    fn default() -> Self {
        let pause = Duration::from_micros(5);
        Self { enabled: false, alpha: 0.0625, pause, headroom: None }
    }
}

/// The limits of hosts' packets, which decide the headroom that a link needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Bytes of the largest packet.
    pub largest: u16,
    /// Maximum delay of a host's packet by jitter.
    pub jitter: SimSpan,
}

impl Default for Sending {
    fn default() -> Self {
        Self { largest: 9_216, jitter: SimSpan::ZERO }
    }
}

impl PfcConfig {
    /// Returns the length of a pause in bytes, the same at any rate.
    fn pause_bytes(&self) -> u64 {
        let reference = Pace::new(BitRate::gbps(100).expect("not zero"));
        reference.bytes(self.pause.into())
    }

    /// Returns the bytes that a link needs for packets that arrive after its other end was paused.
    fn headroom(&self, topology: &Topology, sending: Sending, link: LinkId) -> u64 {
        let link = topology.link(link);
        let pace = Pace::new(link.rate);
        let propagation = SimSpan::from(link.propagation);
        let default = || {
            let jitter = if topology.is_host(link.from) { sending.jitter } else { SimSpan::ZERO };
            let on_the_way = pace.bytes(propagation + propagation + jitter) + 1;
            on_the_way + 3 * u64::from(sending.largest) + u64::from(FRAME)
        };
        self.headroom.map_or_else(default, |bytes| bytes.0)
    }

    /// Returns the accounts of all switches, by ingress link; `None` if pauses are disabled.
    pub(crate) fn accounts(
        &self,
        topology: &Topology,
        port: &PortConfig,
        buffer: ByteCount,
        sending: Sending,
    ) -> Option<Accounts> {
        let headroom = |link| self.headroom(topology, sending, link);
        self.enabled.then(|| {
            Accounts::new(topology, buffer.0, self.alpha, port.reserved.0, Some(&headroom))
        })
    }

    /// Returns the bytes reserved for a switch's ports and the links into it.
    pub(crate) fn set_aside(
        &self,
        topology: &Topology,
        port: &PortConfig,
        sending: Sending,
        switch: NodeId,
    ) -> u64 {
        let headroom = |link| if self.enabled { self.headroom(topology, sending, link) } else { 0 };
        let ports = topology.ports(switch).iter();
        ports.map(|link| port.reserved.0 + headroom(link.reverse())).sum()
    }

    /// Checks that the configuration can work.
    ///
    /// # Errors
    /// The ports are `fifo`, the reserves exceed the buffer, or a pause is too short.
    pub fn check(
        &self,
        topology: &Topology,
        port: &PortConfig,
        buffer: ByteCount,
        sending: Sending,
    ) -> Result<(), PortError> {
        let (bytes, largest) = (self.pause_bytes(), sending.largest);
        match (self.enabled, port.kind) {
            (false, Kind::Fifo) => return Ok(()),
            (true, Kind::Fifo) => return Err(PortError::CannotPause),
            (true, _) if bytes < 4 * u64::from(largest) => {
                return Err(PortError::PauseTooShort { bytes, largest });
            }
            _ => {}
        }
        for switch in topology.switch_ids() {
            let (ports, size) = (topology.ports(switch).len(), buffer.0);
            let needed = self.set_aside(topology, port, sending, switch);
            if needed > size {
                return Err(PortError::BufferTooSmall { switch: switch.0, ports, needed, size });
            }
        }
        Ok(())
    }
}

/// The pauses that switches have requested.
#[derive(Debug)]
pub struct PauseRequests {
    pause_bytes: u64,
    /// The time of the next refresh by link into a switch; the far future if there is no pause.
    refresh_at: Vec<SimTime>,
}

impl PauseRequests {
    pub(crate) fn new(config: &PfcConfig, topology: &Topology) -> Self {
        let refresh_at = topology.link_ids().map(|_| SimTime::FAR_FUTURE).collect();
        Self { pause_bytes: config.pause_bytes(), refresh_at }
    }

    /// Returns `true` if the other end of a link is paused.
    #[inline]
    pub fn is_requested(&self, link: LinkId) -> bool {
        self.refresh_at[link.index()] != SimTime::FAR_FUTURE
    }

    /// Returns the time of the next refresh.
    pub fn refresh_at(&self, link: LinkId) -> SimTime {
        self.refresh_at[link.index()]
    }

    /// Starts or refreshes a pause; returns its span, and the time of the next refresh, half a span later.
    pub fn request(&mut self, now: SimTime, link: LinkId, pace: Pace) -> (SimSpan, SimTime) {
        let span = pace.span(self.pause_bytes);
        let refresh_at = now + SimSpan::from_picos(span.as_picos() / 2);
        self.refresh_at[link.index()] = refresh_at;
        (span, refresh_at)
    }

    /// Ends the requests for a pause.
    pub fn stop(&mut self, link: LinkId) {
        self.refresh_at[link.index()] = SimTime::FAR_FUTURE;
    }
}

/// A pause frame that a port received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseFrame {
    /// The time of its arrival.
    pub at: SimTime,
    /// The link on which the port sends.
    pub link: LinkId,
    /// The span of the requested pause; zero ends one.
    pub span: SimSpan,
}

/// The requested pause of a port, and the time it has been paused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause {
    since: SimTime,
    until: SimTime,
    before: SimSpan,
    /// Frames that requested a pause.
    pub frames: u64,
    /// Frames that ended one.
    pub resumes: u64,
}

impl Pause {
    /// Handles a pause frame of this span.
    pub fn set(&mut self, now: SimTime, span: SimSpan) {
        self.before = self.total(now);
        (self.since, self.until) = (now, now + span);
        match span {
            SimSpan::ZERO => self.resumes += 1,
            _ => self.frames += 1,
        }
    }

    /// Returns `true` if data must wait.
    #[inline]
    pub fn holds(&self, now: SimTime) -> bool {
        now < self.until
    }

    /// Returns the end of the pause, unless a frame changes it.
    #[inline]
    pub fn until(&self) -> SimTime {
        self.until
    }

    /// Returns the time paused so far.
    pub fn total(&self, now: SimTime) -> SimSpan {
        self.before + self.until.min(now).since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use weft_topo::build::LeafSpine;

    use super::*;

    #[test]
    fn paused_time_counts_overlapping_pauses_once() {
        let micros = |count: u64| SimTime::from_picos(count * 1_000_000);
        let (five, mut pause) = (SimSpan::from_picos(5_000_000), Pause::default());
        assert!(!pause.holds(SimTime::EPOCH));
        pause.set(micros(10), five);
        pause.set(micros(12), five);
        assert_eq!(pause.total(micros(14)).as_picos(), 4_000_000);
        assert!(pause.holds(micros(16)) && !pause.holds(micros(17)));
        pause.set(micros(15), SimSpan::ZERO);
        assert!(!pause.holds(micros(15)));
        assert_eq!(pause.total(micros(90)).as_picos(), 5_000_000);
        pause.set(micros(100), five);
        assert_eq!(pause.total(micros(200)).as_picos(), 10_000_000);
        assert_eq!((pause.frames, pause.resumes), (3, 1));
    }

    #[test]
    fn headroom_is_twice_the_links_capacity_and_the_packets_that_cannot_be_stopped() {
        let topology = LeafSpine::default().build().unwrap();
        let sending = Sending { largest: 1_048, jitter: SimSpan::from_picos(100_000) };
        let config = PfcConfig { enabled: true, ..PfcConfig::default() };
        let of = |from, to| {
            let (from, to) = (NodeId(from), NodeId(to));
            let out = |link: &&LinkId| topology.link(**link).to == to;
            let link = *topology.ports(from).iter().find(out).unwrap();
            let propagation = topology.link(link).propagation.as_nanos();
            (config.headroom(&topology, sending, link), 2 * propagation * 100 / 8)
        };
        let (leaf, spine) = (128, 128 + 8);
        let (uplink, on_the_way) = of(leaf, spine);
        assert_eq!(uplink, on_the_way + 1 + 3 * 1_048 + 64);
        assert_eq!(of(0, leaf).0, of(0, leaf).1 + 1_250 + 1 + 3 * 1_048 + 64);
    }

    #[test]
    fn an_unworkable_configuration_is_refused() {
        let topology = LeafSpine::default().build().unwrap();
        let port = PortConfig { kind: Kind::Priority, ..PortConfig::default() };
        let (config, sending) =
            (PfcConfig { enabled: true, ..PfcConfig::default() }, Sending::default());
        let check = |config: &PfcConfig, port: &PortConfig, size| {
            config.check(&topology, port, ByteCount(size), sending)
        };
        assert_eq!(check(&config, &port, 9_437_184), Ok(()));
        assert_eq!(check(&config, &PortConfig::default(), 9_437_184), Err(PortError::CannotPause));
        let short = PfcConfig { pause: Duration::from_micros(2), ..config.clone() };
        let too_short = Err(PortError::PauseTooShort { bytes: 25_000, largest: 9_216 });
        assert_eq!(check(&short, &port, 9_437_184), too_short);
        assert!(matches!(check(&config, &port, 100_000), Err(PortError::BufferTooSmall { .. })));
    }
}
