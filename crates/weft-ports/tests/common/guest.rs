//! A correct driver on a [`FrontEnd`], which sends and receives frames.

use std::collections::BTreeMap;
use std::path::Path;

use weft_ports::VhostPort;

use super::front_end::{BUFFERS, FrontEnd, INDIRECT, NEXT, RECEIVES, SENDS, WRITE, bit, request};

/// Maximum bytes of a frame to send.
const SEND_BUFFER: u64 = 68 << 10;
/// Maximum number of frames that the guest has sent and not got back.
const SEND_BUFFERS: u16 = 256;
/// The address of the receive buffers.
const RECEIVE_BUFFERS: u64 = BUFFERS + SEND_BUFFER * SEND_BUFFERS as u64;

pub(crate) struct Guest {
    pub(crate) front: FrontEnd,
    /// Bytes of a receive buffer.
    receive_len: u32,
    /// Free send slots.
    free: Vec<u16>,
    /// The slots of chains in flight, by their heads.
    in_flight: BTreeMap<u16, u16>,
    /// Bytes of each piece of a frame to send.
    pub(crate) piece: usize,
    pub(crate) received: Vec<Vec<u8>>,
}

impl Guest {
    /// Starts a guest with queues of `size` descriptors and receive buffers of `receive_len` bytes.
    pub(crate) fn start(
        port: &mut VhostPort,
        socket: &Path,
        size: u16,
        features: u64,
        receive_len: u32,
    ) -> Self {
        let front = FrontEnd::start(port, socket, size, features);
        let mut guest = Self {
            front,
            receive_len,
            free: (0..SEND_BUFFERS.min(size / 4)).rev().collect(),
            in_flight: BTreeMap::new(),
            piece: usize::MAX,
            received: vec![],
        };
        for head in 0..size {
            let table = guest.front.queues[RECEIVES].table;
            guest.front.describe(table, head, (guest.receive_buffer(head), receive_len, WRITE, 0));
            guest.front.offer(RECEIVES, head);
        }
        guest.front.kick(RECEIVES);
        guest
    }

    fn receive_buffer(&self, head: u16) -> u64 {
        RECEIVE_BUFFERS + u64::from(head) * u64::from(self.receive_len)
    }

    pub(crate) fn send_buffer(slot: u16) -> u64 {
        BUFFERS + u64::from(slot) * SEND_BUFFER
    }

    /// Reclaims the buffers of frames sent. Returns their number.
    pub(crate) fn reap(&mut self) -> usize {
        let returned = self.front.returned(SENDS);
        for &(head, _) in &returned {
            self.free.push(self.in_flight.remove(&head).expect("it was in flight"));
        }
        returned.len()
    }

    /// Sends a frame with its virtio header, from one buffer or from pieces. Returns `true` if there was room.
    pub(crate) fn send(&mut self, frame: &[u8]) -> bool {
        self.reap();
        let Some(slot) = self.free.pop() else { return false };
        let buffer = Self::send_buffer(slot);
        self.front.write(buffer, frame);
        let pieces: Vec<(u64, u32)> = frame
            .chunks(self.piece.min(frame.len()))
            .scan(buffer, |at, piece| {
                let here = *at;
                *at += piece.len() as u64;
                Some((here, u32::try_from(piece.len()).unwrap()))
            })
            .collect();
        // A slot has four descriptors; a frame that needs more has an indirect table after its bytes.
        let (mut table, head) = (self.front.queues[SENDS].table, slot * 4);
        let mut first = head;
        if pieces.len() > 4 {
            assert!(self.front.features & bit::INDIRECT != 0);
            let len = u32::try_from(pieces.len() * 16).unwrap();
            let own = buffer + (66 << 10);
            self.front.describe(table, head, (own, len, INDIRECT, 0));
            (table, first) = (own, 0);
        }
        for (index, &(address, len)) in (first..).zip(&pieces) {
            let last = usize::from(index - first) == pieces.len() - 1;
            let flags = if last { 0 } else { NEXT };
            self.front.describe(table, index, (address, len, flags, index + 1));
        }
        self.in_flight.insert(head, slot);
        self.front.offer(SENDS, head);
        self.front.kick(SENDS);
        true
    }

    /// Receives the frames that arrived, and makes their buffers available again.
    pub(crate) fn receive(&mut self) {
        for head in self.collect() {
            self.front.offer(RECEIVES, head);
        }
        self.front.kick(RECEIVES);
    }

    /// Receives the frames that arrived. Returns the buffers that are free again.
    fn collect(&mut self) -> Vec<u16> {
        let mut returned = self.front.returned(RECEIVES).into_iter();
        let mergeable = self.front.features & bit::MRG_RXBUF != 0;
        let mut free = vec![];
        while let Some((head, len)) = returned.next() {
            let mut frame = self.front.read(self.receive_buffer(head), len as usize);
            free.push(head);
            if len == 0 {
                continue;
            }
            let count = u16::from_le_bytes([frame[10], frame[11]]);
            assert!(count == 1 || mergeable);
            for _ in 1..count {
                let (head, len) = returned.next().expect("a frame is shown as a whole");
                frame.extend(self.front.read(self.receive_buffer(head), len as usize));
                free.push(head);
            }
            self.received.push(frame);
        }
        free
    }

    /// Resets the device and sets it up again with empty rings. Returns the number of sent frames that were not taken.
    pub(crate) fn restart(&mut self, port: &mut VhostPort) -> usize {
        let mut untaken = 0;
        for queue in [SENDS, RECEIVES] {
            let which = u32::try_from(queue).unwrap();
            let body = [which, 0].map(u32::to_ne_bytes).concat();
            let base = self.front.ask(port, request::GET_VRING_BASE, &body) >> 32;
            if queue == SENDS {
                untaken = self.front.untaken(SENDS, u32::try_from(base).unwrap());
            }
        }
        self.reap();
        assert_eq!(self.in_flight.len(), untaken, "a frame that was taken was not given back");
        // Frames published before the reset were received.
        self.collect();
        self.free.extend(std::mem::take(&mut self.in_flight).into_values());
        for index in [RECEIVES, SENDS] {
            self.front.empty_queue(index);
            self.front.start_queue(port, index);
        }
        for head in 0..self.front.queues[RECEIVES].size {
            self.front.offer(RECEIVES, head);
        }
        untaken
    }
}

/// A unique path of a socket, which is removed when this is dropped.
pub(crate) struct Socket(pub(crate) std::path::PathBuf);

impl Socket {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("weft-ports-{}-{name}.sock", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
