//! A front end and its guest's driver, written by hand, so that it can violate the protocols.

use std::fs::File;
use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use weft_ports::{Port, PortError, VhostPort};
use weft_units::Instant;

use super::packed::PackedDriver;

pub(crate) const RECEIVES: usize = 0;
pub(crate) const SENDS: usize = 1;

/// Features by bit (virtio 1.2, 5.1.3 and 6).
pub(crate) mod bit {
    pub(crate) const CSUM: u64 = 1 << 0;
    pub(crate) const GUEST_CSUM: u64 = 1 << 1;
    pub(crate) const GUEST_TSO4: u64 = 1 << 7;
    pub(crate) const GUEST_TSO6: u64 = 1 << 8;
    pub(crate) const GUEST_ECN: u64 = 1 << 9;
    pub(crate) const HOST_TSO4: u64 = 1 << 11;
    pub(crate) const MRG_RXBUF: u64 = 1 << 15;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const MQ: u64 = 1 << 22;
    pub(crate) const LOG_ALL: u64 = 1 << 26;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    pub(crate) const PACKED: u64 = 1 << 34;
}

/// The features that a normal Linux guest accepts.
pub(crate) const USUAL: u64 = bit::CSUM
    | bit::GUEST_CSUM
    | bit::GUEST_TSO4
    | bit::GUEST_TSO6
    | bit::GUEST_ECN
    | bit::HOST_TSO4
    | bit::MRG_RXBUF
    | bit::INDIRECT
    | bit::EVENT_IDX
    | bit::PROTOCOL
    | bit::VERSION_1;

/// The numbers of requests.
pub(crate) mod request {
    pub(crate) const GET_FEATURES: u32 = 1;
    pub(crate) const SET_FEATURES: u32 = 2;
    pub(crate) const SET_OWNER: u32 = 3;
    pub(crate) const SET_MEM_TABLE: u32 = 5;
    pub(crate) const SET_LOG_BASE: u32 = 6;
    pub(crate) const SET_VRING_NUM: u32 = 8;
    pub(crate) const SET_VRING_ADDR: u32 = 9;
    pub(crate) const SET_VRING_BASE: u32 = 10;
    pub(crate) const GET_VRING_BASE: u32 = 11;
    pub(crate) const SET_VRING_KICK: u32 = 12;
    pub(crate) const SET_VRING_CALL: u32 = 13;
    pub(crate) const SET_VRING_ERR: u32 = 14;
    pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(crate) const GET_QUEUE_NUM: u32 = 17;
    pub(crate) const SEND_RARP: u32 = 19;
    pub(crate) const SET_VRING_ENABLE: u32 = 18;
    pub(crate) const GET_MAX_MEM_SLOTS: u32 = 36;
    pub(crate) const ADD_MEM_REG: u32 = 37;
    pub(crate) const REM_MEM_REG: u32 = 38;
}

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Guest memory: 64 MiB, of which the rings take the first mebibyte.
pub(crate) const MEMORY: u64 = 64 << 20;
/// The front end's address of the guest's memory.
const USER: u64 = 0x7f00_0000_0000;
pub(crate) const BUFFERS: u64 = 1 << 20;
/// The rings of further pairs of queues.
const MORE_QUEUES: u64 = 40 << 20;

/// A queue of the driver.
pub(crate) struct Queue {
    pub(crate) size: u16,
    pub(crate) table: u64,
    pub(crate) offered: u64,
    pub(crate) used: u64,
    pub(crate) next_offer: u16,
    pub(crate) next_used: u16,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
    pub(crate) error: OwnedFd,
    pub(crate) packed: PackedDriver,
}

pub(crate) struct FrontEnd {
    pub(crate) stream: UnixStream,
    pub(crate) memory: GuestMemoryMmap,
    pub(crate) file: File,
    pub(crate) queues: Vec<Queue>,
    pub(crate) features: u64,
}

impl Queue {
    fn new(base: u64, size: u16) -> Self {
        Self {
            size,
            table: base,
            offered: base + (128 << 10),
            used: base + (256 << 10),
            next_offer: 0,
            next_used: 0,
            kick: event(),
            call: event(),
            error: event(),
            packed: PackedDriver::default(),
        }
    }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

impl FrontEnd {
    /// Connects to a port and sends no request.
    pub(crate) fn connect(socket: &Path, size: u16, features: u64) -> Self {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, MEMORY).unwrap();
        let mapped = (
            GuestAddress(0),
            usize::try_from(MEMORY).unwrap(),
            Some(FileOffset::new(file.try_clone().unwrap(), 0)),
        );
        let memory = GuestMemoryMmap::from_ranges_with_files([mapped]).unwrap();
        let queue = |base: u64| Queue::new(base, size);
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let queues = [0, 512 << 10].map(queue).into();
        Self { stream, memory, file, queues, features }
    }

