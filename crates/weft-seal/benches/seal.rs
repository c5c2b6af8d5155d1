//! Measures the cost of encryption, beside another library:
//! `cargo bench -p weft-seal --bench seal`.
//!
//! Nanoseconds per packet, the best of nine rounds, since other work on the machine only adds time;
//! then microseconds of a connection's key exchange at each end.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

use aes_gcm::aead::{AeadInPlace, KeyInit};
use aes_gcm::{Aes128Gcm, Nonce};
use weft_seal::{SealConfig, Seals, Wrap};
use weft_testkit::{figure_row, json};
use weft_transport::{ConnectionId, SetupClass};
use weft_wire::{
    Cipher, DataHeader, Packet, SealedHeader, SetupHeader, SetupKind, SetupParameters, U4,
};

const ROUNDS: u32 = 9;
const PACKETS: u32 = 5_000;
const EXCHANGES: u32 = 200;

/// The connection ids of both ends.
const IDS: [u32; 2] = [7, 8];

/// Returns the nanoseconds of one operation, in the best of [`ROUNDS`] rounds of `count` operations.
#[expect(clippy::disallowed_methods, reason = "a benchmark is a clock's one use here")]
fn nanoseconds(count: u32, mut operation: impl FnMut(usize)) -> f64 {
    let mut next = 0;
    let round = |_| {
        let start = Instant::now();
        for _ in 0..count {
            operation(next);
            next += 1;
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn at(end: usize) -> SocketAddr {
    SocketAddr::new([192, 0, 2, u8::try_from(end).expect("two ends")].into(), 4791)
}

fn setup(kind: SetupKind, from: usize) -> SetupHeader {
    let terms = SetupParameters { receive_port: 4791, token: 1, ..SetupParameters::default() };
    let destination_cid = if kind == SetupKind::Accept { IDS[1 - from] } else { 0 };
    SetupHeader {
        kind,
        version: U4::truncate(1),
        cc_type: U4::truncate(0),
        thread_id: 0,
        reason: 0,
        local_cid: IDS[from],
        destination_cid,
        terms: Some(terms),
    }
}

/// Returns the extension that `from` sends with a set-up packet.
fn extension(seals: &mut Seals, from: usize, header: &SetupHeader) -> Vec<u8> {
    let connection = ConnectionId(IDS[from]);
    let wrap = seals.wrap(&at(1 - from), Some(connection), &Packet::Setup(*header));
    let mut bytes = vec![0; wrap.len()];
    seals.seal(wrap, 0, &mut bytes);
    bytes
}

/// Returns two ends with keys for one connection.
fn pair(cipher: Cipher) -> [Seals; 2] {
    let config = SealConfig { cipher, ..SealConfig::default() };
    let mut ends = [1, 2].map(|seed| Seals::new(config.clone(), [seed; 32]));
    let [initiator, responder] = &mut ends;
    let (request, accept) = (setup(SetupKind::Request, 0), setup(SetupKind::Accept, 1));
    let first = extension(initiator, 0, &request);
    let _ = responder.admit(at(0), &request, &first, SetupClass::New);
    let second = extension(responder, 1, &accept);
    let named = SetupClass::Connection(ConnectionId(IDS[0]));
    let _ = initiator.admit(at(1), &accept, &second, named);
    assert!(initiator.is_sealed(ConnectionId(IDS[0])), "both ends have keys");
    ends
}

fn print(name: &str, cipher: Cipher, len: usize, ns: f64) {
    println!("{name:<20} {cipher:<9?} {len:>5} {ns:>8.1} {:>6.2}", len as f64 / ns);
    if cipher == SealConfig::default().cipher {
        let row = json!({ "step": name, "bytes": len, "nanos": ns });
        figure_row("perf-encryption-packets", &row);
    }
}

fn measure(cipher: Cipher, len: usize) {
    let wrap = Wrap::Sealed(ConnectionId(IDS[0]));
    let [mut sender, _] = pair(cipher);
    let packet =
        Packet::data(DataHeader { destination_cid: IDS[1], ..DataHeader::default() }, None);
    let datagram = || {
        let mut bytes = vec![7; len + SealedHeader::OVERHEAD];
        packet.emit(wrap.inside_mut(0, &mut bytes));
        bytes
    };
    let mut buffer = datagram();
    let ns = nanoseconds(PACKETS, |_| sender.seal(wrap, 0, black_box(&mut buffer)));
    print("seal", cipher, len, ns);
    let [mut sender, mut receiver] = pair(cipher);
    let mut packets: Vec<_> = (0..ROUNDS * PACKETS)
        .map(|_| {
            let mut bytes = datagram();
            sender.seal(wrap, 0, &mut bytes);
            bytes
        })
        .collect();
    let ns = nanoseconds(PACKETS, |index| {
        assert!(receiver.open(black_box(&mut packets[index]), 0).is_ok(), "sealed by the other");
    });
    print("open", cipher, len, ns);
    if cipher == Cipher::Aes128Gcm {
        let (key, nonce) = (Aes128Gcm::new(&[7; 16].into()), Nonce::from_slice(&[0; 12]));
        let text = &mut buffer[..len];
        let ns = nanoseconds(PACKETS, |_| {
            let tag = key.encrypt_in_place_detached(nonce, &[0; 12], black_box(text));
            black_box(&tag.expect("short enough"));
        });
        print("aes-gcm (RustCrypto)", cipher, len, ns);
    }
}

fn main() {
    println!("{:<20} {:<9} {:>5} {:>8} {:>6}", "", "cipher", "bytes", "ns", "GB/s");
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        for len in [64, 256, 1_400, 4_096, 8_900] {
            measure(cipher, len);
        }
    }
    let ns = nanoseconds(EXCHANGES, |_| drop(black_box(pair(Cipher::Aes128Gcm))));
    println!("key exchange, each end: {:.0} us", ns / 2e3);
}
