//! Tests of vhost-user ports with a hand-written driver.

#[path = "../common/mod.rs"]
mod common;

mod custody;
mod hostile;
mod lifecycle;
mod offload;
mod order;
mod swarm;
mod transfer;

use common::guest::{Guest, Socket};
use weft_ports::{VhostConfig, VhostPort};
use weft_units::{Instant, Rng};

/// A port and the guest behind it.
struct Tenant {
    port: VhostPort,
    guest: Guest,
    socket: Socket,
}

fn tenant(name: &str, size: u16, features: u64, receive_len: u32) -> Tenant {
    let socket = Socket::new(name);
    let mut port = VhostPort::open(&VhostConfig::at(&socket.0)).unwrap();
    let guest = Guest::start(&mut port, &socket.0, size, features, receive_len);
    Tenant { port, guest, socket }
}

/// Returns a frame of an unassigned EtherType with a virtio header without offloads, `len` bytes in total.
fn frame(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
    bytes[..12].fill(0);
    bytes[12..24].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    bytes[24..26].copy_from_slice(&[0x88, 0xb5]);
    bytes
}

fn millis(count: u64) -> Instant {
    Instant::from_nanos(count * 1_000_000)
}

/// Returns a received frame without the header's `num_buffers`, which the port sets.
fn sent_part(received: &[u8]) -> &[u8] {
    &received[12..]
}
