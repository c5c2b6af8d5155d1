//! The fields that many data packets have in common: versions, flags, the application's operation. A fabric's packets
//! have few combinations of them, so each packet in flight stores the number of its combination, one byte.

use std::sync::{Arc, Mutex};

use weft_wire::{DataHeader, MessageHeader};

/// The combinations of common fields that occurred, by number.
#[derive(Clone, Debug)]
struct Table {
    /// Number of combinations.
    count: usize,
    /// Each combination as one number; zero where there is none.
    keys: Box<[u64; COMBINATIONS as usize]>,
    /// The headers of each combination, of its first packet.
    headers: Box<[(DataHeader, Option<MessageHeader>); COMBINATIONS as usize]>,
}

/// The combinations of common fields that one part of the world knows, and those that occurred in any.
#[derive(Debug, Default)]
pub(super) struct CommonFields {
    known: Table,
    shared: Arc<Mutex<Table>>,
}

/// Number of combinations; two numbers of eight bits are left for packets without one.
pub(super) const COMBINATIONS: u32 = 254;

impl Default for Table {
    fn default() -> Self {
        let headers = [(DataHeader::default(), None); COMBINATIONS as usize];
        let keys = Box::new([0; COMBINATIONS as usize]);
        Self { count: 0, keys, headers: Box::new(headers) }
    }
}

impl CommonFields {
    /// Returns what another part knows at first.
    pub(super) fn part(&self) -> Self {
        Self { known: self.known.clone(), shared: Arc::clone(&self.shared) }
    }

    /// Learns the combinations of other parts.
    pub(super) fn follow(&mut self) {
        let shared = self.shared.lock().expect("no part panicked");
        if shared.count != self.known.count {
            self.known.clone_from(&shared);
        }
    }

    /// Returns the number of a packet's combination; `None` if another has it.
    #[inline]
    pub(super) fn number(
        &mut self,
        header: &DataHeader,
        message: Option<&MessageHeader>,
    ) -> Option<u8> {
        let key = key(header, message);
        let [number, ..] = key.to_le_bytes();
        let known = *self.known.keys.get(usize::from(number))?;
        let is_its = known == key
            || known == 0 && self.add(usize::from(number), key, (*header, message.copied()));
        is_its.then_some(number)
    }

    /// Gives a combination its number; returns `false` if another part's has it.
    #[cold]
    fn add(
        &mut self,
        number: usize,
        key: u64,
        headers: (DataHeader, Option<MessageHeader>),
    ) -> bool {
        let mut shared = self.shared.lock().expect("no part panicked");
        if shared.keys[number] == 0 {
            shared.count += 1;
            (shared.keys[number], shared.headers[number]) = (key, headers);
        }
        self.known.clone_from(&shared);
        self.known.keys[number] == key
    }

    /// Returns headers with the common fields of this number.
    #[inline]
    pub(super) fn headers(&self, number: u32) -> (DataHeader, Option<MessageHeader>) {
        self.known.headers[number as usize]
    }
}

/// Returns a packet's common fields as one number, not zero. Its low byte is the number of the combination: combinations
/// that occur together differ in the path, two flags, or the operation.
#[inline]
fn key(header: &DataHeader, message: Option<&MessageHeader>) -> u64 {
    let MessageHeader { opcode, tag, .. } = message.copied().unwrap_or_default();
    let (opcode, tag) = (u64::from(opcode), u64::from(tag));
    let kind = (opcode ^ tag ^ u64::from(message.is_none())) % 8;
    u64::from(header.path_id.get())
        | u64::from(header.ack_now) << 3
        | u64::from(header.retransmitted) << 4
        | kind << 5
        | tag << 8
        | opcode << 24
        | u64::from(header.version.get()) << 32
        | u64::from(header.cc_type.get()) << 36
        | (header.next as u64) << 40
        | u64::from(header.special) << 48
        | u64::from(header.from_acceptor) << 49
        | u64::from(header.ece) << 50
        | u64::from(message.is_some()) << 51
        | 1 << 52
}

#[cfg(test)]
mod tests {
    use weft_wire::{NextHeader, U3, U4};

    use super::*;

    /// Each changes one common field of a packet.
    const CHANGES: [fn(&mut DataHeader, &mut MessageHeader); 11] = [
        |header, _| header.version = U4::MAX,
        |header, _| header.cc_type = U4::MAX,
        |header, _| header.special = true,
        |header, _| header.ack_now = true,
        |header, _| header.from_acceptor = true,
        |header, _| header.ece = true,
        |header, _| header.retransmitted = true,
        |header, _| header.path_id = U3::MAX,
        |header, _| header.next = NextHeader::Rdma,
        |_, message| message.opcode = 1,
        |_, message| message.tag = 0x100,
    ];

    #[test]
    fn packets_that_differ_in_a_common_field_never_share_a_number() {
        let plain = (DataHeader::default(), MessageHeader::default());
        for change in CHANGES {
            let mut fields = CommonFields::default();
            let (mut header, mut message) = plain;
            let first = fields.number(&header, Some(&message)).expect("the first");
            change(&mut header, &mut message);
            let other = fields.number(&header, Some(&message));
            assert_ne!(other, Some(first));
            if let Some(other) = other {
                assert_eq!(fields.headers(other.into()), (header, Some(message)));
            }
        }
        let mut fields = CommonFields::default();
        let with = fields.number(&plain.0, Some(&plain.1));
        assert_ne!(fields.number(&plain.0, None), with);
    }

    #[test]
    fn packets_that_differ_elsewhere_share_one() {
        let mut fields = CommonFields::default();
        let (mut header, mut message) = (DataHeader::default(), MessageHeader::default());
        let first = fields.number(&header, Some(&message));
        (header.psn, header.destination_cid, header.timestamp) = (1, 2, 3);
        (message.id, message.offset, message.length) = (4, 5, 6);
        assert_eq!(fields.number(&header, Some(&message)), first);
    }
}
