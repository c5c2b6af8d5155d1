//! A host's simulated vNICs: the frames that tenants sent, and the buffers that frames arrive in.

use std::collections::VecDeque;

use weft_vpc::{PortId, Reading, Slot, Staging, Tenants, Token, Turn};

use super::frame::{MAX_HEADERS, write_body};

/// A frame that a tenant sent: its headers, and the stream and position of the bytes that follow them.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) headers: [u8; MAX_HEADERS],
    pub(super) header_len: usize,
    pub(super) stream: u32,
    pub(super) position: u64,
    pub(super) payload_len: u16,
}

impl Sent {
    /// Returns the frame's length with its virtio-net header, bytes.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.header_len).expect("headers are short") + u32::from(self.payload_len)
    }

    /// Copies the frame's bytes from `offset` on. Bytes past the frame's end are those that follow in the stream.
    pub(super) fn read(&self, offset: u32, out: &mut [u8]) {
        let offset = offset as usize;
        let head = self.headers[..self.header_len].get(offset..).unwrap_or_default();
        let (first, rest) = out.split_at_mut(head.len().min(out.len()));
        first.copy_from_slice(&head[..first.len()]);
        let at = (offset + first.len() - self.header_len.min(offset + first.len())) as u64;
        write_body(self.stream, self.position + at, rest);
    }
}

/// Values by their place; freed places are reused.
#[derive(Debug)]
struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    fn insert(&mut self, value: T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("fewer than 2^32 at once")
        });
        self.places[place as usize] = Some(value);
        place
    }

    fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    fn remove(&mut self, place: u32) -> Option<T> {
        let value = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        if self.free.len() == self.places.len() {
            // An empty slab holds no memory.
            (self.places, self.free) = (Vec::new(), Vec::new());
        }
        Some(value)
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

/// Maximum number of free buffers that are kept.
const MAX_FREE_BUFFERS: usize = 64;

/// The vNICs of a host.
#[derive(Debug)]
pub(super) struct Nics {
    sent: Slab<Sent>,
    claimed: Slab<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Number of claimed buffers, by port.
    claimed_by_port: Vec<u32>,
    /// Number of buffers of each port.
    buffers: u32,
    /// Completed frames that tenants have not yet received, oldest first.
    received: VecDeque<Vec<u8>>,
}

impl Nics {
    pub(super) fn new(ports: u32, buffers: u32) -> Self {
        Self {
            sent: Slab::default(),
            claimed: Slab::default(),
            spare: Vec::new(),
            claimed_by_port: vec![0; ports as usize],
            buffers,
            received: VecDeque::new(),
        }
    }

    /// Stores a frame until the switch releases it, and returns its token.
    pub(super) fn send(&mut self, frame: Sent) -> Token {
        Token(self.sent.insert(frame))
    }

    /// Returns the next frame that a tenant received. The caller gives it back with [`recycle`](Self::recycle).
    pub(super) fn poll_frame(&mut self) -> Option<Vec<u8>> {
        self.received.pop_front()
    }

    pub(super) fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < MAX_FREE_BUFFERS {
            self.spare.push(frame);
        }
    }

    fn take(&mut self, port: PortId, slot: Slot) -> Option<Vec<u8>> {
        let frame = self.claimed.remove(slot.0)?;
        self.claimed_by_port[port.0 as usize] -= 1;
        Some(frame)
    }
}

impl Tenants for Nics {
    fn read(&mut self, _: PortId, token: Token, offset: u32, out: &mut [u8], _: Reading) {
        match self.sent.get(token.0) {
            Some(frame) => frame.read(offset, out),
            None => out.fill(0),
        }
    }

    fn release(&mut self, _: PortId, token: Token) {
        self.sent.remove(token.0);
    }

    fn claim(&mut self, port: PortId, len: u32, turn: Turn, _: Staging, _: &[u8]) -> Option<Slot> {
        let claimed_by_port = self.claimed_by_port.get_mut(port.0 as usize)?;
        let reserved = u32::from(turn == Turn::OutOfOrder);
        if *claimed_by_port + reserved >= self.buffers {
            return None;
        }
        *claimed_by_port += 1;
        let mut frame = self.spare.pop().unwrap_or_default();
        // Bytes that are never placed must differ from the buffer's previous content.
        frame.clear();
        frame.resize(len as usize, 0);
        Some(Slot(self.claimed.insert(frame)))
    }

    fn place(&mut self, _: PortId, slot: Slot, offset: u32, bytes: &[u8]) {
        let frame = self.claimed.get_mut(slot.0).expect("the switch claimed it");
        frame[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn peek(&mut self, _: PortId, slot: Slot, out: &mut [u8]) -> usize {
        let frame = self.claimed.get(slot.0).expect("the switch claimed it");
        let len = frame.len().min(out.len());
        out[..len].copy_from_slice(&frame[..len]);
        len
    }

    fn complete(&mut self, port: PortId, slot: Slot) {
        let frame = self.take(port, slot).expect("the switch claimed it");
        self.received.push_back(frame);
    }

    fn cancel(&mut self, port: PortId, slot: Slot) {
        if let Some(frame) = self.take(port, slot) {
            self.recycle(frame);
        }
    }
}
