//! Properties of the engine for every input of an attacker. The mutation test and the fuzz target
//! call this.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::cell::RefCell;
use std::net::SocketAddr;

use weft_seal::{Mode, SealConfig, Seals, Wrap};
use weft_transport::{Admission, ConnectionId, SetupClass};
use weft_wire::{
    DataHeader, ExchangeHeader, Packet, ParseError, SealedContent, SealedHeader, SetupHeader,
    SetupKind, SetupParameters, U4,
};

/// The id of the connection at each end.
const IDS: [u32; 2] = [0x1111_0001, 0x2222_0002];

/// Two ends with a connection.
struct Pair {
    ends: [Seals; 2],
    sent: u64,
}

fn at(end: usize) -> SocketAddr {
    SocketAddr::new([10, 0, 0, u8::try_from(end).expect("two ends")].into(), 4791)
}

fn end(seed: u8) -> Seals {
    let config = SealConfig { mode: Mode::Required, ..SealConfig::default() };
    Seals::new(config, [seed; 32])
}

fn setup(kind: SetupKind, from: usize) -> SetupHeader {
    let terms = SetupParameters { receive_port: 4791, token: 1, ..SetupParameters::default() };
    SetupHeader {
        kind,
        version: U4::truncate(1),
        cc_type: U4::truncate(0),
        thread_id: 0,
        reason: 0,
        local_cid: IDS[from],
        destination_cid: if kind == SetupKind::Request { 0 } else { IDS[1 - from] },
        terms: Some(terms),
    }
}

/// Returns the exchange that an end sends with a set-up header.
fn exchange(seals: &mut Seals, from: usize, header: SetupHeader) -> Vec<u8> {
    let wrap = seals.wrap(&at(1 - from), Some(ConnectionId(IDS[from])), &Packet::Setup(header));
    let mut bytes = vec![0; wrap.len()];
    seals.seal(wrap, 0, &mut bytes);
    bytes
}

impl Pair {
    fn new() -> Self {
        let mut ends = [end(1), end(2)];
        let [initiator, responder] = &mut ends;
        let (request, accept) = (setup(SetupKind::Request, 0), setup(SetupKind::Accept, 1));
        let first = exchange(initiator, 0, request);
        assert_eq!(
            responder.admit(at(0), &request, &first, SetupClass::New),
            Admission::AdmitSealed
        );
        let second = exchange(responder, 1, accept);
        let asked = SetupClass::Connection(ConnectionId(IDS[0]));
        assert_eq!(initiator.admit(at(1), &accept, &second, asked), Admission::AdmitSealed);
        Self { ends, sent: 0 }
    }

    /// Returns a genuine packet of the first end.
    fn packet(&mut self) -> Vec<u8> {
        let header = DataHeader { destination_cid: IDS[1], ..DataHeader::default() };
        let packet = Packet::data(header, None);
        let wrap = self.ends[0].wrap(&at(1), Some(ConnectionId(IDS[0])), &packet);
        assert!(matches!(wrap, Wrap::Sealed(_)), "the connection has keys");
        let mut bytes = vec![0x5a; packet.len() + 20 + wrap.len()];
        let len = bytes.len();
        packet.emit(&mut bytes[wrap.inside(0, len)]);
        self.ends[0].seal(wrap, 0, &mut bytes);
        self.sent += 1;
        bytes
    }

    fn receive(&mut self, mut datagram: Vec<u8>, clear: usize) -> bool {
        self.ends[1]
            .open(&mut datagram, clear)
            .is_ok_and(|(_, content)| content == SealedContent::Packet)
    }
}

thread_local! {
    /// A pair that is created once: no input changes the properties that are checked.
    static PAIR: RefCell<Pair> = RefCell::new(Pair::new());
}

/// Checks the guarantees of the parsers, that no bytes of an attacker open, and that genuine packets still open.
/// Returns the result of the parser of sealed packets.
///
/// # Errors
/// [`ParseError`] if the bytes are no sealed packet.
///
/// # Panics
/// Panics if a property does not hold.
pub fn sealed(bytes: &[u8]) -> Result<(), ParseError> {
    exchanges(bytes);
    admissions(bytes);
    PAIR.with_borrow_mut(|pair| datagrams(pair, bytes));
    let (header, rest) = SealedHeader::parse(bytes)?;
    let mut again = [0; SealedHeader::LEN];
    header.emit(&mut again);
    assert_eq!([&again, rest].concat(), bytes);
    Ok(())
}

