//! A device whose peer is a script: it stores posted requests, and completes them when the script calls for it.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;

use weft_msg::{Completion, DeviceError, Qp, QpSizes, Region, Registrar, Slice, Verbs, Work};
use weft_rnic::Status;
use weft_units::Instant;
use weft_wire::ChannelOffer;

/// The distance between the addresses of regions, so that a slice never lies in two regions.
const REGION_STRIDE: u64 = 1 << 32;

/// A queue pair's requests.
#[derive(Debug, Default)]
struct Queues {
    sizes: Option<QpSizes>,
    receives: VecDeque<(u64, Slice)>,
    sends: VecDeque<(u64, Option<Slice>, bool)>,
    broken: bool,
}

/// A device with scripted completions. It panics if a request is invalid.
#[derive(Debug, Default)]
pub struct Scripted {
    regions: BTreeMap<u64, Vec<u8>>,
    allocated: u64,
    qps: BTreeMap<Qp, Queues>,
    next_qp: u32,
    completions: VecDeque<Completion>,
    /// `true` while allocations are refused.
    pub full: bool,
}

const NO_ROOM: DeviceError =
    DeviceError { doing: "registering memory", why: "there is none", code: 0 };
const BROKEN: DeviceError =
    DeviceError { doing: "posting", why: "the queue pair is broken", code: 0 };

impl Scripted {
    /// Delivers a SEND of the peer with immediate data. It does nothing if no receive request waits.
    pub fn receive(&mut self, qp: Qp, bytes: &[u8], immediate: Option<u32>) {
        let Some(queues) = self.qps.get_mut(&qp).filter(|it| !it.broken) else { return };
        let Some((wr_id, to)) = queues.receives.pop_front() else { return };
        let bytes = &bytes[..bytes.len().min(to.len as usize)];
        let len = u32::try_from(bytes.len()).expect("a short frame");
        self.bytes_mut(Slice { len, ..to }).copy_from_slice(bytes);
        let status = Status::Success;
        self.completions.push_back(Completion { qp, wr_id, status, len, immediate });
    }

    /// Completes the oldest request of a send queue; a READ fills its destination with the byte `fill`.
    pub fn complete(&mut self, qp: Qp, fill: u8) {
        let Some(queues) = self.qps.get_mut(&qp).filter(|it| !it.broken) else { return };
        let Some((wr_id, reads, signaled)) = queues.sends.pop_front() else { return };
        if let Some(to) = reads {
            self.bytes_mut(to).fill(fill);
        }
        if signaled {
            let (status, len) = (Status::Success, 0);
            self.completions.push_back(Completion { qp, wr_id, status, len, immediate: None });
        }
    }

    /// Breaks a queue pair: the first request completes with `status`, the others are flushed.
    pub fn fail(&mut self, qp: Qp, status: Status) {
        let Some(queues) = self.qps.get_mut(&qp).filter(|it| !it.broken) else { return };
        queues.broken = true;
        let sends = queues.sends.drain(..).map(|(wr_id, ..)| wr_id);
        let receives = queues.receives.drain(..).map(|(wr_id, _)| wr_id);
        let mut status = status;
        for wr_id in sends.chain(receives) {
            self.completions.push_back(Completion { qp, wr_id, status, len: 0, immediate: None });
            status = Status::WrFlush;
        }
    }

    /// Returns the address of a region and the offset in it.
    fn slot(slice: Slice) -> (u64, usize) {
        let base = slice.address / REGION_STRIDE * REGION_STRIDE;
        (base, usize::try_from(slice.address - base).expect("less than a region"))
    }

    /// Returns `true` if a slice lies in registered memory.
    fn has(&self, slice: Slice) -> bool {
        let (base, from) = Self::slot(slice);
        self.regions.get(&base).is_some_and(|it| from + slice.len as usize <= it.len())
    }
}

