//! The attributes of routes: their framing (RFC 4271, section 4.3) and the values that EVPN needs.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use crate::Notification;
use crate::notification::code;
use crate::open::FAMILY;
use crate::reader::Reader;
use crate::route::RouteTarget;

/// Types of attributes.
pub(crate) mod kind {
    pub(crate) const ORIGIN: u8 = 1;
    pub(crate) const AS_PATH: u8 = 2;
    pub(crate) const NEXT_HOP: u8 = 3;
    pub(crate) const MULTI_EXIT_DISC: u8 = 4;
    pub(crate) const LOCAL_PREF: u8 = 5;
    pub(crate) const ORIGINATOR_ID: u8 = 9;
    pub(crate) const CLUSTER_LIST: u8 = 10;
    pub(crate) const MP_REACH: u8 = 14;
    pub(crate) const MP_UNREACH: u8 = 15;
    pub(crate) const EXTENDED_COMMUNITIES: u8 = 16;
    /// RFC 6514, section 5.
    pub(crate) const PMSI_TUNNEL: u8 = 22;
}

/// Flags of attributes.
pub(crate) mod flag {
    pub(crate) const OPTIONAL: u8 = 0x80;
    pub(crate) const TRANSITIVE: u8 = 0x40;
    /// The length has two octets.
    pub(crate) const EXTENDED_LENGTH: u8 = 0x10;
}

/// The flags that an attribute must have, of those two that say its kind.
pub(crate) const fn flags_of(kind: u8) -> Option<u8> {
    match kind {
        kind::ORIGIN | kind::AS_PATH | kind::NEXT_HOP | kind::LOCAL_PREF => Some(flag::TRANSITIVE),
        kind::MULTI_EXIT_DISC | kind::ORIGINATOR_ID | kind::CLUSTER_LIST => Some(flag::OPTIONAL),
        kind::MP_REACH | kind::MP_UNREACH => Some(flag::OPTIONAL),
        kind::EXTENDED_COMMUNITIES | kind::PMSI_TUNNEL => Some(flag::OPTIONAL | flag::TRANSITIVE),
        _ => None,
    }
}

/// Tunnel type of VXLAN in the encapsulation community (RFC 8365, section 11).
const VXLAN: u16 = 8;
/// Tunnel type of a PMSI that is ingress replication: each sender copies (RFC 6514, section 5).
const INGRESS_REPLICATION: u8 = 6;
/// The flag of the mobility community of a machine that does not move (RFC 7432, section 7.7).
const STICKY: u8 = 1;
/// Maximum number of route targets of a route. A route with more is refused: what is kept of each route is limited.
pub const MAX_TARGETS: usize = 32;

/// An attribute with its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute<'a> {
    pub(crate) flags: u8,
    pub(crate) kind: u8,
    pub(crate) value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Reads the next attribute; `None` if its length leads past the end.
    pub(crate) fn next(reader: &mut Reader<'a>) -> Option<Self> {
        let (flags, kind) = (reader.u8()?, reader.u8()?);
        let len = match flags & flag::EXTENDED_LENGTH {
            0 => usize::from(reader.u8()?),
            _ => usize::from(reader.u16()?),
        };
        Some(Self { flags, kind, value: reader.take(len)? })
    }
}

/// Appends an attribute whose value `write` appends.
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let flags = flags_of(kind).expect("attributes of ours are known");
    out.extend([flags | flag::EXTENDED_LENGTH, kind, 0, 0]);
    let start = out.len();
    write(out);
    let len = u16::try_from(out.len() - start).expect("shorter than a message");
    out[start - 2..start].copy_from_slice(&len.to_be_bytes());
}

/// The attributes of a route that decide on its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The host that has the machine, or receives the broadcasts.
    pub next_hop: IpAddr,
    /// The networks that import the route.
    pub targets: Vec<RouteTarget>,
    /// The number of the machine's move (RFC 7432, section 15).
    pub sequence: u32,
    /// `true` if the machine does not move.
    pub is_sticky: bool,
    /// `false` if the host expects another encapsulation than VXLAN.
    pub is_vxlan: bool,
    /// The number of the network whose broadcasts the host receives as copies.
    pub flood_vni: Option<u32>,
}

impl Attributes {
    /// Returns the attributes of a route to `next_hop` without communities.
    pub const fn new(next_hop: IpAddr) -> Self {
        let targets = Vec::new();
        Self { next_hop, targets, sequence: 0, is_sticky: false, is_vxlan: true, flood_vni: None }
    }

