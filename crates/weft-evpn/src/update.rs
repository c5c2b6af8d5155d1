//! UPDATE: routes that a neighbour announces and withdraws (RFC 4271, section 4.3), with the revised handling of errors
//! (RFC 7606): a bad attribute withdraws the routes of its message, and only a message whose routes cannot be found ends the
//! session.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use crate::Notification;
use crate::attribute::{self, Attribute, Attributes, flag, kind};
use crate::message::{self, Kind};
use crate::notification::code;
use crate::open::FAMILY;
use crate::reader::Reader;
use crate::route::{Nlri, RouteKey};

/// The facts on a session that decide how its messages are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The AS number of this speaker.
    pub asn: u32,
    /// The BGP identifier of this speaker.
    pub router_id: Ipv4Addr,
    /// `true` if the neighbour is in the same AS.
    pub is_internal: bool,
}

/// The content of an UPDATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The routes that are withdrawn, among them those of a message with a fault and those that return to this speaker.
    pub withdrawn: Vec<RouteKey>,
    /// The routes that are announced.
    pub announced: Vec<Nlri>,
    /// The attributes of the announced routes.
    pub attributes: Attributes,
    /// The fault for which announced routes count as withdrawn.
    pub fault: Option<Notification>,
}

/// An UPDATE of which some attributes have been read.
struct Parsed {
    update: Update,
    seen: [bool; 256],
    /// `true` if this speaker sent the routes, and they return.
    is_loop: bool,
}

impl Update {
    /// Reads the body of an UPDATE. Routes of other families are ignored.
    ///
    /// # Errors
    /// The notification that ends the session.
    pub fn parse(body: &[u8], context: &Context) -> Result<Self, Notification> {
        let malformed = || Notification::new(code::UPDATE, 1);
        let mut reader = Reader(body);
        let withdrawn = reader.u16().ok_or_else(malformed)?;
        reader.take(withdrawn.into()).ok_or_else(malformed)?;
        let len = reader.u16().ok_or_else(malformed)?;
        let attributes = reader.take(len.into()).ok_or_else(malformed)?;
        let mut parsed = Parsed::new();
        parsed.read_all(Reader(attributes), context)?;
        parsed.finish(context)
    }
}

impl Parsed {
    fn new() -> Self {
        let attributes = Attributes::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let update =
            Update { withdrawn: Vec::new(), announced: Vec::new(), attributes, fault: None };
        Self { update, seen: [false; 256], is_loop: false }
    }

    fn read_all(&mut self, mut reader: Reader<'_>, context: &Context) -> Result<(), Notification> {
        while !reader.is_empty() {
            let Some(attribute) = Attribute::next(&mut reader) else {
                self.withdraw(Notification::new(code::UPDATE, 1));
                return Ok(());
            };
            let is_first = !core::mem::replace(&mut self.seen[usize::from(attribute.kind)], true);
            match attribute.kind {
                // RFC 7606, section 3 (g): of other attributes the first one counts.
                kind::MP_REACH | kind::MP_UNREACH if !is_first => {
                    return Err(Notification::new(code::UPDATE, 1));
                }
                _ if !is_first => {}
                kind::MP_REACH => self.read_reached(attribute.value)?,
                kind::MP_UNREACH => self.read_unreached(attribute.value)?,
                _ => self.read(&attribute, context)?,
            }
            let conflicts =
                |flags| (attribute.flags ^ flags) & (flag::OPTIONAL | flag::TRANSITIVE) != 0;
            if attribute::flags_of(attribute.kind).is_some_and(conflicts) {
                self.withdraw(Notification::with(
                    code::UPDATE,
                    4,
                    &[attribute.flags, attribute.kind],
                ));
            }
        }
        Ok(())
    }

    /// Records a fault: the announced routes count as withdrawn.
    fn withdraw(&mut self, fault: Notification) {
        self.update.fault.get_or_insert(fault);
    }

    fn read_reached(&mut self, value: &[u8]) -> Result<(), Notification> {
        let Some(reached) = attribute::parse_reached(value)? else { return Ok(()) };
        let routes = Nlri::parse_all(reached.routes);
        self.update.announced = routes.ok_or_else(|| Notification::new(code::UPDATE, 10))?;
        self.update.attributes.next_hop = reached.next_hop;
        Ok(())
    }

    fn read_unreached(&mut self, value: &[u8]) -> Result<(), Notification> {
        let Some(routes) = attribute::parse_unreached(value)? else { return Ok(()) };
        let routes = Nlri::parse_all(routes).ok_or_else(|| Notification::new(code::UPDATE, 10))?;
        self.update.withdrawn.extend(routes.iter().map(|route| route.key));
        Ok(())
    }