    /// Adds pairs of queues of `size` descriptors until there are `pairs`, and starts the new ones.
    pub(crate) fn start_pairs(&mut self, port: &mut VhostPort, size: u16, pairs: usize) {
        for queue in self.queues.len()..2 * pairs {
            self.queues.push(Queue::new(MORE_QUEUES + (512 << 10) * queue as u64, size));
            self.start_queue(port, queue);
        }
    }

    /// Enables or disables a queue.
    pub(crate) fn set_enabled(&self, port: &mut VhostPort, queue: usize, enabled: bool) {
        let body = [u32::try_from(queue).unwrap(), enabled.into()].map(u32::to_ne_bytes).concat();
        self.send_request(port, request::SET_VRING_ENABLE, &body, &[]);
    }

    /// Connects, negotiates, shares memory and starts the queues.
    pub(crate) fn start(port: &mut VhostPort, socket: &Path, size: u16, features: u64) -> Self {
        let mut front = Self::connect(socket, size, features);
        front.negotiate(port);
        front.share_memory(port);
        (0..2).for_each(|queue| front.start_queue(port, queue));
        assert!(port.is_up());
        front
    }

    pub(crate) fn negotiate(&mut self, port: &mut VhostPort) {
        let offered = self.ask(port, request::GET_FEATURES, &[]);
        assert_eq!(self.features & !offered, 0, "the port offers {offered:#x}");
        let protocol = self.ask(port, request::GET_PROTOCOL_FEATURES, &[]);
        self.send_request(port, request::SET_PROTOCOL_FEATURES, &protocol.to_ne_bytes(), &[]);
        self.send_request(port, request::SET_OWNER, &[], &[]);
        self.send_request(port, request::SET_FEATURES, &self.features.to_ne_bytes(), &[]);
    }

    pub(crate) fn share_memory(&self, port: &mut VhostPort) {
        let table = [1, 0, MEMORY, USER, 0].map(u64::to_ne_bytes).concat();
        self.send_request(port, request::SET_MEM_TABLE, &table, &[self.file.as_fd()]);
    }

    pub(crate) fn start_queue(&self, port: &mut VhostPort, index: usize) {
        let queue = &self.queues[index];
        let number = u32::try_from(index).unwrap();
        let state = |value: u32| [number, value].map(u32::to_ne_bytes).concat();
        let place = number.to_ne_bytes().into_iter().chain([0; 4]);
        let (places, base) = if self.features & bit::PACKED == 0 {
            ([queue.table, queue.used, queue.offered], u32::from(queue.next_offer))
        } else {
            (queue.packed.places(queue), queue.packed.base())
        };
        let places = places.map(|at| (USER + at).to_ne_bytes());
        let address: Vec<u8> = place.chain(places.concat()).chain([0; 8]).collect();
        self.send_request(port, request::SET_VRING_NUM, &state(u32::from(queue.size)), &[]);
        self.send_request(port, request::SET_VRING_BASE, &state(base), &[]);
        self.send_request(port, request::SET_VRING_ADDR, &address, &[]);
        let which = u64::from(number).to_ne_bytes();
        self.send_request(port, request::SET_VRING_CALL, &which, &[queue.call.as_fd()]);
        self.send_request(port, request::SET_VRING_ERR, &which, &[queue.error.as_fd()]);
        self.send_request(port, request::SET_VRING_KICK, &which, &[queue.kick.as_fd()]);
        self.send_request(port, request::SET_VRING_ENABLE, &state(1), &[]);
        let _ = self.interrupts(index);
    }

    /// Sets a queue up again, whether the port accepts it or not.
    pub(crate) fn start_queue_again(&self, port: &mut VhostPort, index: usize) {
        let number = u32::try_from(index).unwrap();
        let which = u64::from(number).to_ne_bytes();
        let kick = self.queues[index].kick.as_fd();
        let _ = self.try_send_request(port, request::SET_VRING_KICK, &which, &[kick]);
        let enabled = [number, 1].map(u32::to_ne_bytes).concat();
        let _ = self.try_send_request(port, request::SET_VRING_ENABLE, &enabled, &[]);
    }

