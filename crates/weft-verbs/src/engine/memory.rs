//! Access of the device to programs' memory. Every range that comes here lies in a region that a program registered,
//! with the rights the access needs. The program guarantees that it stays mapped until it is deregistered, as with
//! hardware: if the program is another process, a breach is detected.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use weft_rnic::{AtomicOperation, Held, Memory, Owner, PayloadLost, Place};
use weft_transport::ConnectionId;
use weft_wire::{Ipv4Header, Ipv4Options, Ipv6Header};

use super::blocking;

/// The owner of this process's memory.
pub(crate) const OWNER: Owner = Owner::Host(0);

/// Returns the owner of another process's memory. The descriptor is of its `/proc/self/mem`: it refers to the memory
/// that the process had when it opened it, even if the process's ID or program changes.
pub(crate) fn owner_of(memory: BorrowedFd<'_>) -> Owner {
    Owner::Guest(memory.as_raw_fd().cast_unsigned())
}

/// An access to memory of this owner failed, or did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) Owner);

/// Returns another process's memory, while its region is registered: the tenant keeps the descriptor for longer.
fn other(owner: Owner) -> Option<RawFd> {
    let Owner::Guest(descriptor) = owner else { return None };
    Some(descriptor.cast_signed())
}

/// The payload of the current packet in place: in a datagram, or in memory that its sender may still change. So it is
/// copied once, and never inspected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload<'a> {
    start: *const u8,
    len: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> Payload<'a> {
    pub(crate) const fn of(bytes: &'a [u8]) -> Self {
        Self { start: bytes.as_ptr(), len: bytes.len(), bytes: PhantomData }
    }

    /// Wraps payload in shared memory.
    ///
    /// # Safety
    /// `len` bytes from `start` may be read for as long as this lives.
    pub(crate) const unsafe fn shared(start: *const u8, len: usize) -> Self {
        Self { start, len, bytes: PhantomData }
    }

    /// Returns a part of it.
    ///
    /// # Panics
    /// If the range is not inside it.
    fn part(&self, from: usize, len: usize) -> Self {
        assert!(from <= self.len && len <= self.len - from, "a part of the payload");
        // SAFETY: the range was checked above.
        Self { start: unsafe { self.start.add(from) }, len, ..*self }
    }

    pub(crate) fn to_boxed(self) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(self.len);
        // SAFETY: both have `len` bytes, and all of the copy's are written.
        unsafe {
            core::ptr::copy_nonoverlapping(self.start, bytes.as_mut_ptr(), self.len);
            bytes.set_len(self.len);
        }
        bytes.into()
    }
}

/// Payload that arrived too early to be placed.
#[derive(Debug, Default)]
pub(crate) struct HeldPayload(BTreeMap<Held, Box<[u8]>>);

impl HeldPayload {
    /// Drops the payload of an ended connection.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        self.0.retain(|packet, _| packet.connection != connection);
    }
}

/// The memory, while one packet is handled.
#[derive(Debug)]
pub(crate) struct ProcessMemory<'a> {
    pub(crate) payload: Payload<'a>,
    pub(crate) held: &'a mut HeldPayload,
    pub(crate) faults: &'a mut Vec<Fault>,
    /// The local address at which the packet arrived.
    pub(crate) local: IpAddr,
}

impl ProcessMemory<'_> {
    fn note(&mut self, done: Result<(), Fault>) {
        self.faults.extend(done.err());
    }

    /// Changes eight bytes; returns the former value, or zero if the memory does not exist.
    fn update(&mut self, place: Place, change: impl Fn(u64) -> u64) -> u64 {
        let updated = update(place, change);
        self.faults.extend(updated.err());
        updated.unwrap_or(0)
    }
}

/// Copies a range to the start of `out`; returns the rest of `out`.
///
/// # Errors
/// The memory does not exist.
pub(crate) fn read(place: Place, out: &mut [u8]) -> Result<&mut [u8], Fault> {
    let (bytes, rest) = out.split_at_mut(place.len as usize);
    // SAFETY: `bytes` has the length of the range.
    unsafe { fetch(place, bytes.as_mut_ptr()) }.map(|()| rest)
}

