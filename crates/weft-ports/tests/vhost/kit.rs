//! A port with a guest, and frames between them. Rings have the format of the test program.

use weft_ports::{VhostConfig, VhostPort};
use weft_units::{Instant, Rng};

use crate::FORMAT;
use crate::common::guest::{Guest, Socket};

/// A port and the guest behind it.
pub(crate) struct Tenant {
    pub(crate) port: VhostPort,
    pub(crate) guest: Guest,
    pub(crate) socket: Socket,
}

pub(crate) fn tenant(name: &str, size: u16, features: u64, receive_len: u32) -> Tenant {
    let socket = Socket::new(name);
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap();
    let guest = Guest::start(&mut port, &socket.0, size, features | FORMAT, receive_len);
    Tenant { port, guest, socket }
}

/// Returns a frame of an unassigned EtherType with a virtio header without offloads, `len` bytes in total.
pub(crate) fn frame(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
    bytes[..12].fill(0);
    bytes[12..24].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    bytes[24..26].copy_from_slice(&[0x88, 0xb5]);
    bytes
}

pub(crate) fn millis(count: u64) -> Instant {
    Instant::from_nanos(count * 1_000_000)
}

/// Returns a received frame without the header's `num_buffers`, which the port sets.
pub(crate) fn sent_part(received: &[u8]) -> &[u8] {
    &received[12..]
}
