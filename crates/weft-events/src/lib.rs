//! The events of Weft's daemons in their logs, for programs that read them: one table ([`EVENTS`]) of names, fields, levels
//! and pages of the runbook, from which `docs/reference/events.md` is generated.
//!
//! Daemons call it: the overlay, the route controller, the device's, the monitor, servers with TLS. It never knows where a log goes; `weft-cli` starts
//! the log as text, as JSON or in the journal. An event is a structure of the table, and its fields are the table's. Things that
//! come in bursts, such as drops, are one event with a count for each interval, never one for each packet.
//!
//! ```
//! use std::net::IpAddr;
//! use weft_events::{EVENTS, PeerLost};
//!
//! PeerLost { peer: IpAddr::from([10, 0, 0, 2]) }.emit();
//! let row = EVENTS.iter().find(|row| row.name == "peer-lost").unwrap();
//! assert_eq!((row.level, row.fields[0].name, row.page), ("WARN", "peer", "peer-lost"));
//! ```
#![forbid(unsafe_code)]

mod rate;
mod table;
mod value;

pub use rate::per_second;
pub use table::*;

/// A row of the table of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// The value of the field `event`.
    pub name: &'static str,
    /// The level in the log: `INFO` or `WARN`.
    pub level: &'static str,
    /// The event's meaning.
    pub about: &'static str,
    /// The message, for people.
    pub message: &'static str,
    /// The fields beside `event` and the message.
    pub fields: &'static [FieldRow],
    /// The page of the runbook that says what to do, without its extension.
    pub page: &'static str,
}

/// A field of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRow {
    /// The field's name.
    pub name: &'static str,
    /// The value's meaning and unit.
    pub about: &'static str,
}
