//! The device in a virtual machine, whose kernel has no module for it. The guest's memory and a PCI device's BAR are
//! files of the host. A *relay* on the host ([`host`]) attaches to the daemon for each process of the guest, as any
//! process does: its memory is the guest's, and the rings are in the BAR, which the guest's library ([`inside`])
//! maps. Control goes over a port of virtio-serial, in frames, in which the numbers of physical pages take the place of
//! descriptors.

mod frames;
pub(crate) mod host;
pub(crate) mod inside;
mod regions;
mod slot;

pub use host::{GuestDevice, GuestError};

#[cfg(test)]
pub(crate) use frames::Frames;
#[cfg(test)]
pub(crate) use slot::{SLOT, Slot};

/// Size of a page of x86, bytes.
pub(crate) const PAGE: u64 = 4096;

/// Returns the number of pages that a range of memory touches; `None` if it passes the end of all addresses.
fn pages_of(address: u64, length: u64) -> Option<u64> {
    let Some(last) = length.checked_sub(1) else { return Some(0) };
    Some(address.checked_add(last)? / PAGE - address / PAGE + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_touches_the_pages_of_its_first_byte_to_its_last() {
        assert_eq!([0, 1, 4096, 4097].map(|length| pages_of(0, length).unwrap()), [0, 1, 1, 2]);
        assert_eq!([1, 2].map(|length| pages_of(4095, length).unwrap()), [1, 2]);
        assert_eq!((pages_of(u64::MAX, 1), pages_of(u64::MAX, 2)), (Some(1), None));
    }
}
