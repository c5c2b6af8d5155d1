//! A device that only has memory.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use weft_units::Instant;
use weft_wire::ChannelOffer;

use crate::verbs::{Completion, Qp, QpSizes, Refused, Region, Slice, Verbs, Work};

/// It knows which regions there are, and nothing else.
#[derive(Debug, Default)]
pub(crate) struct NoDevice {
    pub(crate) regions: Vec<Region>,
    next: u64,
}

impl Verbs for NoDevice {
    fn allocate(&mut self, len: u64) -> Result<Region, Refused> {
        self.next += 1 << 32;
        let region = Region { address: self.next, len, lkey: 1, rkey: 1 };
        self.regions.push(region);
        Ok(region)
    }

    fn free(&mut self, region: Region) {
        let at = self.regions.iter().position(|other| *other == region);
        self.regions.swap_remove(at.expect("it was allocated"));
    }

    fn gid(&self) -> Ipv6Addr {
        Ipv6Addr::LOCALHOST
    }

    fn create_qp(&mut self, _: Instant, _: QpSizes) -> Result<Qp, Refused> {
        unimplemented!("memory only")
    }

    fn connect_qp(&mut self, _: Instant, _: Qp, _: u32, _: &ChannelOffer) -> Result<(), Refused> {
        unimplemented!("memory only")
    }

    fn reset_qp(&mut self, _: Instant, _: Qp) -> Result<(), Refused> {
        unimplemented!("memory only")
    }

    fn destroy_qp(&mut self, _: Instant, _: Qp) {
        unimplemented!("memory only")
    }

    fn post_receive(&mut self, _: Qp, _: u64, _: Slice) -> Result<(), Refused> {
        unimplemented!("memory only")
    }

    fn post_send(
        &mut self,
        _: Instant,
        _: Qp,
        _: u64,
        _: Work<'_>,
        _: bool,
    ) -> Result<(), Refused> {
        unimplemented!("memory only")
    }

    fn poll(&mut self) -> Option<Completion> {
        None
    }

    fn bytes(&self, _: Slice) -> &[u8] {
        unimplemented!("no bytes")
    }

    fn bytes_mut(&mut self, _: Slice) -> &mut [u8] {
        unimplemented!("no bytes")
    }
}
