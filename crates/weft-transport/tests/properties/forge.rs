//! Packets that an attacker forges from its knowledge. Each is written and parsed as its receiver would parse it, so
//! that none is passed in that cannot arrive.

use weft_wire::{
    AckHeader, AckType, Bitmap, DataHeader, MessageHeader, NextHeader, Packet, SetupHeader,
    SetupKind, SetupParameters, U3, U4, U5, U6, U11,
};

use super::script::Script;

/// The attacker's knowledge: connection ids, its own first; an approximate sequence number; and the latest token and
/// timestamp that it received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) connections: [u32; 4],
    /// The connection that the victim requested from it last.
    pub(super) last_request: u32,
    pub(super) psn: u32,
    pub(super) token: u64,
    pub(super) stamp: u32,
}

impl Known {
    fn connection(&self, script: &mut Script<'_>) -> u32 {
        match script.byte().unwrap_or(0) {
            0..160 => self.connections[0],
            known @ 160..240 => self.connections[usize::from(known % 4)],
            _ => script.wide(),
        }
    }
}

/// Returns a packet of the kind that `step` selects, and the length of its payload in bytes; `None` for bytes that are
/// no packet.
pub(super) fn packet(step: u8, known: &Known, script: &mut Script<'_>) -> Option<(Packet, u16)> {
    let packet = match step % 4 {
        0 => data(known, script),
        1 => ack(known, script),
        2 => setup(known, script),
        _ if step >= 128 => setup(known, script),
        _ => {
            let len = script.byte()? % 96;
            let (packet, payload) = Packet::parse(script.take(len.into())).ok()?;
            return Some((packet, u16::try_from(payload.len()).ok()?));
        }
    };
    let mut bytes = [0; Packet::MAX_LEN];
    let len = packet.emit(&mut bytes);
    let (packet, _) = Packet::parse(&bytes[..len]).ok()?;
    Some((packet, script.word()))
}

fn data(known: &Known, script: &mut Script<'_>) -> Packet {
    let flags = script.byte().unwrap_or(0);
    let header = DataHeader {
        version: U4::truncate(if flags & 1 == 0 { 1 } else { flags.into() }),
        special: flags & 6 == 6,
        ack_now: flags & 8 != 0,
        retransmitted: flags & 16 != 0,
        path_id: U3::truncate((flags >> 5).into()),
        next: NextHeader::Message,
        psn: script.near(known.psn),
        destination_cid: known.connection(script),
        timestamp: script.near(known.stamp),
        ..DataHeader::default()
    };
    let message = MessageHeader {
        opcode: flags,
        tag: 0,
        id: script.near(0),
        offset: script.near(0),
        length: script.near(0),
    };
    Packet::data(header, (!header.special).then_some(message))
}

fn ack(known: &Known, script: &mut Script<'_>) -> Packet {
    let flags = script.byte().unwrap_or(0);
    let mut bitmap = Bitmap::default();
    for _ in 0..flags % 5 {
        bitmap.set(script.byte().unwrap_or(0).into());
    }
    let word = script.word();
    Packet::Ack(AckHeader {
        version: U4::truncate(if flags & 3 == 3 { flags.into() } else { 1 }),
        special: flags & 4 != 0,
        path_id: U3::truncate((flags >> 4).into()),
        hop_count: U4::truncate(word.into()),
        block: U5::truncate(if flags & 64 == 0 { 0 } else { word.into() }),
        ack_type: match (flags & 8 != 0, flags & 4 != 0) {
            (false, _) => AckType::Plain,
            (true, false) => AckType::Duplicate,
            (true, true) => [AckType::Trimmed, AckType::Credit, AckType::CreditRequest]
                [usize::from(flags >> 4) % 3],
        },
        psn: if flags & 12 == 4 { (word % 160).into() } else { script.near(known.psn) },
        destination_cid: known.connection(script),
        timestamp: script.near(known.stamp),
        timestamp_echo: script.near(known.stamp.wrapping_sub(100)),
        timestamp_nic_rx: script.near(known.stamp),
        num_ack: U11::truncate(script.word().into()),
        num_ece: U11::truncate(script.word().into()),
        reserved: U6::default(),
        psn_base: script.near(known.psn),
        bitmap,
        ..AckHeader::default()
    })
}

fn setup(known: &Known, script: &mut Script<'_>) -> Packet {
    use SetupKind::{Accept, Challenge, Close, Reject, Request, Reset};
    let kind = usize::from(script.byte().unwrap_or(0) % 8);
    let kind = [Request, Challenge, Accept, Accept, Reject, Close, Close, Reset][kind];
    let flags = script.byte().unwrap_or(0);
    let terms = SetupParameters {
        capabilities: if flags & 32 == 0 { 3 } else { script.wide() },
        first_psn: script.near(known.psn),
        mtu: script.word(),
        window: script.word(),
        paths: script.word(),
        receive_port: if flags & 64 == 0 { super::PORT } else { script.word() },
        service: script.long() >> 8,
        min_version: flags >> 7,
        token: if flags & 16 == 0 { known.token } else { script.long() },
    };
    Packet::Setup(SetupHeader {
        kind,
        version: U4::truncate(1 + u32::from(flags >> 6 == 3)),
        cc_type: U4::default(),
        thread_id: flags,
        reason: flags % 4,
        local_cid: match script.byte().unwrap_or(0) {
            choice @ 0..192 => known.connections[1].wrapping_add(u32::from(choice % 3)),
            _ => script.wide(),
        },
        destination_cid: match kind {
            Challenge | Accept | Reject | Close if flags & 8 == 0 => known.last_request,
            _ => known.connection(script),
        },
        terms: matches!(kind, Request | Challenge | Accept).then_some(terms),
    })
}
