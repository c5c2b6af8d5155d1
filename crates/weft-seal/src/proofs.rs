//! Bounded proofs of the two defences against replay: the window of received packets rejects every
//! repeat, and no nonce is used twice (`docs/design/proofs.md`).

use std::collections::BTreeSet;

use weft_transport::ConnectionId;
use weft_wire::{Cipher, SealedContent, SealedHeader};

use crate::PublicKey;
use crate::channel::Channel;
use crate::exchange::Agreed;
use crate::key::Secret;
use crate::window::{WIDTH, Window};

/// Distances from the newest packet at which the window's behaviour changes: its ring moves by
/// words of 64.
const DISTANCES: [u64; 16] = [
    0,
    1,
    2,
    63,
    64,
    65,
    65_471,
    65_472,
    65_473,
    65_535,
    65_536,
    65_537,
    65_600,
    65_601,
    65_664,
    1 << 33,
];

/// Returns the numbers at these distances on either side of `newest`, without the greatest, which no sender uses.
fn around(newest: u64) -> impl Iterator<Item = u64> {
    let after = DISTANCES.into_iter().filter_map(move |distance| newest.checked_add(distance));
    let before = DISTANCES.into_iter().filter_map(move |distance| newest.checked_sub(distance));
    after.chain(before).filter(|&iv| iv < u64::MAX)
}

/// Receives `more` packets after those of `received`, in every order; counts the windows in `states`.
fn receive(window: &Window, received: &BTreeSet<u64>, more: u32, states: &mut u64) {
    *states += 1;
    let newest = *received.last().expect("one at least");
    for iv in around(newest) {
        let known = window.has(iv);
        if received.contains(&iv) {
            assert!(known, "{iv} would be taken twice after {received:?}");
        } else if iv > newest || newest - iv < WIDTH {
            assert!(!known, "{iv} is refused after {received:?}");
        }
        if !known && more > 0 {
            let (mut window, mut received) = (window.clone(), received.clone());
            window.add(iv);
            received.insert(iv);
            // All earlier packets are still known, wherever the window has moved.
            assert!(received.iter().all(|&iv| window.has(iv)), "forgotten of {received:?}");
            receive(&window, &received, more - 1, states);
        }
    }
}

#[test]
fn no_packet_is_taken_twice_and_none_of_the_window_is_refused() {
    let mut states = 0;
    for base in [0, 1 << 40, u64::MAX - 200_000] {
        for alignment in [0, 1, 31, 62, 63] {
            let first = base / 64 * 64 + alignment;
            let mut window = Window::default();
            assert!(!window.has(first));
            window.add(first);
            receive(&window, &BTreeSet::from([first]), 2, &mut states);
        }
    }
    assert!(states > 5_000, "{states} windows");
    // The last number would be accepted repeatedly, so it never is.
    assert!(Window::default().has(u64::MAX));
}

/// Checks numbers around each edge of the low half, for different newest packets.
#[test]
fn a_number_is_completed_from_its_low_half() {
    for high in 0..41 {
        for newest in [(1_u64 << 22 << high) - 1, 1 << 22 << high, (3 << 22 << high) + 7] {
            let mut window = Window::default();
            window.add(newest);
            for distance in 0..1 << 16 {
                for iv in [newest - distance, newest + distance] {
                    let low = u32::try_from(iv & u64::from(u32::MAX)).unwrap();
                    assert_eq!(window.complete(low), iv, "{iv} after {newest}");
                }
            }
        }
    }
}

/// The events of a sender.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    /// A packet leaves and is lost.
    SendLost,
    /// The key lifetime expires.
    ChangeKey,
    /// The number of packets under one key reaches its limit.
    ExhaustKey,
    /// The peer changes its key and sends.
    Receive,
}

const STEPS: [Step; 5] =
    [Step::Send, Step::SendLost, Step::ChangeKey, Step::ExhaustKey, Step::Receive];
const LENGTH: u32 = 7;

fn channel(remote: u32, secrets: [u8; 2]) -> Channel {
    let [sending, receiving] = secrets.map(|first| Secret::new([first; 32]));
    let peer = PublicKey([9; 32]);
    let agreed = Agreed { sending, receiving, cipher: Cipher::Aes128Gcm, peer };
    Channel::new(remote, agreed, Cipher::Aes128Gcm, 0, None)
}

fn send(channel: &mut Channel, epoch: u32) -> Vec<u8> {
    let mut packet = vec![0; SealedHeader::OVERHEAD];
    channel.seal(SealedContent::Packet, 0, &mut packet, epoch);
    packet
}

fn opens(channel: &mut Channel, packet: &mut [u8]) -> bool {
    let (header, _) = SealedHeader::parse(packet).unwrap();
    channel.open(&header, 0, packet).is_ok()
}

#[test]
fn no_nonce_is_used_twice_whatever_happens() {
    let count = STEPS.len();
    for code in 0..count.pow(LENGTH) {
        let steps = (0..LENGTH).map(|place| STEPS[code / count.pow(place) % count]);
        let (mut here, mut there) = (channel(7, [1, 2]), channel(8, [2, 1]));
        let (mut epoch, mut peer_epoch, mut number, mut used) = (0, 0, 0_u64, None);
        for step in steps.chain([Step::Send]) {
            match step {
                Step::ChangeKey => epoch += 1,
                Step::ExhaustKey => {
                    number += 1 << 32;
                    here.skip_to(number);
                }
                Step::Receive => {
                    peer_epoch += 1;
                    let mut packet = send(&mut there, peer_epoch);
                    assert!(opens(&mut here, &mut packet));
                }
                Step::Send | Step::SendLost => {
                    let mut packet = send(&mut here, epoch);
                    let (header, _) = SealedHeader::parse(&packet).unwrap();
                    assert_eq!(
                        (header.spi, u64::from(header.iv)),
                        (7, number & u64::from(u32::MAX))
                    );
                    // Stronger than a unique nonce for each key: a number is never reused under any
                    // key.
                    assert!(used.is_none_or(|used| number > used), "{number} after {used:?}");
                    used = Some(number);
                    number += 1;
                    // Skipped numbers leave no gap that a peer could fill.
                    let skipped = matches!(step, Step::Send) && number < 1 << 31;
                    assert!(!skipped || opens(&mut there, &mut packet), "{step:?}");
                }
            }
        }
        assert_eq!(ConnectionId(here.remote), ConnectionId(7));
    }
}
