//! A probe and its answer as bytes: 20 bytes of UDP payload. An answer is its probe with another kind and the time that
//! the probe waited, so that it is as long as the probe, and no answer is answered.

use std::time::Duration;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Probe = 1,
    Answer = 2,
}

/// A probe or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) kind: Kind,
    /// A random number of the prober's run, without which no answer counts.
    pub(super) session: u64,
    /// The number of the probe on its path.
    pub(super) sequence: u32,
    /// Of an answer: the time for which its probe waited for the answering process, whole milliseconds. A probe has zero.
    pub(super) held: Duration,
}

/// Bytes of a packet.
pub(super) const LEN: usize = 20;
/// The first bytes of each packet, with the version.
const MAGIC: [u8; 4] = *b"WFP1";
/// The longest waiting time that 24 bits hold, milliseconds: 4.7 hours.
const MAX_HELD: u32 = (1 << 24) - 1;

impl Packet {
    pub(super) fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        let held = u32::try_from(self.held.as_millis()).unwrap_or(MAX_HELD).min(MAX_HELD);
        bytes[4..8].copy_from_slice(&held.to_be_bytes());
        bytes[4] = self.kind as u8;
        bytes[8..16].copy_from_slice(&self.session.to_be_bytes());
        bytes[16..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// Returns the packet; `None` if the bytes are none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let kind = match bytes[4] {
            1 => Kind::Probe,
            2 => Kind::Answer,
            _ => return None,
        };
        let session = u64::from_be_bytes(bytes[8..16].try_into().expect("eight bytes"));
        let sequence = u32::from_be_bytes(bytes[16..].try_into().expect("four bytes"));
        let held = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]);
        let is_ours = bytes[..4] == MAGIC && (kind == Kind::Answer || held == 0);
        let held = Duration::from_millis(held.into());
        is_ours.then_some(Self { kind, session, sequence, held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_as_it_was_written_and_other_bytes_are_none() {
        for (kind, millis) in [(Kind::Probe, 0), (Kind::Answer, 0), (Kind::Answer, 0x01_02_03)] {
            let held = Duration::from_millis(millis);
            let packet =
                Packet { kind, session: 0x0102_0304_0506_0708, sequence: 0xa0b0_c0d0, held };
            let bytes = packet.emit();
            assert_eq!(Packet::parse(&bytes), Some(packet));
            // All bytes of a probe have one value, and those of an answer but for the waiting time.
            for place in 0..if kind == Kind::Probe { 8 } else { 5 } {
                let mut other = bytes;
                other[place] ^= 0x40;
                assert_eq!(Packet::parse(&other), None, "byte {place}");
            }
            assert_eq!(Packet::parse(&bytes[..LEN - 1]), None);
            assert_eq!(Packet::parse(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn a_waiting_time_beyond_the_field_is_the_longest_one() {
        let held = Duration::from_secs(1 << 20);
        let packet = Packet { kind: Kind::Answer, session: 1, sequence: 2, held };
        let read = Packet::parse(&packet.emit()).unwrap();
        assert_eq!(read.held, Duration::from_millis(MAX_HELD.into()));
    }
}
