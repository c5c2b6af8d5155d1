//! Messages between connection managers: a header of 16 bytes, the kind's fields, private data. Names and meanings are
//! those of IBTA volume 1, chapter 12; the encoding is our own, since the addresses that IBTA's messages carry are
//! those of the UDP datagram. [`Message::parse`] returns `None` for any bytes that are not a message.

/// The first four bytes of every message.
const MAGIC: [u8; 4] = *b"WCM1";
const HEADER: usize = 16;
/// Length of an [`Offer`] before its private data, bytes.
const OFFER: usize = 20;

/// The ID of one end's side of a connection (IBTA, section 12.7.3). Zero names no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CommunicationId(pub(crate) u32);

impl CommunicationId {
    pub(crate) const NONE: Self = Self(0);
}

/// The parameters that an end offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The queue pair number, 24 bits.
    pub(crate) queue_pair: u32,
    /// The first packet's sequence number, 24 bits.
    pub(crate) psn: u32,
    pub(crate) qkey: u32,
    /// The code of its transport service in verbs.h.
    pub(crate) service: u8,
    /// The maximum number of concurrent READs and atomics that it serves.
    pub(crate) responder_resources: u8,
    /// The maximum number of concurrent READs and atomics that it requests.
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) flow_control: bool,
    pub(crate) shared_receive_queue: bool,
    /// The code in verbs.h of the largest MTU it accepts.
    pub(crate) mtu: u8,
    pub(crate) private_data: Vec<u8>,
}

/// The reason of a rejection (IBTA, table 124), which is never zero: it becomes the status of an event, where zero means
/// success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reason(pub(crate) u16);

impl Reason {
    pub(crate) const INVALID_COMMUNICATION_ID: Self = Self(6);
    pub(crate) const INVALID_SERVICE_ID: Self = Self(8);
    pub(crate) const CONSUMER: Self = Self(28);
    /// Annex A19: the combination of the vendors' options is not supported.
    pub(crate) const VENDOR_OPTION: Self = Self(35);
}

/// The body of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Requests a connection (IBTA: REQ).
    Request(Offer),
    /// Confirms a request or a reply whose owner has not answered it yet (MRA).
    Received,
    /// Accepts a request (REP).
    Reply(Offer),
    /// Reports that the connection is in use (RTU).
    ReadyToUse,
    /// Rejects a request or a reply (REJ).
    Reject {
        reason: Reason,
        private_data: Vec<u8>,
    },
    /// Requests the end of the connection (DREQ).
    DisconnectRequest,
    /// Confirms the end of the connection (DREP).
    DisconnectReply,
    /// Requests the queue pair number of a datagram service (a SIDR request).
    ServiceRequest(Offer),
    /// Returns that number.
    ServiceReply(Offer),
    /// Probes the other end. IBTA has no such message: there the hardware outlives the program.
    Probe,
    ProbeReply,
}

/// A message with its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The sender's ID of the connection.
    pub(crate) from: CommunicationId,
    /// The receiver's ID, if the sender knows it.
    pub(crate) to: CommunicationId,
    /// The number of earlier transmissions.
    pub(crate) copy: u8,
    pub(crate) body: Body,
}

/// The offset of [`Message::copy`], bytes.
const COPY: usize = 5;

/// Increments the copy number in the bytes of a message.
pub(crate) fn count_copy(bytes: &mut [u8]) {
    bytes[COPY] = bytes[COPY].saturating_add(1);
}

/// Maximum size of private data that a program may send, bytes: the space that IBTA's message leaves after the
/// addresses of annex A11.
pub(crate) mod private_data {
    pub(crate) const REQUEST: usize = 56;
    pub(crate) const REPLY: usize = 196;
    pub(crate) const REJECT: usize = 148;
    pub(crate) const SERVICE_REQUEST: usize = 180;
    pub(crate) const SERVICE_REPLY: usize = 136;
}

impl Offer {
    /// Appends the offer with its private data.
    fn emit(&self, to: &mut Vec<u8>) {
        to.extend(self.queue_pair.to_be_bytes());
        to.extend(self.psn.to_be_bytes());
        to.extend(self.qkey.to_be_bytes());
        let flags = u8::from(self.flow_control) | u8::from(self.shared_receive_queue) << 1;
        to.extend([self.service, self.responder_resources, self.initiator_depth]);
        to.extend([self.retry_count, self.rnr_retry_count, flags, self.mtu, 0]);
        to.extend(&self.private_data);
    }