/// Copies a range to `to`.
///
/// # Errors
/// The memory does not exist.
///
/// # Safety
/// `to` has room for the length of the range.
pub(crate) unsafe fn fetch(place: Place, to: *mut u8) -> Result<(), Fault> {
    let len = place.len as usize;
    if let Some(memory) = other(place.owner) {
        let at = offset(place)?;
        // SAFETY: guaranteed by the caller.
        let is_there = unsafe { blocking::read(place.owner, memory, at, to, len) };
        return if is_there { Ok(()) } else { Err(Fault(place.owner)) };
    }
    // SAFETY: the range is registered memory of this process (see the module), and the caller guarantees `to`. A
    // program that changes it meanwhile sends a mixture, as with hardware.
    unsafe { core::ptr::copy_nonoverlapping(address(place), to, len) };
    Ok(())
}

/// Copies bytes to a range of the same length. The last byte is stored after the others: programs wait for it to
/// change, and a string instruction gives no order of its bytes.
fn write(place: Place, bytes: Payload<'_>) -> Result<(), Fault> {
    let len = bytes.len;
    assert_eq!(len, place.len as usize, "a place is as long as what goes there");
    let Some(others) = len.checked_sub(1) else { return Ok(()) };
    if let Some(memory) = other(place.owner) {
        let at = offset(place)?;
        // SAFETY: the bytes are the payload's.
        let is_there = unsafe { blocking::write(place.owner, memory, at, bytes.start, len) };
        return if is_there { Ok(()) } else { Err(Fault(place.owner)) };
    }
    let to = address(place);
    // SAFETY: the range is registered memory of this process (see the module). Programs may read it meanwhile: it is
    // the program's memory and no reference of Rust refers to it.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.start, to, others);
        AtomicU8::from_ptr(to.add(others)).store(bytes.start.add(others).read(), Ordering::Release);
    }
    Ok(())
}

/// Returns the offset of a range in the file of its owner's memory.
fn offset(place: Place) -> Result<libc::off_t, Fault> {
    libc::off_t::try_from(place.address).map_err(|_| Fault(place.owner))
}

fn address(place: Place) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(
        usize::try_from(place.address).expect("64-bit addresses"),
    )
}

/// Changes eight bytes atomically for all observers; returns the former value. Programs register memory for atomics at
/// addresses divisible by eight; at another address, or in another process, only this device's own atomics are atomic
/// (`IBV_ATOMIC_HCA`).
fn update(place: Place, change: impl Fn(u64) -> u64) -> Result<u64, Fault> {
    if other(place.owner).is_some() {
        let mut word = [0; 8];
        read(place, &mut word)?;
        let before = u64::from_ne_bytes(word);
        write(place, Payload::of(&change(before).to_ne_bytes()))?;
        return Ok(before);
    }
    let word = address(place).cast::<u64>();
    if word.is_aligned() {
        // SAFETY: the pointer is aligned, and in registered memory of this process (see the module).
        let word = unsafe { AtomicU64::from_ptr(word) };
        let changed = |before| Some(change(before));
        return match word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed) {
            Ok(before) | Err(before) => Ok(before),
        };
    }
    // SAFETY: this is registered memory of this process (see the module).
    unsafe {
        let before = word.read_unaligned();
        word.write_unaligned(change(before));
        Ok(before)
    }
}

impl Memory for ProcessMemory<'_> {
    #[inline]
    fn place(&mut self, place: Place, from: u16) -> Result<(), PayloadLost> {
        let part = self.payload.part(from.into(), place.len as usize);
        self.note(write(place, part));
        Ok(())
    }

    fn hold(&mut self, packet: Held) -> Result<(), PayloadLost> {
        self.held.0.insert(packet, self.payload.to_boxed());
        Ok(())
    }

    fn place_held(&mut self, packet: Held, place: Place, from: u16) {
        if let Some(payload) = self.held.0.get(&packet) {
            let part = Payload::of(payload).part(from.into(), place.len as usize);
            let written = write(place, part);
            self.note(written);
        }
    }

    fn release(&mut self, packet: Held) {
        self.held.0.remove(&packet);
    }

    fn write(&mut self, place: Place, bytes: &[u8]) {
        self.note(write(place, Payload::of(bytes)));
    }

    fn route_header(&mut self, from: SocketAddr, length: u32) -> [u8; 40] {
        route_header(from.ip(), self.local, length)
    }

    fn atomic(&mut self, place: Place, operation: AtomicOperation) -> u64 {
        self.update(place, |before| operation.apply(before))
    }
}