    /// Sends a request, which the port serves at once.
    pub(crate) fn try_send_request(
        &self,
        port: &mut VhostPort,
        request: u32,
        body: &[u8],
        files: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<(), PortError> {
        self.send(request, body, files);
        port.service(Instant::EPOCH)
    }

    pub(crate) fn send(&self, request: u32, body: &[u8], files: &[std::os::fd::BorrowedFd<'_>]) {
        let size = u32::try_from(body.len()).unwrap();
        let bytes = [&[request, 1, size].map(u32::to_ne_bytes).concat(), body].concat();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        let sent =
            sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
        // A port that has disconnected does not receive it.
        assert!(sent.is_err() || sent == Ok(bytes.len()));
    }

    pub(crate) fn send_request(
        &self,
        port: &mut VhostPort,
        request: u32,
        body: &[u8],
        files: &[std::os::fd::BorrowedFd<'_>],
    ) {
        self.try_send_request(port, request, body, files).unwrap();
    }

    /// Sends a request and returns its reply, a number of eight bytes.
    pub(crate) fn ask(&mut self, port: &mut VhostPort, request: u32, body: &[u8]) -> u64 {
        self.send_request(port, request, body, &[]);
        let mut reply = [0; 20];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], request.to_ne_bytes());
        u64::from_ne_bytes(reply[12..].try_into().unwrap())
    }

    pub(crate) fn describe(&self, table: u64, index: u16, fields: (u64, u32, u16, u16)) {
        let (address, len, flags, next) = fields;
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend([flags.to_le_bytes(), next.to_le_bytes()].concat());
        self.memory.write_slice(&bytes, GuestAddress(table + 16 * u64::from(index))).unwrap();
    }

    /// Makes the chain that begins at `head` available.
    pub(crate) fn offer(&mut self, queue: usize, head: u16) {
        if self.features & bit::PACKED != 0 {
            return self.offer_packed(queue, head);
        }
        let Queue { size, offered, next_offer, .. } = &mut self.queues[queue];
        let entry = GuestAddress(*offered + 4 + 2 * u64::from(*next_offer % *size));
        self.memory.write_obj(head, entry).unwrap();
        *next_offer = next_offer.wrapping_add(1);
        self.memory.store(*next_offer, GuestAddress(*offered + 2), Ordering::Release).unwrap();
    }

    pub(crate) fn kick(&self, queue: usize) {
        rustix::io::write(&self.queues[queue].kick, &1_u64.to_ne_bytes()).unwrap();
    }

    /// Returns the chains used since the last call: their heads and the bytes written.
    pub(crate) fn returned(&mut self, queue: usize) -> Vec<(u16, u32)> {
        if self.features & bit::PACKED != 0 {
            return self.returned_packed(queue);
        }
        let Queue { size, used, next_used, .. } = &mut self.queues[queue];
        let end: u16 = self.memory.load(GuestAddress(*used + 2), Ordering::Acquire).unwrap();
        let mut returned = vec![];
        while *next_used != end {
            let entry = GuestAddress(*used + 4 + 8 * u64::from(*next_used % *size));
            let [head, len]: [u32; 2] =
                [0, 4].map(|at| self.memory.read_obj(GuestAddress(entry.0 + at)).unwrap());
            returned.push((u16::try_from(head).unwrap(), len));
            *next_used = next_used.wrapping_add(1);
        }
        returned
    }

    /// Returns the number of chains that were offered and not taken by a port that answered with this base.
    pub(crate) fn untaken(&self, queue: usize, base: u32) -> usize {
        let queue = &self.queues[queue];
        if self.features & bit::PACKED != 0 {
            return queue.packed.untaken(base);
        }
        queue.next_offer.wrapping_sub(u16::try_from(base).unwrap()).into()
    }

    /// Empties the rings of a queue, as a driver does that resets its device.
    pub(crate) fn empty_queue(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        (queue.next_offer, queue.next_used) = (0, 0);
        queue.packed = PackedDriver::default();
        let (offered, used, size) = (queue.offered, queue.used, usize::from(queue.size));
        let ring = if self.features & bit::PACKED == 0 { 4 } else { 16 * size };
        self.write(offered, &vec![0; ring]);
        self.write(used, &[0; 128]);
    }

    /// Requests an interrupt when the buffer at this index of a new ring is used.
    pub(crate) fn request_interrupt(&self, queue: usize, index: u16) {
        let Queue { size, offered, used, .. } = self.queues[queue];
        if self.features & bit::PACKED != 0 {
            let at = weft_ports::Position { index, wrap: true };
            // The flags of a request for one descriptor.
            return self.write(used, &[at.bits(), 2].map(u16::to_le_bytes).concat());
        }
        let event = GuestAddress(offered + 4 + 2 * u64::from(size));
        self.memory.store(index, event, Ordering::Release).unwrap();
    }

    /// Returns the number of interrupts since the last call.
    pub(crate) fn interrupts(&self, queue: usize) -> u64 {
        let mut count = [0; 8];
        let read = rustix::io::read(&self.queues[queue].call, &mut count);
        if read.is_ok() { u64::from_ne_bytes(count) } else { 0 }
    }

    /// Returns `true` if the port has reported a broken queue.
    pub(crate) fn is_broken(&self, queue: usize) -> bool {
        rustix::io::read(&self.queues[queue].error, &mut [0; 8]).is_ok()
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).unwrap();
    }

    pub(crate) fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }
}