    /// Parses an offer with at most `max` bytes of private data.
    fn parse(bytes: &[u8], max: usize) -> Option<Self> {
        let (fixed, private_data) = bytes.split_first_chunk::<OFFER>()?;
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| fixed[at + byte]));
        let [service, responder_resources, initiator_depth, retry, rnr, flags, mtu, _] =
            [12, 13, 14, 15, 16, 17, 18, 19].map(|at| fixed[at]);
        let (queue_pair, psn) = (word(0), word(4));
        let is_valid = queue_pair < 1 << 24
            && psn < 1 << 24
            && (1..=5).contains(&mtu)
            && retry < 8
            && rnr < 8
            && private_data.len() <= max;
        is_valid.then(|| Self {
            queue_pair,
            psn,
            qkey: word(8),
            service,
            responder_resources,
            initiator_depth,
            retry_count: retry,
            rnr_retry_count: rnr,
            flow_control: flags & 1 != 0,
            shared_receive_queue: flags & 2 != 0,
            mtu,
            private_data: private_data.to_vec(),
        })
    }
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Self::Request(_) => 1,
            Self::Received => 2,
            Self::Reply(_) => 3,
            Self::ReadyToUse => 4,
            Self::Reject { .. } => 5,
            Self::DisconnectRequest => 6,
            Self::DisconnectReply => 7,
            Self::ServiceRequest(_) => 8,
            Self::ServiceReply(_) => 9,
            Self::Probe => 10,
            Self::ProbeReply => 11,
        }
    }

    fn parse(kind: u8, bytes: &[u8]) -> Option<Self> {
        let bare = |body| bytes.is_empty().then_some(body);
        match kind {
            1 => Offer::parse(bytes, private_data::REQUEST).map(Self::Request),
            2 => bare(Self::Received),
            3 => Offer::parse(bytes, private_data::REPLY).map(Self::Reply),
            4 => bare(Self::ReadyToUse),
            5 => {
                let (reason, data) = bytes.split_first_chunk()?;
                let reason = Reason(u16::from_be_bytes(*reason));
                let is_valid = reason.0 != 0 && data.len() <= private_data::REJECT;
                is_valid.then(|| Self::Reject { reason, private_data: data.to_vec() })
            }
            6 => bare(Self::DisconnectRequest),
            7 => bare(Self::DisconnectReply),
            8 => Offer::parse(bytes, private_data::SERVICE_REQUEST).map(Self::ServiceRequest),
            9 => Offer::parse(bytes, private_data::SERVICE_REPLY).map(Self::ServiceReply),
            10 => bare(Self::Probe),
            11 => bare(Self::ProbeReply),
            _ => None,
        }
    }
}

impl Message {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([self.body.kind(), self.copy, 0, 0]);
        bytes.extend(self.from.0.to_be_bytes());
        bytes.extend(self.to.0.to_be_bytes());
        match &self.body {
            Body::Request(offer)
            | Body::Reply(offer)
            | Body::ServiceRequest(offer)
            | Body::ServiceReply(offer) => offer.emit(&mut bytes),
            Body::Reject { reason, private_data } => {
                bytes.extend(reason.0.to_be_bytes());
                bytes.extend(private_data);
            }
            _ => {}
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, body) = bytes.split_first_chunk::<HEADER>()?;
        let id =
            |at: usize| CommunicationId(u32::from_be_bytes([0, 1, 2, 3].map(|i| header[at + i])));
        let is_ours = header.starts_with(&MAGIC) && header[6..8] == [0; 2];
        if !is_ours || id(8) == CommunicationId::NONE {
            return None;
        }
        Some(Self {
            from: id(8),
            to: id(12),
            copy: header[COPY],
            body: Body::parse(header[4], body)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    fn offer(private: usize) -> Offer {
        Offer {
            queue_pair: 0x12_3456,
            psn: 0xff_ffff,
            qkey: 7,
            service: 2,
            responder_resources: 16,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry_count: 6,
            flow_control: true,
            shared_receive_queue: true,
            mtu: 5,
            private_data: vec![0xab; private],
        }
    }

    fn every_kind() -> Vec<Message> {
        let bodies = [
            Body::Request(offer(private_data::REQUEST)),
            Body::Received,
            Body::Reply(offer(private_data::REPLY)),
            Body::ReadyToUse,
            Body::Reject { reason: Reason::CONSUMER, private_data: vec![1; private_data::REJECT] },
            Body::DisconnectRequest,
            Body::DisconnectReply,
            Body::ServiceRequest(offer(private_data::SERVICE_REQUEST)),
            Body::ServiceReply(offer(0)),
            Body::Probe,
            Body::ProbeReply,
        ];
        let (from, to) = (CommunicationId(3), CommunicationId(9));
        let message = |body| Message { from, to, copy: 1, body };
        bodies.map(message).into()
    }

    #[test]
    fn messages_are_parsed_as_they_were_written() {
        for message in every_kind() {
            assert_eq!(Message::parse(&message.emit()), Some(message));
        }
    }

    #[test]
    fn short_long_and_impossible_messages_are_refused() {
        for message in every_kind() {
            let bytes = message.emit();
            for len in 0..HEADER {
                assert_eq!(Message::parse(&bytes[..len]), None);
            }
            let too_long = [bytes, vec![0; private_data::REPLY + 1]].concat();
            assert_eq!(Message::parse(&too_long), None);
        }
        let wide = Offer { queue_pair: 1 << 24, ..offer(0) };
        let request = Message { body: Body::Request(wide), ..every_kind()[0].clone() };
        assert_eq!(Message::parse(&request.emit()), None);
    }

    #[test]
    fn a_rejection_without_a_reason_is_refused() {
        for (reason, is_valid) in [(0, false), (1, true), (u16::MAX, true)] {
            let body = Body::Reject { reason: Reason(reason), private_data: vec![1] };
            let message = Message { body, ..every_kind()[0].clone() };
            assert_eq!(Message::parse(&message.emit()).is_some(), is_valid, "reason {reason}");
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        let mut rng = Seed(7).rng();
        for round in 0..100_000_usize {
            let mut bytes = every_kind()[round % 11].emit();
            for _ in 0..=rng.index(4) {
                let at = rng.index(bytes.len());
                bytes[at] = rng.next_u32().to_be_bytes()[0];
            }
            bytes.truncate(rng.index(bytes.len() + 1));
            if let Some(message) = Message::parse(&bytes) {
                assert_eq!(Message::parse(&message.emit()), Some(message));
            }
        }
    }
}
