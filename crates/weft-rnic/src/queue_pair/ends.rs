//! The two queue pairs of a connection, in the number of its transport service: the requester's in the high 24 of 56
//! bits, the responder's in the low 32. A request for a connection therefore names its sender. If the responder was reset
//! and connected to another queue pair, a late request of its former peer is refused.

use crate::QueuePairNumber;

/// Returns the service that `to` provides to `from`.
pub(crate) fn service(from: QueuePairNumber, to: QueuePairNumber) -> u64 {
    u64::from(from.0) << 32 | u64::from(to.0)
}

/// Returns the requester and the responder of a service.
#[expect(clippy::cast_possible_truncation, reason = "each half has 32 bits")]
pub(crate) const fn ends(service: u64) -> (QueuePairNumber, QueuePairNumber) {
    (QueuePairNumber((service >> 32) as u32), QueuePairNumber(service as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_names_both_ends() {
        let (from, to) = (QueuePairNumber(0xff_fffe), QueuePairNumber(0xab_cdef));
        let service = service(from, to);
        assert!(service < 1 << 56 && ends(service) == (from, to));
    }
}
