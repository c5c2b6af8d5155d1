//! OPEN, the first message of a session (RFC 4271, section 4.2), with the capabilities that EVPN needs (RFC 5492).

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use weft_units::Duration;

use crate::message::{self, Kind};
use crate::notification::code;
use crate::reader::Reader;
use crate::{MIN_HOLD_TIME, Notification};

/// The address family L2VPN and the subsequent family EVPN (RFC 7432, section 20).
pub(crate) const FAMILY: [u8; 3] = [0, 25, 70];
/// The AS number of speakers whose own has more than two octets, for the field that has two (RFC 6793).
const AS_TRANS: u16 = 23_456;
/// The optional parameter that has capabilities.
const CAPABILITIES: u8 = 2;

/// Codes of capabilities.
mod capability {
    /// An address family (RFC 4760).
    pub(super) const MULTIPROTOCOL: u8 = 1;
    /// RFC 2918.
    pub(super) const ROUTE_REFRESH: u8 = 2;
    /// RFC 6793.
    pub(super) const FOUR_OCTET_AS: u8 = 65;
}

/// The content of an OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) asn: u32,
    pub(crate) hold_time: Duration,
    pub(crate) router_id: Ipv4Addr,
    pub(crate) has_evpn: bool,
    pub(crate) has_four_octet_as: bool,
}