    /// Appends the extended communities.
    pub(crate) fn emit_communities(&self, out: &mut Vec<u8>) {
        self.targets.iter().for_each(|target| out.extend(target.0));
        out.extend([3, 0x0c, 0, 0, 0, 0]);
        out.extend(VXLAN.to_be_bytes());
        if self.sequence > 0 || self.is_sticky {
            out.extend([6, 0, if self.is_sticky { STICKY } else { 0 }, 0]);
            out.extend(self.sequence.to_be_bytes());
        }
    }

    /// Reads extended communities; unknown ones are ignored.
    pub(crate) fn read_communities(&mut self, value: &[u8]) -> Result<(), Notification> {
        let (communities, rest) = value.as_chunks::<8>();
        if !rest.is_empty() || communities.is_empty() {
            return Err(Notification::new(code::UPDATE, 9));
        }
        let mut encapsulations = communities.iter().filter(|it| it[..2] == [3, 0x0c]).peekable();
        self.is_vxlan = encapsulations.peek().is_none()
            || encapsulations.any(|it| it[6..] == VXLAN.to_be_bytes());
        for &community in communities {
            match community {
                [0..=2, RouteTarget::SUBTYPE, ..] => self.targets.push(RouteTarget(community)),
                [6, 0, flags, _, a, b, c, d] => {
                    self.sequence = u32::from_be_bytes([a, b, c, d]);
                    self.is_sticky = flags & STICKY != 0;
                }
                _ => {}
            }
        }
        match self.targets.len() {
            0..=MAX_TARGETS => Ok(()),
            _ => Err(Notification::new(code::UPDATE, 9)),
        }
    }

    /// Appends the tunnel of a network's broadcasts to the host at `endpoint`.
    pub(crate) fn emit_tunnel(vni: u32, endpoint: IpAddr, out: &mut Vec<u8>) {
        out.extend([0, INGRESS_REPLICATION]);
        out.extend(&vni.to_be_bytes()[1..]);
        match endpoint {
            IpAddr::V4(v4) => out.extend(v4.octets()),
            IpAddr::V6(v6) => out.extend(v6.octets()),
        }
    }

    /// Reads the tunnel of a network's broadcasts; other kinds than copies are ignored.
    pub(crate) fn read_tunnel(&mut self, value: &[u8]) -> Result<(), Notification> {
        let mut reader = Reader(value);
        let malformed = || Notification::new(code::UPDATE, 9);
        reader.u8().ok_or_else(malformed)?;
        let kind = reader.u8().ok_or_else(malformed)?;
        let vni = reader.u24().ok_or_else(malformed)?;
        if kind == INGRESS_REPLICATION {
            if ![4, 16].contains(&reader.len()) {
                return Err(malformed());
            }
            self.flood_vni = Some(vni);
        }
        Ok(())
    }
}

/// Returns `true` if a path of AS numbers of four octets contains `asn`.
pub(crate) fn path_contains(value: &[u8], asn: u32) -> Result<bool, Notification> {
    let malformed = || Notification::new(code::UPDATE, 11);
    let mut reader = Reader(value);
    let mut contains = false;
    while let Some(kind) = reader.u8() {
        let count = reader.u8().filter(|&count| count > 0 && (1..=4).contains(&kind));
        for _ in 0..count.ok_or_else(malformed)? {
            contains |= reader.u32().ok_or_else(malformed)? == asn;
        }
    }
    Ok(contains)
}

/// The routes that an attribute reaches: the next hop, and the bytes of the routes.
pub(crate) struct Reached<'a> {
    pub(crate) next_hop: IpAddr,
    pub(crate) routes: &'a [u8],
}

/// Reads `MP_REACH_NLRI` (RFC 4760, section 3); `None` for other families than EVPN.
pub(crate) fn parse_reached(value: &[u8]) -> Result<Option<Reached<'_>>, Notification> {
    let malformed = || Notification::new(code::UPDATE, 9);
    let mut reader = Reader(value);
    let family = reader.array::<3>().ok_or_else(malformed)?;
    let next_hop = Reader(reader.field().ok_or_else(malformed)?);
    reader.u8().ok_or_else(malformed)?;
    if family != FAMILY {
        return Ok(None);
    }
    let next_hop = match next_hop.0 {
        &[a, b, c, d] => Ipv4Addr::new(a, b, c, d).into(),
        bytes => <[u8; 16]>::try_from(bytes).map_err(|_| malformed())?.into(),
    };
    Ok(Some(Reached { next_hop, routes: reader.0 }))
}

/// Reads `MP_UNREACH_NLRI` (RFC 4760, section 4): the bytes of the routes; `None` for other families than EVPN.
pub(crate) fn parse_unreached(value: &[u8]) -> Result<Option<&[u8]>, Notification> {
    let mut reader = Reader(value);
    let family = reader.array::<3>().ok_or_else(|| Notification::new(code::UPDATE, 9))?;
    Ok((family == FAMILY).then_some(reader.0))
}