    /// Reads an attribute without routes.
    fn read(&mut self, attribute: &Attribute<'_>, context: &Context) -> Result<(), Notification> {
        let value = attribute.value;
        let attributes = &mut self.update.attributes;
        let length = || Notification::with(code::UPDATE, 5, &[attribute.flags, attribute.kind]);
        let check = |is_right: bool| if is_right { Ok(()) } else { Err(length()) };
        let read = match attribute.kind {
            kind::ORIGIN if value.len() == 1 && value[0] > 2 => {
                Err(Notification::with(code::UPDATE, 6, value))
            }
            kind::ORIGIN => check(value.len() == 1),
            kind::AS_PATH => attribute::path_contains(value, context.asn)
                .map(|contains| self.is_loop |= contains),
            kind::NEXT_HOP | kind::MULTI_EXIT_DISC => check(value.len() == 4),
            // RFC 7606, sections 7.5, 7.9 and 7.10: from another AS these are discarded.
            kind::LOCAL_PREF | kind::ORIGINATOR_ID | kind::CLUSTER_LIST if !context.is_internal => {
                Ok(())
            }
            kind::LOCAL_PREF => check(value.len() == 4),
            kind::ORIGINATOR_ID => {
                // RFC 4456, section 8.
                self.is_loop |= value == context.router_id.octets();
                check(value.len() == 4)
            }
            kind::CLUSTER_LIST => check(!value.is_empty() && value.len().is_multiple_of(4)),
            kind::EXTENDED_COMMUNITIES => attributes.read_communities(value),
            kind::PMSI_TUNNEL => attributes.read_tunnel(value),
            _ if attribute.flags & flag::OPTIONAL == 0 && !is_well_known(attribute.kind) => {
                return Err(Notification::with(
                    code::UPDATE,
                    2,
                    &[attribute.flags, attribute.kind],
                ));
            }
            _ => Ok(()),
        };
        if let Err(fault) = read {
            self.withdraw(fault);
        }
        Ok(())
    }

    fn finish(mut self, context: &Context) -> Result<Update, Notification> {
        if !self.update.announced.is_empty() {
            let mandatory = [kind::ORIGIN, kind::AS_PATH, kind::LOCAL_PREF];
            let mandatory = &mandatory[..if context.is_internal { 3 } else { 2 }];
            let missing = mandatory.iter().find(|&&kind| !self.seen[usize::from(kind)]);
            if let Some(&missing) = missing {
                self.withdraw(Notification::with(code::UPDATE, 3, &[missing]));
            }
        }
        let Self { mut update, seen, is_loop } = self;
        // RFC 7606, section 5.2: the routes of the fault cannot be found.
        if let Some(fault) = &update.fault
            && update.announced.is_empty()
            && !seen[usize::from(kind::MP_UNREACH)]
        {
            return Err(fault.clone());
        }
        if update.fault.is_some() || is_loop {
            update.withdrawn.extend(update.announced.drain(..).map(|route| route.key));
        }
        Ok(update)
    }
}

/// Returns `true` for the well-known attributes that are not read here: `ATOMIC_AGGREGATE`.
const fn is_well_known(kind: u8) -> bool {
    kind == 6
}

/// Appends an UPDATE that announces a route. The routes come first (RFC 7606, section 5.1).
pub(crate) fn announce(nlri: &Nlri, attributes: &Attributes, context: &Context, out: &mut Vec<u8>) {
    update(out, |out| {
        attribute::write(out, kind::MP_REACH, |out| {
            out.extend(FAMILY);
            match attributes.next_hop {
                IpAddr::V4(v4) => {
                    out.push(4);
                    out.extend(v4.octets());
                }
                IpAddr::V6(v6) => {
                    out.push(16);
                    out.extend(v6.octets());
                }
            }
            out.push(0);
            nlri.emit(out);
        });
        attribute::write(out, kind::ORIGIN, |out| out.push(0));
        attribute::write(out, kind::AS_PATH, |out| {
            if !context.is_internal {
                // A sequence of one AS number.
                out.extend([2, 1]);
                out.extend(context.asn.to_be_bytes());
            }
        });
        if context.is_internal {
            attribute::write(out, kind::LOCAL_PREF, |out| out.extend(100u32.to_be_bytes()));
        }
        attribute::write(out, kind::EXTENDED_COMMUNITIES, |out| attributes.emit_communities(out));
        if let Some(vni) = attributes.flood_vni {
            let endpoint = attributes.next_hop;
            attribute::write(out, kind::PMSI_TUNNEL, |out| {
                Attributes::emit_tunnel(vni, endpoint, out);
            });
        }
    });
}

/// Appends an UPDATE that withdraws a route.
pub(crate) fn withdraw(key: RouteKey, out: &mut Vec<u8>) {
    update(out, |out| {
        attribute::write(out, kind::MP_UNREACH, |out| {
            out.extend(FAMILY);
            Nlri { key, label: 0 }.emit(out);
        });
    });
}

/// Appends an UPDATE with attributes alone.
fn update(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    message::write(out, Kind::Update, |out| {
        out.extend([0, 0, 0, 0]);
        let start = out.len();
        write(out);
        let len = u16::try_from(out.len() - start).expect("shorter than a message");
        out[start - 2..start].copy_from_slice(&len.to_be_bytes());
    });
}

#[cfg(test)]
mod tests;
