//! Mirrors: copies of what a tenant sends and receives, for an analyser, in VXLAN without the overlay's recovery
//! (RFC 7348), as any kernel's `vxlan` interface takes them. A mirror sees frames as they pass the port: what the tenant
//! sends also where a policy denies it, of what it is sent only what it receives.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_vpc::{Direction, Plain, PortId, Slot, Token, Vni};
use weft_wire::VxlanHeader;

use crate::config::{ConfigError, value};

/// The mirror of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MirrorSettings {
    /// The analyser's address in the network that carries the overlay.
    pub to: IpAddr,
    /// The analyser's UDP port.
    #[serde(default = "vxlan_port")]
    pub udp_port: u16,
    /// The number of the network in the copies, 24 bits.
    pub vni: u32,
    /// Only what the tenant sends (`egress`) or receives (`ingress`); both without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

const fn vxlan_port() -> u16 {
    VxlanHeader::PORT
}

impl MirrorSettings {
    /// Returns the number of the network in the copies.
    ///
    /// # Errors
    /// The number has more than 24 bits.
    pub fn vni(&self) -> Result<Vni, ConfigError> {
        Vni::new(self.vni).ok_or_else(|| value("port.mirror.vni", self.vni, "0 to 16777215"))
    }
}

/// The mirrors of a thread's ports, and the copies that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    of_ports: BTreeMap<PortId, Mirror>,
    waiting: VecDeque<Copied>,
    /// Bytes of the copies that wait.
    bytes: usize,
}

#[derive(Debug)]
struct Mirror {
    to: SocketAddr,
    vni: Vni,
    direction: Option<Direction>,
    /// The lengths of frames that are arriving for the tenant.
    arriving: BTreeMap<Slot, u32>,
    counts: MirrorCounts,
}

/// Numbers of copied frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorCounts {
    /// Number of frames copied.
    pub copied: u64,
    /// Number of frames that were not copied because too many copies waited.
    pub dropped: u64,
}

/// A copy that waits to be sent.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) plain: Plain,
    /// The frame after its virtio-net header, and that.
    pub(crate) frame: Vec<u8>,
}

/// Largest number of bytes of copies that wait: the tenants' own frames go first.
const MAX_WAITING: usize = 4 << 20;

impl Mirrors {
    /// Sets a port's mirror, or ends it.
    pub(crate) fn set(&mut self, port: PortId, settings: Option<&MirrorSettings>) {
        let (arriving, counts) = (BTreeMap::new(), MirrorCounts::default());
        let mirror = settings.map(|it| Mirror {
            to: SocketAddr::new(it.to, it.udp_port),
            vni: it.vni().expect("checked with the port"),
            direction: it.direction,
            arriving,
            counts,
        });
        match mirror {
            Some(mirror) => drop(self.of_ports.insert(port, mirror)),
            None => drop(self.of_ports.remove(&port)),
        }
    }

    /// Returns the numbers of a port's copies, if it has a mirror.
    pub(crate) fn counts(&self, port: PortId) -> Option<MirrorCounts> {
        self.of_ports.get(&port).map(|mirror| mirror.counts)
    }

    /// Returns `true` if what the tenant of a port sends is copied.
    pub(crate) fn copies_sent(&self, port: PortId) -> bool {
        self.of_ports.get(&port).is_some_and(|it| it.direction != Some(Direction::Ingress))
    }

    /// Records that a frame of `len` bytes for the tenant is assembled in `slot`.
    pub(crate) fn start_frame(&mut self, port: PortId, slot: Slot, len: u32) {
        if let Some(mirror) = self.of_ports.get_mut(&port)
            && mirror.direction != Some(Direction::Egress)
        {
            mirror.arriving.insert(slot, len);
        }
    }

    /// Forgets a frame that is whole or dropped. Returns its length in bytes if its start was recorded.
    pub(crate) fn end_frame(&mut self, port: PortId, slot: Slot) -> Option<u32> {
        self.of_ports.get_mut(&port)?.arriving.remove(&slot)
    }

    /// Keeps a copy of a frame of `len` bytes, which `read` writes, until it is sent.
    pub(crate) fn copy(&mut self, port: PortId, len: u32, read: impl FnOnce(&mut [u8])) {
        let Some(mirror) = self.of_ports.get_mut(&port) else { return };
        let size = len as usize;
        if self.bytes + size > MAX_WAITING {
            mirror.counts.dropped += 1;
            return;
        }
        let mut frame = vec![0; size];
        read(&mut frame);
        mirror.counts.copied += 1;
        self.bytes += size;
        let (vni, token, to) = (mirror.vni, Token(0), vec![mirror.to]);
        let plain = Plain { vni, port, token, len, next: None, to, under: None, is_last: true };
        self.waiting.push_back(Copied { plain, frame });
    }

    /// Returns the next copy to be sent.
    pub(crate) fn pop(&mut self) -> Option<Copied> {
        let copied = self.waiting.pop_front()?;
        self.bytes -= copied.frame.len();
        Some(copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortId = PortId(1);

    fn mirrors(direction: Option<Direction>) -> Mirrors {
        let to = [10, 0, 0, 9].into();
        let settings = MirrorSettings { to, udp_port: 4789, vni: 900, direction };
        let mut mirrors = Mirrors::default();
        mirrors.set(PORT, Some(&settings));
        mirrors
    }

    #[test]
    fn copies_leave_in_order_and_those_beyond_the_room_are_counted() {
        let mut mirrors = mirrors(None);
        let len = 1 << 16;
        let room = u8::try_from(MAX_WAITING >> 16).unwrap();
        for number in 0..room + 3 {
            mirrors.copy(PORT, len, |frame| frame[0] = number);
        }
        let counts = MirrorCounts { copied: room.into(), dropped: 3 };
        assert_eq!(mirrors.counts(PORT), Some(counts));
        for number in 0..room {
            let copied = mirrors.pop().unwrap();
            assert_eq!((copied.frame[0], copied.plain.len), (number, len));
            assert_eq!(copied.plain.to, ["10.0.0.9:4789".parse().unwrap()]);
        }
        assert!(mirrors.pop().is_none());
        mirrors.copy(PORT, len, |_| ());
        assert!(mirrors.pop().is_some(), "there is room again");
    }

    #[test]
    fn a_mirror_of_one_direction_copies_no_other() {
        let slot = Slot(3);
        for (direction, sent, received) in [
            (None, true, Some(60)),
            (Some(Direction::Egress), true, None),
            (Some(Direction::Ingress), false, Some(60)),
        ] {
            let mut mirrors = mirrors(direction);
            mirrors.start_frame(PORT, slot, 60);
            assert_eq!(mirrors.copies_sent(PORT), sent);
            assert_eq!(mirrors.end_frame(PORT, slot), received);
            assert_eq!(mirrors.end_frame(PORT, slot), None);
            mirrors.set(PORT, None);
            assert_eq!((mirrors.copies_sent(PORT), mirrors.counts(PORT)), (false, None));
        }
    }
}
