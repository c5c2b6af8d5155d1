//! The framing of BGP's messages (RFC 4271, section 4.1).

use alloc::vec::Vec;

use crate::Notification;
use crate::notification::code;
use crate::reader::Reader;

/// Length of the header: marker, length, type.
pub(crate) const HEADER: usize = 19;
/// Maximum length of a message, bytes.
pub const MAX_MESSAGE: usize = 4096;

/// The types of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Open = 1,
    Update = 2,
    Notification = 3,
    Keepalive = 4,
    /// RFC 2918.
    RouteRefresh = 5,
}

/// A message without its header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framed<'a> {
    pub(crate) kind: Kind,
    pub(crate) body: &'a [u8],
    /// Length of the message with its header, bytes.
    pub(crate) len: usize,
}

/// Returns the first message of the bytes that arrived; `None` while it is incomplete.
///
/// # Errors
/// A header that RFC 4271, section 6.1, refuses.
pub(crate) fn split(bytes: &[u8]) -> Result<Option<Framed<'_>>, Notification> {
    let mut reader = Reader(bytes);
    let (Some(marker), Some(length), Some(kind)) =
        (reader.array::<16>(), reader.u16(), reader.u8())
    else {
        return Ok(None);
    };
    if marker != [0xff; 16] {
        return Err(Notification::new(code::HEADER, 1));
    }
    let kind = match kind {
        1 => Kind::Open,
        2 => Kind::Update,
        3 => Kind::Notification,
        4 => Kind::Keepalive,
        5 => Kind::RouteRefresh,
        other => return Err(Notification::with(code::HEADER, 3, &[other])),
    };
    let len = usize::from(length);
    let min = HEADER + kind.min_body();
    let fits = (min..=MAX_MESSAGE).contains(&len) && (kind != Kind::Keepalive || len == HEADER);
    if !fits {
        return Err(Notification::with(code::HEADER, 2, &length.to_be_bytes()));
    }
    Ok(reader.take(len - HEADER).map(|body| Framed { kind, body, len }))
}

/// Returns the notification for a message whose body of these bytes is too short.
pub(crate) fn bad_length(body: &[u8]) -> Notification {
    let len = u16::try_from(HEADER + body.len()).unwrap_or(u16::MAX);
    Notification::with(code::HEADER, 2, &len.to_be_bytes())
}

/// Reads the body of a NOTIFICATION.
pub(crate) fn parse_notification(body: &[u8]) -> Result<Notification, Notification> {
    match *body {
        [code, subcode, ref data @ ..] => Ok(Notification { code, subcode, data: data.to_vec() }),
        _ => Err(bad_length(body)),
    }
}

/// Appends a NOTIFICATION.
pub(crate) fn write_notification(notification: &Notification, out: &mut Vec<u8>) {
    write(out, Kind::Notification, |out| {
        out.extend([notification.code, notification.subcode]);
        out.extend_from_slice(&notification.data);
    });
}

impl Kind {
    const fn min_body(self) -> usize {
        match self {
            Self::Open => 10,
            Self::Update | Self::RouteRefresh => 4,
            Self::Notification => 2,
            Self::Keepalive => 0,
        }
    }
}

/// Appends a message whose body `write` appends.
///
/// # Panics
/// If the message is longer than [`MAX_MESSAGE`], which no message of ours is.
pub(crate) fn write(out: &mut Vec<u8>, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0xff; 16]);
    out.extend([0, 0, kind as u8]);
    write(out);
    let len = out.len() - start;
    assert!(len <= MAX_MESSAGE, "a message of ours has {len} bytes");
    let len = u16::try_from(len).expect("at most 4096");
    out[start + 16..start + 18].copy_from_slice(&len.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_headers_are_refused_as_the_rfc_says() {
        let header = |length: u16, kind: u8| {
            let mut bytes = [0xff; 40];
            bytes[16..18].copy_from_slice(&length.to_be_bytes());
            bytes[18] = kind;
            bytes
        };
        let refused = |bytes: &[u8]| {
            let error = split(bytes).unwrap_err();
            (error.code, error.subcode)
        };
        let mut no_marker = header(19, 4);
        no_marker[3] = 0;
        assert_eq!(refused(&no_marker), (1, 1));
        for (length, kind) in [(18, 4), (20, 4), (4097, 2), (22, 2), (28, 1), (20, 3), (22, 5)] {
            assert_eq!(refused(&header(length, kind)), (1, 2), "{length} bytes of type {kind}");
        }
        assert_eq!(refused(&header(19, 6)), (1, 3));
        assert!(split(&header(19, 4)[..18]).unwrap().is_none());
        assert!(split(&header(60, 2)).unwrap().is_none(), "it has not arrived whole");
        let keepalive = header(19, 4);
        let framed = split(&keepalive).unwrap().unwrap();
        assert_eq!((framed.kind, framed.len), (Kind::Keepalive, 19));
    }
}
