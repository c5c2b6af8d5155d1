//! NOTIFICATION, the last message of a session: the reason for its end (RFC 4271, section 4.5).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::reader::Reader;

/// The reason for the end of a session, as the two ends tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The error code.
    pub code: u8,
    /// The error subcode.
    pub subcode: u8,
    /// Details that depend on both.
    pub data: Vec<u8>,
}

/// Error codes (RFC 4271, section 4.5).
pub(crate) mod code {
    pub(crate) const HEADER: u8 = 1;
    pub(crate) const OPEN: u8 = 2;
    pub(crate) const UPDATE: u8 = 3;
    pub(crate) const HOLD_TIMER: u8 = 4;
    pub(crate) const STATE_MACHINE: u8 = 5;
    pub(crate) const CEASE: u8 = 6;
}

/// Subcodes of Cease (RFC 4486).
pub(crate) mod cease {
    pub(crate) const MAX_ROUTES: u8 = 1;
    pub(crate) const SHUTDOWN: u8 = 2;
    pub(crate) const REMOVED: u8 = 3;
    pub(crate) const CONFIGURATION: u8 = 6;
}

/// The names of errors: code, subcode, text. Subcode zero names the code.
#[rustfmt::skip]
const NAMES: &[(u8, u8, &str)] = &[
    (1, 0, "message header error"),
    (1, 1, "connection not synchronised"),
    (1, 2, "bad message length"),
    (1, 3, "bad message type"),
    (2, 0, "OPEN message error"),
    (2, 1, "unsupported version number"),
    (2, 2, "bad peer AS"),
    (2, 3, "bad BGP identifier"),
    (2, 4, "unsupported optional parameter"),
    (2, 6, "unacceptable hold time"),
    (2, 7, "unsupported capability"),
    (2, 11, "role mismatch"),
    (3, 0, "UPDATE message error"),
    (3, 1, "malformed attribute list"),
    (3, 2, "unrecognised well-known attribute"),
    (3, 3, "missing well-known attribute"),
    (3, 4, "attribute flags error"),
    (3, 5, "attribute length error"),
    (3, 6, "invalid ORIGIN attribute"),
    (3, 8, "invalid NEXT_HOP attribute"),
    (3, 9, "optional attribute error"),
    (3, 10, "invalid network field"),
    (3, 11, "malformed AS_PATH"),
    (4, 0, "hold timer expired"),
    (5, 0, "finite state machine error"),
    (5, 1, "unexpected message in OpenSent"),
    (5, 2, "unexpected message in OpenConfirm"),
    (5, 3, "unexpected message in Established"),
    (6, 0, "cease"),
    (6, 1, "maximum number of prefixes reached"),
    (6, 2, "administrative shutdown"),
    (6, 3, "peer de-configured"),
    (6, 4, "administrative reset"),
    (6, 5, "connection rejected"),
    (6, 6, "other configuration change"),
    (6, 7, "connection collision resolution"),
    (6, 8, "out of resources"),
    (6, 9, "hard reset"),
    (6, 10, "BFD down"),
    (7, 0, "ROUTE-REFRESH message error"),
];

impl Notification {
    /// Returns a notification without data.
    pub(crate) const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    /// Returns a notification with data, of which 64 bytes are kept.
    pub(crate) fn with(code: u8, subcode: u8, data: &[u8]) -> Self {
        Self { code, subcode, data: data[..data.len().min(64)].to_vec() }
    }

    /// Returns the operator's words in the data (RFC 9003), without control characters; `None` if there are none.
    fn shutdown_text(&self) -> Option<String> {
        let has_text = (self.code, self.subcode) == (code::CEASE, cease::SHUTDOWN)
            || (self.code, self.subcode) == (code::CEASE, 4);
        let text = Reader(&self.data).field().filter(|text| has_text && !text.is_empty())?;
        let text = String::from_utf8_lossy(text);
        Some(text.chars().filter(|letter| !letter.is_control()).collect())
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |subcode| NAMES.iter().find(|row| (row.0, row.1) == (self.code, subcode));
        match (name(self.subcode), name(0)) {
            (Some(row), Some(class)) if self.subcode > 0 => write!(out, "{}: {}", class.2, row.2)?,
            (Some(row), _) => out.write_str(row.2)?,
            (None, Some(class)) => write!(out, "{}, subcode {}", class.2, self.subcode)?,
            (None, None) => write!(out, "error {}, subcode {}", self.code, self.subcode)?,
        }
        match self.shutdown_text() {
            Some(text) => write!(out, " ({text})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_read_as_words() {
        let text = |code, subcode, data: &[u8]| Notification::with(code, subcode, data).to_string();
        assert_eq!(text(2, 2, &[]), "OPEN message error: bad peer AS");
        assert_eq!(text(4, 0, &[]), "hold timer expired");
        assert_eq!(text(6, 99, &[]), "cease, subcode 99");
        assert_eq!(text(99, 3, &[]), "error 99, subcode 3");
        // RFC 9003, section 2: a length and UTF-8.
        let shutdown = text(6, 2, b"\x0bmaintenance");
        assert_eq!(shutdown, "cease: administrative shutdown (maintenance)");
        assert_eq!(text(6, 2, b"\x04a\x1b[2"), "cease: administrative shutdown (a[2)");
        assert_eq!(text(6, 2, b"\xffshort"), "cease: administrative shutdown");
    }
}
