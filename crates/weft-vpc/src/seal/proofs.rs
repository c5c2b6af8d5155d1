//! Bounded proofs of what stands between a recording and its replay: the window of received packets, and that no nonce comes
//! twice (`docs/design/proofs.md`).

use std::collections::BTreeSet;

use super::window::{WIDTH, Window};
use super::*;

/// Distances from the newest packet at which the window does something else: its ring moves by words of 64.
const DISTANCES: [u64; 15] =
    [0, 1, 2, 63, 64, 65, 4_031, 4_032, 4_033, 4_095, 4_096, 4_097, 4_160, 4_161, 1 << 33];

/// Packets at these distances, on either side. The greatest number is no sender's: it stops before it.
fn around(newest: u64) -> impl Iterator<Item = u64> {
    let after = DISTANCES.into_iter().filter_map(move |distance| newest.checked_add(distance));
    let before = DISTANCES.into_iter().filter_map(move |distance| newest.checked_sub(distance));
    after.chain(before).filter(|&iv| iv < u64::MAX)
}

/// Receives `more` packets after those of `received`, in every way.
fn receive(window: &Window, received: &BTreeSet<u64>, more: u32, states: &mut u64) {
    *states += 1;
    let newest = *received.last().expect("one at least");
    for iv in around(newest) {
        let known = window.has(iv);
        if received.contains(&iv) {
            assert!(known, "{iv} would be taken twice after {received:?}");
        } else if iv > newest || newest - iv <= WIDTH - 64 {
            assert!(!known, "{iv} is refused after {received:?}");
        }
        if !known && more > 0 {
            let (mut window, mut received) = (window.clone(), received.clone());
            window.add(iv);
            received.insert(iv);
            // All that came before is known still, wherever the window has moved.
            assert!(received.iter().all(|&iv| window.has(iv)), "forgotten of {received:?}");
            receive(&window, &received, more - 1, states);
        }
    }
}

#[test]
fn no_packet_is_taken_twice_and_none_of_the_window_is_refused() {
    let mut states = 0;
    for base in [0, 1 << 40, u64::MAX - 20_000] {
        for alignment in [0, 1, 31, 62, 63] {
            let first = base / 64 * 64 + alignment;
            let mut window = Window::default();
            assert!(!window.has(first));
            window.add(first);
            receive(&window, &BTreeSet::from([first]), 2, &mut states);
        }
    }
    println!("{states} windows");
    assert!(states > 5_000);
}

/// What a sender's owner may do.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    /// Another secret is given.
    Rotate,
    /// The secret before the last is given again.
    RotateBack,
    /// So long passes that a secret ends.
    Wait,
    /// The other host sends under the newest secret.
    Hear,
    /// The process starts anew with the last secret.
    Restart,
}

const STEPS: [Step; 6] =
    [Step::Send, Step::Rotate, Step::RotateBack, Step::Wait, Step::Hear, Step::Restart];
const LENGTH: u32 = 6;

/// Two hosts of which one does what a test says.
struct Hosts {
    here: Seal,
    there: Seal,
    number: u8,
    secs: u64,
    used: u64,
}

fn host(local: u8, remote: u8, number: u8, first_iv: u64) -> Seal {
    let config = SealConfig {
        cipher: Cipher::Aes128Gcm,
        local: [192, 0, 2, local].into(),
        remote: [192, 0, 2, remote].into(),
        sender: U24::truncate(7),
        overlap: Duration::from_secs(60),
    };
    Seal::new(config, number, SealSecret::new([number; 32]), first_iv)
}

/// Sends a packet; its bytes.
fn send(seal: &mut Seal) -> Vec<u8> {
    let mut packet = vec![0; Seal::HEADERS_LEN + SealHeader::TAG_LEN];
    let vxlan = VxlanHeader { vni: U24::truncate(1), next: VxlanNext::Weft };
    seal.seal(vxlan, &mut packet, 0).expect("the key is new");
    packet
}

impl Hosts {
    fn new() -> Self {
        let (secs, number) = (1, 10);
        let iv = secs * 1_000_000_000;
        Self { here: host(1, 2, number, iv), there: host(2, 1, number, iv), number, secs, used: 0 }
    }

    fn rotate(&mut self, number: u8) {
        let now = Instant::EPOCH + Duration::from_secs(self.secs);
        self.number = number;
        for host in [&mut self.here, &mut self.there] {
            host.rotate(number, SealSecret::new([number; 32]), now);
        }
    }

    fn carry_out(&mut self, step: Step) {
        self.secs += 1;
        let now = Instant::EPOCH + Duration::from_secs(self.secs);
        let clock = self.secs * 1_000_000_000;
        match step {
            Step::Send => {
                let packet = send(&mut self.here);
                let (header, _) = SealHeader::parse(&packet[VxlanHeader::LEN..]).unwrap();
                // More than a nonce for each key: a number is never used again under any.
                assert!(header.iv > self.used, "{} after {}", header.iv, self.used);
                self.used = header.iv;
            }
            Step::Rotate => self.rotate(self.number + 1),
            Step::RotateBack => self.rotate(self.number - 1),
            Step::Wait => {
                self.secs += 61;
                let now = Instant::EPOCH + Duration::from_secs(self.secs);
                self.here.handle_timeout(now, self.secs * 1_000_000_000);
            }
            Step::Hear => {
                let mut peer = host(2, 1, self.number, clock);
                let mut packet = send(&mut peer);
                self.here.open(&mut packet, now).expect("a secret of both");
            }
            Step::Restart => self.here = host(1, 2, self.number, clock),
        }
    }
}

#[test]
fn no_nonce_is_used_twice_whatever_the_owner_does() {
    let count = STEPS.len();
    for code in 0..count.pow(LENGTH) {
        let steps = (0..LENGTH).map(|place| STEPS[code / count.pow(place) % count]);
        let mut hosts = Hosts::new();
        hosts.carry_out(Step::Send);
        for step in steps {
            hosts.carry_out(step);
        }
        hosts.carry_out(Step::Send);
    }
}

/// A sender stops before its numbers begin again.
#[test]
fn numbers_end_and_do_not_wrap() {
    let mut seal = host(1, 2, 2, u64::MAX - 2);
    let mut packet = vec![0; Seal::HEADERS_LEN + SealHeader::TAG_LEN];
    let vxlan = VxlanHeader { vni: U24::truncate(1), next: VxlanNext::Weft };
    let sent = (0..4).map(|_| seal.seal(vxlan, &mut packet, 0).is_ok());
    assert!(sent.eq([true, true, false, false]));
}