fn exchanges(bytes: &[u8]) {
    if let Ok((header, message, rest)) = ExchangeHeader::parse(bytes) {
        assert_eq!(message.len(), usize::from(header.length));
        assert_eq!(ExchangeHeader::LEN + message.len() + rest.len(), bytes.len());
        let mut again = [0; ExchangeHeader::LEN];
        header.emit(&mut again);
        assert_eq!((again[0], again[2], again[3]), (bytes[0], bytes[2], bytes[3]));
    }
}

thread_local! {
    /// An end that has sent a request. Its two keys take most of the time of an input, so it is reused after an input
    /// that cannot change it.
    static INITIATOR: RefCell<Option<Seals>> = const { RefCell::new(None) };
}

fn initiator() -> Seals {
    let mut initiator = end(1);
    let _ = exchange(&mut initiator, 0, setup(SetupKind::Request, 0));
    initiator
}

/// Returns `true` if an initiator that reads these bytes does not change: they are neither a set-up packet, nor a
/// message that reaches the state of its exchange, nor missing.
fn changes_nothing(bytes: &[u8]) -> bool {
    // A message has an ephemeral key, an identity and two tags.
    let is_message = ExchangeHeader::parse(bytes)
        .is_ok_and(|(_, message, _)| message.len() >= 32 + 32 + 2 * SealedHeader::TAG_LEN);
    !bytes.is_empty() && !is_message && SetupHeader::parse(bytes).is_err()
}

/// Checks any bytes in place of an exchange, with any set-up packet.
fn admissions(bytes: &[u8]) {
    let mut initiator = INITIATOR.take().unwrap_or_else(initiator);
    let mut responder = end(2);
    let request = setup(SetupKind::Request, 0);
    let admission = responder.admit(at(0), &request, bytes, SetupClass::New);
    assert!(matches!(admission, Admission::Admit | Admission::Refuse(_)), "{admission:?}");
    let accept = setup(SetupKind::Accept, 1);
    let admission =
        initiator.admit(at(1), &accept, bytes, SetupClass::Connection(ConnectionId(IDS[0])));
    // Nobody can answer a request without having seen it.
    assert!(matches!(admission, Admission::Drop | Admission::Close(..)), "{admission:?}");
    assert_eq!(initiator.connections(), 0);
    if let Ok((header, rest)) = SetupHeader::parse(bytes) {
        for seals in [&mut initiator, &mut responder] {
            for named in [
                SetupClass::New,
                SetupClass::Connection(ConnectionId(IDS[0])),
                SetupClass::NoConnection,
            ] {
                let _ = seals.admit(at(0), &header, rest, named);
            }
        }
    }
    if changes_nothing(bytes) {
        INITIATOR.set(Some(initiator));
    }
}

fn datagrams(pair: &mut Pair, bytes: &[u8]) {
    // The caller has read the bytes in the clear, so the datagram is at least as long as they are.
    for clear in [0, 8, bytes.len()].into_iter().filter(|clear| *clear <= bytes.len()) {
        let mut datagram = bytes.to_vec();
        let opened = pair.ends[1].open(&mut datagram, clear);
        let is_sealed = bytes.get(clear) == Some(&SealedHeader::PACKET_TYPE);
        assert!(!is_sealed || opened.is_err(), "made up, and opened: {bytes:x?}");
    }
    // The bytes follow the header of the connection's next packet.
    let mut aimed = bytes.to_vec();
    if let Some(header) = aimed.first_chunk_mut::<{ SealedHeader::LEN }>() {
        (header[0], header[1], header[3]) =
            (SealedHeader::PACKET_TYPE, 0x10 | header[1] & 1, header[3] & 1);
        header[8..].copy_from_slice(&IDS[1].to_be_bytes());
        assert!(!pair.receive(aimed, 0), "made up, and opened: {bytes:x?}");
    }
    // A genuine packet is changed, extended or truncated.
    let genuine = pair.packet();
    let mut changed = genuine.clone();
    changed.iter_mut().zip(bytes).for_each(|(to, by)| *to ^= by);
    if changed != genuine && changed[0] == SealedHeader::PACKET_TYPE {
        assert!(!pair.receive(changed, 0), "changed, and opened: {bytes:x?}");
    }
    if !bytes.is_empty() {
        assert!(!pair.receive([&genuine, bytes].concat(), 0), "extended, and opened: {bytes:x?}");
        let cut = genuine.len() - bytes.len().min(genuine.len());
        assert!(
            cut == 0 || !pair.receive(genuine[..cut].to_vec(), 0),
            "cut, and opened: {bytes:x?}"
        );
    }
    assert!(pair.receive(genuine.clone(), 0), "a genuine packet, not opened after {bytes:x?}");
    assert!(!pair.receive(genuine, 0), "opened twice");
    assert_eq!(pair.ends[1].counters().opened, pair.sent);
}
