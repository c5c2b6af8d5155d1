//! What encryption costs, beside another library: `cargo bench -p weft-vpc --bench seal`.
//!
//! Nanoseconds a packet, the best of nine rounds: other work on the machine only ever adds.

use std::hint::black_box;
use std::time::Instant;

use aes_gcm::aead::{AeadInPlace, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm, Nonce};
use weft_units::Duration;
use weft_vpc::{Seal, SealConfig, SealSecret};
use weft_wire::{Cipher, U24, VxlanHeader, VxlanNext};

const ROUNDS: u32 = 9;
const PACKETS: u32 = 5_000;

#[expect(clippy::disallowed_methods, reason = "a benchmark is a clock's one use here")]
fn nanoseconds(mut operation: impl FnMut(usize)) -> f64 {
    let mut next = 0;
    let round = |_| {
        let start = Instant::now();
        for _ in 0..PACKETS {
            operation(next);
            next += 1;
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(PACKETS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn print(name: &str, cipher: Cipher, len: usize, ns: f64) {
    println!("{name:<20} {cipher:<9?} {len:>5} {ns:>8.1} {:>6.2}", len as f64 / ns);
}

fn measure(cipher: Cipher, len: usize) {
    let ends = ["192.0.2.1", "192.0.2.2"].map(|end| end.parse().expect("an address"));
    let config = |local: usize| SealConfig {
        cipher,
        local: ends[local],
        remote: ends[1 - local],
        sender: U24::truncate(0),
        overlap: Duration::from_secs(60),
    };
    let new = |local| Seal::new(config(local), 1, SealSecret::new([7; 32]), 1);
    let (mut sender, mut receiver) = (new(0), new(1));
    let vxlan = VxlanHeader { vni: U24::truncate(1), next: VxlanNext::Weft };
    let total = Seal::HEADERS_LEN + len + 16;
    let mut buffer = vec![7; total];
    let ns = nanoseconds(|_| {
        black_box(sender.seal(vxlan, black_box(&mut buffer), len).expect("a fresh key"));
    });
    print("seal", cipher, len, ns);
    let mut sender = new(0);
    let mut packets: Vec<_> = (0..ROUNDS * PACKETS)
        .map(|_| {
            let mut buffer = vec![7; total];
            sender.seal(vxlan, &mut buffer, len).expect("a fresh key");
            buffer
        })
        .collect();
    let ns = nanoseconds(|index| {
        let opened = receiver.open(black_box(&mut packets[index]), weft_units::Instant::EPOCH);
        assert!(black_box(opened).is_ok(), "sealed by the other");
    });
    print("open", cipher, len, ns);
    let headers = [0; Seal::HEADERS_LEN];
    let nonce = Nonce::from_slice(&[0; 12]);
    let text = &mut buffer[..len];
    let ns = match cipher {
        Cipher::Aes128Gcm => {
            let key = Aes128Gcm::new(&[7; 16].into());
            nanoseconds(|_| {
                let tag = key.encrypt_in_place_detached(nonce, &headers, black_box(text));
                black_box(&tag.expect("short enough"));
            })
        }
        Cipher::Aes256Gcm => {
            let key = Aes256Gcm::new(&[7; 32].into());
            nanoseconds(|_| {
                let tag = key.encrypt_in_place_detached(nonce, &headers, black_box(text));
                black_box(&tag.expect("short enough"));
            })
        }
    };
    print("aes-gcm (RustCrypto)", cipher, len, ns);
}

fn main() {
    println!("{:<20} {:<9} {:>5} {:>8} {:>6}", "", "cipher", "bytes", "ns", "GB/s");
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        for len in [64, 1500] {
            measure(cipher, len);
        }
    }
}