/// Returns the header that a program finds before a datagram: the IPv6 header, or an IPv4 header in the last 20 bytes
/// (IBTA annex A17).
fn route_header(source: IpAddr, destination: IpAddr, length: u32) -> [u8; 40] {
    const UDP: u8 = 17;
    const HOPS: u8 = 64;
    let mut bytes = [0; 40];
    let payload_len = u16::try_from(length).unwrap_or(u16::MAX);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = Ipv4Header {
                dscp: Default::default(),
                ecn: Default::default(),
                payload_len: payload_len.min(u16::MAX - 20),
                identification: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: Default::default(),
                ttl: HOPS,
                protocol: UDP,
                source,
                destination,
                options: Ipv4Options::NONE,
            };
            header.emit(&mut bytes[20..]);
        }
        (source, destination) => {
            let wide = |ip| match ip {
                IpAddr::V4(ip) => std::net::Ipv4Addr::to_ipv6_mapped(&ip),
                IpAddr::V6(ip) => ip,
            };
            let header = Ipv6Header {
                dscp: Default::default(),
                ecn: Default::default(),
                flow_label: Default::default(),
                payload_len,
                next_header: UDP,
                hop_limit: HOPS,
                source: wide(source),
                destination: wide(destination),
            };
            header.emit(&mut bytes);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn place_of(bytes: &mut [u8]) -> Place {
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        Place { owner: OWNER, address, len: u32::try_from(bytes.len()).unwrap() }
    }

    #[test]
    fn bytes_are_written_to_and_read_from_their_place() {
        let mut there = [0; 5];
        write(place_of(&mut there), Payload::of(b"hello")).unwrap();
        assert_eq!(&there, b"hello");
        let mut out = [0; 7];
        assert_eq!(read(place_of(&mut there), &mut out).unwrap().len(), 2);
        assert_eq!(&out, b"hello\0\0");
    }

    #[test]
    fn atomics_return_the_former_value_aligned_or_not() {
        let mut words = [0_u64; 3];
        for skip in [0, 3] {
            let address = words.as_mut_ptr().expose_provenance() as u64 + skip;
            let place = Place { owner: OWNER, address, len: 8 };
            let (mut held, mut faults) = (HeldPayload::default(), Vec::new());
            let local = IpAddr::from([127, 0, 0, 1]);
            let (held, faults) = (&mut held, &mut faults);
            let mut memory = ProcessMemory { payload: Payload::of(&[]), held, faults, local };
            let add = |add| AtomicOperation::FetchAdd { add };
            let swap = |compare, swap| AtomicOperation::CompareSwap { compare, swap };
            let before = memory.atomic(place, add(7));
            assert_eq!(memory.atomic(place, swap(before + 7, 50)), before + 7);
            assert_eq!(memory.atomic(place, swap(1, 2)), 50);
            memory.atomic(place, add(0_u64.wrapping_sub(50)));
        }
    }

    /// The same memory, accessed like another process's.
    #[test]
    fn memory_of_other_processes_is_accessed_through_their_file_and_unmapped_memory_is_a_fault() {
        let file = std::fs::File::options().read(true).write(true).open("/proc/self/mem").unwrap();
        let owner = owner_of(file.as_fd());
        let mut there = 5_u64.to_ne_bytes();
        let place = Place { owner, ..place_of(&mut there) };
        assert_eq!(update(place, |before| before + 1), Ok(5));
        let mut out = [0; 8];
        assert_eq!(read(place, &mut out).map(|rest| rest.len()), Ok(0));
        assert_eq!(u64::from_ne_bytes(out), 6);
        write(Place { len: 1, ..place }, Payload::of(&[9])).unwrap();
        assert_eq!(there[0], 9);
        let nowhere = Place { address: 4096, ..place };
        assert_eq!(write(nowhere, Payload::of(&out)), Err(Fault(owner)));
        assert!(read(nowhere, &mut out).is_err());
    }

    #[test]
    fn a_route_header_has_the_source_and_the_destination() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let bytes = route_header(a, b, 100);
        let packet = [&bytes[20..], &[0; 100]].concat();
        let (header, _) = Ipv4Header::parse(&packet).unwrap();
        assert_eq!((IpAddr::V4(header.source), IpAddr::V4(header.destination)), (a, b));
        let six = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]);
        let packet = [&route_header(six, six, 8)[..], &[0; 8]].concat();
        assert_eq!(IpAddr::V6(Ipv6Header::parse(&packet).unwrap().0.source), six);
    }
}
