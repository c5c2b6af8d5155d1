//! The token that identifies a message at the transport, and the syndrome of an acknowledgement.

use weft_units::Duration;

use super::Refusal;
use crate::QueuePairNumber;
use crate::Status;

/// A message that was submitted to the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A send request by its number, in a round of transmission.
    Request { qp: QueuePairNumber, round: u8, number: u32 },
    /// A response with data, by its number.
    Answer { qp: QueuePairNumber, number: u32 },
    /// An acknowledgement of a request.
    Acknowledge { qp: QueuePairNumber, psn: u32, syndrome: Syndrome },
}

const KIND: u32 = 62;
const ROUND: u32 = 56;
const QP: u32 = 32;
/// Rounds are compared modulo this number.
pub(crate) const ROUNDS: u8 = 64;

impl Token {
    /// Returns the token as the transport's 64 bits.
    pub(crate) fn pack(self) -> u64 {
        match self {
            Self::Request { qp, round, number } => {
                u64::from(round % ROUNDS) << ROUND | u64::from(qp.0) << QP | u64::from(number)
            }
            Self::Answer { qp, number } => 1 << KIND | u64::from(qp.0) << QP | u64::from(number),
            Self::Acknowledge { qp, psn, syndrome } => {
                let word = u32::from(syndrome.to_byte()) << 24 | psn;
                2 << KIND | u64::from(qp.0) << QP | u64::from(word)
            }
        }
    }

    /// Returns the queue pair of the message.
    pub(crate) const fn qp(self) -> QueuePairNumber {
        match self {
            Self::Request { qp, .. } | Self::Answer { qp, .. } | Self::Acknowledge { qp, .. } => qp,
        }
    }

    /// Returns the token in the transport's 64 bits.
    pub(crate) fn unpack(token: u64) -> Self {
        let bytes = token.to_be_bytes();
        let number = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let qp = QueuePairNumber(u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]));
        match token >> KIND {
            0 => Self::Request { qp, round: bytes[0] % ROUNDS, number },
            1 => Self::Answer { qp, number },
            _ => Self::Acknowledge {
                qp,
                psn: number & 0xff_ffff,
                syndrome: Syndrome::from_byte(bytes[4]),
            },
        }
    }
}

/// The syndrome of an acknowledgement (IBTA volume 1, chapter 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syndrome {
    /// ACK: the responder is ready to execute requests.
    Ready,
    /// RNR NAK: no receive request is available; the requester waits for [`rnr_delay`] of the timer value.
    NotReady { timer: u8 },
    /// NAK: the request is refused.
    Refused(Nak),
}

/// The code of a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nak {
    InvalidRequest,
    RemoteAccess,
    RemoteOperation,
    /// An unknown code.
    Other,
}

impl Syndrome {
    pub(crate) const fn to_byte(self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::NotReady { timer } => 1 << 5 | timer & 0x1f,
            Self::Refused(Nak::InvalidRequest) => 3 << 5 | 1,
            Self::Refused(Nak::RemoteAccess) => 3 << 5 | 2,
            Self::Refused(Nak::RemoteOperation) => 3 << 5 | 3,
            Self::Refused(Nak::Other) => 3 << 5,
        }
    }

    pub(crate) const fn from_byte(byte: u8) -> Self {
        match (byte >> 5, byte & 0x1f) {
            (0, _) => Self::Ready,
            (1, timer) => Self::NotReady { timer },
            (3, 1) => Self::Refused(Nak::InvalidRequest),
            (3, 2) => Self::Refused(Nak::RemoteAccess),
            (3, 3) => Self::Refused(Nak::RemoteOperation),
            _ => Self::Refused(Nak::Other),
        }
    }

    /// Returns the syndrome for a refusal.
    pub(crate) const fn of(refusal: Refusal, timer: u8) -> Self {
        match refusal {
            Refusal::NotReady => Self::NotReady { timer },
            Refusal::InvalidRequest | Refusal::TooLong => Self::Refused(Nak::InvalidRequest),
            Refusal::Access => Self::Refused(Nak::RemoteAccess),
            Refusal::LocalProtection => Self::Refused(Nak::RemoteOperation),
        }
    }
}

impl Nak {
    /// Returns the status of the refused request.
    pub(crate) const fn status(self) -> Status {
        match self {
            Self::InvalidRequest => Status::RemoteInvalidRequest,
            Self::RemoteAccess => Status::RemoteAccess,
            Self::RemoteOperation => Status::RemoteOperation,
            Self::Other => Status::BadResponse,
        }
    }
}

/// The wait for each timer value of an RNR NAK, in units of 10 us (IBTA volume 1, chapter 9).
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the wait for the timer value of an RNR NAK.
pub(crate) fn rnr_delay(timer: u8) -> Duration {
    Duration::from_micros(u64::from(RNR_TIMER[usize::from(timer % 32)]) * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_they_went() {
        let qp = QueuePairNumber(0xff_fffe);
        let refused = Syndrome::Refused(Nak::RemoteOperation);
        for token in [
            Token::Request { qp, round: 63, number: u32::MAX },
            Token::Answer { qp, number: 7 },
            Token::Acknowledge { qp, psn: 0xff_ffff, syndrome: Syndrome::NotReady { timer: 31 } },
            Token::Acknowledge { qp, psn: 0, syndrome: refused },
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }

    #[test]
    fn rnr_delays_are_those_of_the_standard() {
        assert_eq!(rnr_delay(0), Duration::from_micros(655_360));
        assert_eq!(rnr_delay(1), Duration::from_micros(10));
        assert_eq!(rnr_delay(12), Duration::from_micros(640));
        assert_eq!(rnr_delay(31), Duration::from_micros(491_520));
    }
}
