//! Priority flow control (IEEE 802.1Qbb): a switch whose buffer a link fills too much has the other
//! end of that link pause its data, so that nothing is lost.
//!
//! A pause lasts for a time the frame names, is asked for again before it is over, and ends early
//! when the frame names no time. So a pause outlives neither a switch nor a link that fails.

use serde::{Deserialize, Serialize};
use weft_topo::{LinkId, NodeId, Topology};
use weft_units::{BitRate, ByteCount, Duration};

use super::buffer::Accounts;
use super::{Kind, PortConfig, PortError};
use crate::link::Pace;
use crate::time::{SimSpan, SimTime};

/// Bytes of a pause frame.
pub const FRAME: u16 = 64;

/// Whether and how switches have their neighbours pause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PfcConfig {
    /// Whether they do. Then no buffer refuses data.
    pub enabled: bool,
    /// A link's other end pauses when the link has brought this much of what is left of the pool.
    pub alpha: f64,
    /// How long a pause lasts on a link of 100 Gb/s; on others in proportion, as frames name it in
    /// bit times.
    pub pause: Duration,
    /// Bytes set aside for what is on a link into a switch when its other end is told to pause.
    /// Left out: twice what the link holds, two packets, the packet that was too much, the frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<ByteCount>,
}

impl Default for PfcConfig {
    /// Alpha and pause of ConWeave's simulations.
    fn default() -> Self {
        let pause = Duration::from_micros(5);
        Self { enabled: false, alpha: 0.0625, pause, headroom: None }
    }
}

/// What hosts may send: it decides how much headroom a link needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Bytes of the largest packet.
    pub largest: u16,
    /// By how much a host's packet may be late.
    pub jitter: SimSpan,
}

impl Default for Sending {
    fn default() -> Self {
        Self { largest: 9_216, jitter: SimSpan::ZERO }
    }
}

impl PfcConfig {
    fn pause_bytes(&self) -> u64 {
        let reference = Pace::new(BitRate::gbps(100).expect("not zero"));
        reference.bytes(self.pause.into())
    }

    /// Bytes a link needs for what arrives after its other end was told to pause.
    fn headroom(&self, topology: &Topology, sending: Sending, link: LinkId) -> u64 {
        let link = topology.link(link);
        let pace = Pace::new(link.rate);
        let propagation = SimSpan::from(link.propagation);
        let least = || {
            let late = if topology.is_host(link.from) { sending.jitter } else { SimSpan::ZERO };
            let on_the_way = pace.bytes(propagation + propagation + late) + 1;
            on_the_way + 3 * u64::from(sending.largest) + u64::from(FRAME)
        };
        self.headroom.map_or_else(least, |bytes| bytes.0)
    }

    /// The accounts of all switches, by the links that fill them; `None` if nobody pauses.
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

    /// Bytes that a switch's ports and the links into it have for themselves.
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

    /// Whether it can work.
    ///
    /// # Errors
    /// It cannot.
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

/// What switches have asked of their neighbours.
#[derive(Debug)]
pub struct Asking {
    pause_bytes: u64,
    /// By link into a switch, when it will be asked for again; never, where nothing is.
    again_at: Vec<SimTime>,
}

impl Asking {
    pub(crate) fn new(config: &PfcConfig, topology: &Topology) -> Self {
        let again_at = topology.link_ids().map(|_| SimTime::FAR_FUTURE).collect();
        Self { pause_bytes: config.pause_bytes(), again_at }
    }

    /// Whether the other end of a link is to pause.
    #[inline]
    pub fn asks(&self, link: LinkId) -> bool {
        self.again_at[link.index()] != SimTime::FAR_FUTURE
    }

    /// When it will be asked again, if it is.
    pub fn again_at(&self, link: LinkId) -> SimTime {
        self.again_at[link.index()]
    }

    /// Asks for a pause of the length this gives; it is to be asked for again after half of it.
    pub fn ask(&mut self, now: SimTime, link: LinkId, pace: Pace) -> (SimSpan, SimTime) {
        let span = pace.span(self.pause_bytes);
        let again = now + SimSpan::from_picos(span.as_picos() / 2);
        self.again_at[link.index()] = again;
        (span, again)
    }

    /// Asks no longer.
    pub fn stop(&mut self, link: LinkId) {
        self.again_at[link.index()] = SimTime::FAR_FUTURE;
    }
}

/// What a port was told, and for how long it obeyed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause {
    since: SimTime,
    until: SimTime,
    before: SimSpan,
    /// Frames that asked for a pause.
    pub frames: u64,
    /// Frames that ended one.
    pub resumes: u64,
}

impl Pause {
    /// A frame came that names `span`.
    pub fn set(&mut self, now: SimTime, span: SimSpan) {
        self.before = self.total(now);
        (self.since, self.until) = (now, now + span);
        match span {
            SimSpan::ZERO => self.resumes += 1,
            _ => self.frames += 1,
        }
    }

    /// Whether data must wait.
    #[inline]
    pub fn holds(&self, now: SimTime) -> bool {
        now < self.until
    }

    /// When it is over, unless a frame comes.
    #[inline]
    pub fn until(&self) -> SimTime {
        self.until
    }

    /// Time paused so far.
    pub fn total(&self, now: SimTime) -> SimSpan {
        self.before + self.until.min(now).since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use weft_topo::build::LeafSpine;

    use super::*;

    #[test]
    fn paused_time_counts_what_was_obeyed_once() {
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
    fn headroom_is_twice_the_link_and_what_cannot_be_stopped() {
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
    fn what_cannot_work_is_refused() {
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
