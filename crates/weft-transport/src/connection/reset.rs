//! The proof that a reset answers a packet of this end: it repeats a number of that packet, which only hosts on its way
//! see (RFC 5961, section 3, requires the same of TCP's resets).

use weft_wire::{Packet, SetupHeader, SetupKind};

use super::{Connection, Shared};

/// A number that a reset repeats, by the field it is from. An end that lost a connection knows nothing else of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A data packet's sequence number.
    Psn(u32),
    /// An ACK's `PSN_base`.
    PsnBase(u32),
    /// The timestamp of a probe or keepalive, whose sequence number is that of a path.
    Timestamp(u32),
    /// An accept's first sequence number.
    FirstPsn(u32),
    /// The low half of an encrypted packet's number. It proves nothing: anyone who saw the packet can repeat it.
    Iv(u32),
}

impl Proof {
    /// Returns the proof that a reset in answer to `packet` carries; `None` if no reset answers it.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        match packet {
            Packet::Data(header, _) if header.special => Some(Self::Timestamp(header.timestamp)),
            Packet::Data(header, _) => Some(Self::Psn(header.psn)),
            Packet::Ack(header) => Some(Self::PsnBase(header.psn_base)),
            Packet::Setup(SetupHeader { kind: SetupKind::Accept, terms: Some(terms), .. }) => {
                Some(Self::FirstPsn(terms.first_psn))
            }
            Packet::Setup(_) => None,
        }
    }

    /// Returns the reset's reason, which names the field, and its number.
    pub(crate) const fn to_wire(self) -> (u8, u32) {
        match self {
            Self::Psn(number) => (1, number),
            Self::PsnBase(number) => (2, number),
            Self::Timestamp(number) => (3, number),
            Self::FirstPsn(number) => (4, number),
            Self::Iv(number) => (5, number),
        }
    }

    /// Returns the proof in a reset; `None` if it carries none.
    pub(crate) const fn from_wire(reason: u8, number: u32) -> Option<Self> {
        Some(match reason {
            1 => Self::Psn(number),
            2 => Self::PsnBase(number),
            3 => Self::Timestamp(number),
            4 => Self::FirstPsn(number),
            5 => Self::Iv(number),
            _ => return None,
        })
    }
}

impl Connection {
    /// Returns `true` if this end may just have sent a packet with that number. Of 2^32 numbers, a window of them is
    /// accepted for data and ACKs, one for the packets of an idle connection.
    pub(crate) fn is_proof(&self, proof: Proof, shared: &Shared) -> bool {
        match proof {
            Proof::Psn(psn) => self.sender.as_deref().is_some_and(|sender| {
                psn.wrapping_sub(sender.base) < sender.next.wrapping_sub(sender.base)
            }),
            Proof::PsnBase(base) => {
                let behind = self.receiver.base.wrapping_sub(base);
                behind <= shared.config.reorder_window.into()
            }
            Proof::Timestamp(stamp) => stamp == self.last_sent_at.to_wire(),
            Proof::FirstPsn(psn) => psn == self.cursor.psn,
            Proof::Iv(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_comes_back_as_it_went_and_no_other_reason_carries_one() {
        for proof in [
            Proof::Psn(7),
            Proof::PsnBase(8),
            Proof::Timestamp(9),
            Proof::FirstPsn(10),
            Proof::Iv(11),
        ] {
            let (reason, number) = proof.to_wire();
            assert_eq!(Proof::from_wire(reason, number), Some(proof));
        }
        assert!((0..=u8::MAX).filter(|&reason| Proof::from_wire(reason, 1).is_some()).eq(1..=5));
    }
}