impl Registrar for Scripted {
    fn allocate(&mut self, len: u64) -> Result<Region, DeviceError> {
        if self.full {
            return Err(NO_ROOM);
        }
        self.allocated += 1;
        let address = self.allocated * REGION_STRIDE;
        let bytes = usize::try_from(len).ok().filter(|&len| len <= 64 << 20).ok_or(NO_ROOM)?;
        self.regions.insert(address, vec![0; bytes]);
        Ok(Region { address, len, lkey: 1, rkey: 1 })
    }

    fn free(&mut self, region: Region) {
        assert!(self.regions.remove(&region.address).is_some(), "it was allocated");
    }
}

impl Verbs for Scripted {
    fn gid(&self) -> Ipv6Addr {
        Ipv6Addr::LOCALHOST
    }

    fn create_qp(&mut self, _: Instant, sizes: QpSizes) -> Result<Qp, DeviceError> {
        self.next_qp += 1;
        let qp = Qp(self.next_qp);
        self.qps.insert(qp, Queues { sizes: Some(sizes), ..Queues::default() });
        Ok(qp)
    }

    fn connect_qp(
        &mut self,
        _: Instant,
        qp: Qp,
        _: u32,
        _: &ChannelOffer,
    ) -> Result<(), DeviceError> {
        assert!(self.qps.contains_key(&qp));
        Ok(())
    }

    fn reset_qp(&mut self, _: Instant, qp: Qp) -> Result<(), DeviceError> {
        let queues = self.qps.get_mut(&qp).expect("it was made");
        *queues = Queues { sizes: queues.sizes, ..Queues::default() };
        self.completions.retain(|it| it.qp != qp);
        Ok(())
    }

    fn destroy_qp(&mut self, _: Instant, qp: Qp) {
        assert!(self.qps.remove(&qp).is_some(), "it was made");
        self.completions.retain(|it| it.qp != qp);
    }

    fn create_shared_receives(&mut self, _: u32) -> Result<(), DeviceError> {
        Err(NO_ROOM)
    }

    fn destroy_shared_receives(&mut self) {}

    fn post_shared_receive(&mut self, _: u64, _: Slice) -> Result<(), DeviceError> {
        Err(NO_ROOM)
    }

    fn post_receive(&mut self, qp: Qp, wr_id: u64, to: Slice) -> Result<(), DeviceError> {
        assert!(self.has(to), "{to:?} is received into");
        let queues = self.qps.get_mut(&qp).expect("it was made");
        if queues.broken {
            return Err(BROKEN);
        }
        queues.receives.push_back((wr_id, to));
        let most = queues.sizes.expect("it was made so").receive as usize;
        assert!(queues.receives.len() <= most, "more receive requests than the queue takes");
        Ok(())
    }

    fn post_send(
        &mut self,
        _: Instant,
        qp: Qp,
        wr_id: u64,
        work: Work<'_>,
        signaled: bool,
    ) -> Result<(), DeviceError> {
        let reads = match work {
            Work::Send { from, .. } => {
                assert!(from.iter().all(|&it| self.has(it)), "{from:?} is sent");
                None
            }
            Work::Read { to, .. } => {
                assert!(self.has(to), "{to:?} is read into");
                Some(to)
            }
            Work::Probe => None,
        };
        let queues = self.qps.get_mut(&qp).expect("it was made");
        if queues.broken {
            return Err(BROKEN);
        }
        queues.sends.push_back((wr_id, reads, signaled));
        let most = queues.sizes.expect("it was made so").send as usize;
        assert!(queues.sends.len() <= most, "more send requests than the queue takes");
        Ok(())
    }

    fn poll(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn bytes(&self, slice: Slice) -> &[u8] {
        let (base, from) = Self::slot(slice);
        &self.regions[&base][from..][..slice.len as usize]
    }

    fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        let (base, from) = Self::slot(slice);
        let region = self.regions.get_mut(&base).expect("memory of this context");
        &mut region[from..][..slice.len as usize]
    }
}