impl Open {
    /// Appends the message.
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let seconds = self.hold_time.as_nanos() / 1_000_000_000;
        message::write(out, Kind::Open, |out| {
            out.push(4);
            out.extend(u16::try_from(self.asn).unwrap_or(AS_TRANS).to_be_bytes());
            out.extend(u16::try_from(seconds).unwrap_or(u16::MAX).to_be_bytes());
            out.extend(self.router_id.octets());
            let [family, sub, safi] = FAMILY;
            let mut capabilities = Vec::from([
                capability::MULTIPROTOCOL,
                4,
                family,
                sub,
                0,
                safi,
                capability::ROUTE_REFRESH,
                0,
            ]);
            capabilities.extend([capability::FOUR_OCTET_AS, 4]);
            capabilities.extend(self.asn.to_be_bytes());
            let len = u8::try_from(capabilities.len()).expect("14 bytes");
            out.extend([len + 2, CAPABILITIES, len]);
            out.extend(capabilities);
        });
    }

    /// Reads the body of an OPEN.
    ///
    /// # Errors
    /// A version, an identifier or a hold time that cannot be accepted, or fields that contradict each other.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Notification> {
        let mut reader = Reader(body);
        let truncated = || message::bad_length(body);
        let version = reader.u8().ok_or_else(truncated)?;
        if version != 4 {
            return Err(Notification::with(code::OPEN, 1, &[0, 4]));
        }
        let asn = reader.u16().ok_or_else(truncated)?;
        let seconds = reader.u16().ok_or_else(truncated)?;
        let router_id = Ipv4Addr::from(reader.array::<4>().ok_or_else(truncated)?);
        let parameters = reader.field().ok_or_else(truncated)?;
        if !reader.is_empty() {
            return Err(Notification::new(code::OPEN, 0));
        }
        if router_id.is_unspecified() {
            return Err(Notification::new(code::OPEN, 3));
        }
        // RFC 4271, section 4.2: zero, or at least three seconds. A neighbour without a hold time could vanish unseen.
        let hold_time = Duration::from_secs(seconds.into());
        if hold_time < MIN_HOLD_TIME {
            return Err(Notification::new(code::OPEN, 6));
        }
        let mut open = Self {
            asn: asn.into(),
            hold_time,
            router_id,
            has_evpn: false,
            has_four_octet_as: false,
        };
        open.read_parameters(Reader(parameters))?;
        Ok(open)
    }

    fn read_parameters(&mut self, mut parameters: Reader<'_>) -> Result<(), Notification> {
        let malformed = || Notification::new(code::OPEN, 0);
        while let Some(kind) = parameters.u8() {
            let value = parameters.field().ok_or_else(malformed)?;
            if kind != CAPABILITIES {
                return Err(Notification::new(code::OPEN, 4));
            }
            let mut capabilities = Reader(value);
            while let Some(kind) = capabilities.u8() {
                let value = capabilities.field().ok_or_else(malformed)?;
                self.read_capability(kind, value)?;
            }
        }
        Ok(())
    }

    /// Reads a capability; unknown ones are ignored.
    fn read_capability(&mut self, kind: u8, value: &[u8]) -> Result<(), Notification> {
        let [family, sub, safi] = FAMILY;
        match (kind, value) {
            (capability::MULTIPROTOCOL, _) => self.has_evpn |= value == [family, sub, 0, safi],
            (capability::FOUR_OCTET_AS, &[a, b, c, d]) => {
                self.has_four_octet_as = true;
                self.asn = u32::from_be_bytes([a, b, c, d]);
            }
            (capability::FOUR_OCTET_AS, _) => return Err(Notification::new(code::OPEN, 0)),
            _ => {}
        }
        Ok(())
    }

    /// Checks that the neighbour is the one that is expected, and can do what is needed.
    ///
    /// # Errors
    /// The notification to send it.
    pub(crate) fn check(&self, asn: u32, own: (u32, Ipv4Addr)) -> Result<(), Notification> {
        if self.asn != asn || asn == 0 {
            return Err(Notification::new(code::OPEN, 2));
        }
        if own == (self.asn, self.router_id) {
            return Err(Notification::new(code::OPEN, 3));
        }
        // RFC 5492, section 5: the data are the capabilities that are missing.
        let [family, sub, safi] = FAMILY;
        if !self.has_evpn {
            let missing = [capability::MULTIPROTOCOL, 4, family, sub, 0, safi];
            return Err(Notification::with(code::OPEN, 7, &missing));
        }
        if !self.has_four_octet_as {
            let [a, b, c, d] = own.0.to_be_bytes();
            let missing = [capability::FOUR_OCTET_AS, 4, a, b, c, d];
            return Err(Notification::with(code::OPEN, 7, &missing));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Open {
        Open {
            asn: 4_200_000_001,
            hold_time: Duration::from_secs(90),
            router_id: Ipv4Addr::new(10, 1, 0, 2),
            has_evpn: true,
            has_four_octet_as: true,
        }
    }

    fn body(open: &Open) -> Vec<u8> {
        let mut bytes = Vec::new();
        open.emit(&mut bytes);
        bytes.split_off(message::HEADER)
    }

    #[test]
    fn an_open_has_the_fields_of_the_rfcs() {
        let bytes = body(&open());
        // RFC 4271, section 4.2; RFC 5492, section 4; RFC 4760, section 8; RFC 6793, section 3.
        let expected = [
            4, 0x5b, 0xa0, 0, 90, 10, 1, 0, 2, 16, 2, 14, 1, 4, 0, 25, 0, 70, 2, 0, 65, 4, 0xfa,
            0x56, 0xea, 0x01,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(Open::parse(&bytes), Ok(open()));
    }

    #[test]
    fn an_open_of_another_kind_is_refused_with_the_reason() {
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = body(&open());
            change(&mut bytes);
            let checked = Open::parse(&bytes)
                .and_then(|open| open.check(4_200_000_001, (65_000, Ipv4Addr::new(10, 1, 0, 1))));
            let error = checked.unwrap_err();
            (error.code, error.subcode)
        };
        assert_eq!(refused(&|bytes| bytes[0] = 3), (2, 1));
        assert_eq!(refused(&|bytes| bytes[25] = 2), (2, 2));
        assert_eq!(refused(&|bytes| bytes[5..9].fill(0)), (2, 3));
        assert_eq!(refused(&|bytes| bytes[10] = 1), (2, 4));
        assert_eq!(refused(&|bytes| bytes[4] = 2), (2, 6));
        assert_eq!(refused(&|bytes| bytes[4] = 0), (2, 6), "no hold time at all");
        assert_eq!(refused(&|bytes| bytes[17] = 71), (2, 7), "another family");
        assert_eq!(refused(&|bytes| bytes[9] = 15), (2, 0), "a byte is left");
        assert_eq!(refused(&|bytes| bytes[11] = 200), (2, 0), "a parameter past the end");
        assert_eq!(
            refused(&|bytes| bytes[20] = 66),
            (2, 2),
            "the AS number of two octets is AS_TRANS"
        );
        assert_eq!(refused(&|bytes| bytes.truncate(9)), (1, 2));
    }

    #[test]
    fn two_octet_speakers_and_oneself_are_refused() {
        let own = (4_200_000_001, Ipv4Addr::new(10, 1, 0, 2));
        let error = open().check(4_200_000_001, own).unwrap_err();
        assert_eq!((error.code, error.subcode), (2, 3));
        let old = Open { has_four_octet_as: false, ..open() };
        let error = old.check(4_200_000_001, (65_000, own.1)).unwrap_err();
        assert_eq!((error.code, error.subcode, error.data[0]), (2, 7, 65));
    }
}
