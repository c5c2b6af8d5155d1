//! The device operations of the messaging layer: memory, queue pairs and their work requests.

use core::ffi::c_int;
use core::ptr;
use std::net::Ipv6Addr;

use weft_msg::{
    Completion, DeviceError, Qp, QpSizes, Region, Registrar, Slice, Verbs as DeviceVerbs, Work,
    rnr_retry,
};
use weft_rnic::Status;
use weft_units::Instant;
use weft_wire::ChannelOffer;

use super::completions::status_of;
use super::receives::{link, receive_request};
use super::regions::Registered;
use super::{IbVerbs, PORT};
use crate::library::{check_pointer, refused};
use crate::memory::Mapping;
use weft_verbs_abi::*;

/// The retransmissions after which a queue pair reports that its peer is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retries {
    /// The time until the first, 4.096 us x 2^`timeout`.
    timeout: u8,
    count: u8,
}

impl Retries {
    /// 67 ms at least: NICs wait up to four times as long.
    pub(super) const NIC: Self = Self { timeout: 14, count: 7 };

    /// On the kernel's rxe a count of 7 has no end. It waits for the exact time, 1.07 s, and the peer's processor answers:
    /// earlier, the retransmissions of hundreds of queue pairs keep a busy host from answering at all. A dead host is detected
    /// before the last one (`keepalive_timeout`).
    const RXE: Self = Self { timeout: 18, count: 6 };

    /// The vendor of rxe (`RXE_VENDOR_ID`).
    const RXE_VENDOR: u32 = 0xff_ffff;

    /// Returns those for a device.
    pub(super) const fn of(device: &ibv_device_attr) -> Self {
        if device.vendor_id == Self::RXE_VENDOR { Self::RXE } else { Self::NIC }
    }
}

impl IbVerbs {
    /// Changes a queue pair's attributes that `mask` selects.
    fn modify(
        &mut self,
        qp: *mut ibv_qp,
        to: &mut ibv_qp_attr,
        mask: u32,
    ) -> Result<(), DeviceError> {
        let mask = c_int::try_from(mask).expect("bits of verbs.h");
        let modify = self.verbs.ibv_modify_qp;
        // SAFETY: the queue pair is this device's.
        match self.segments.time("ibv_modify_qp", || unsafe { modify(qp, to, mask) }) {
            0 => Ok(()),
            code => Err(refused("changing a queue pair's state", code)),
        }
    }

    /// Moves a queue pair from RESET to INIT.
    fn initialise(&mut self, qp: *mut ibv_qp) -> Result<(), DeviceError> {
        use qp_attr_mask::{ACCESS_FLAGS, PKEY_INDEX, PORT as PORT_NUM, STATE};
        let mut to = ibv_qp_attr {
            qp_state: qp_state::INIT,
            port_num: PORT,
            qp_access_flags: access::REMOTE_READ | access::REMOTE_WRITE,
            ..ibv_qp_attr::default()
        };
        self.modify(qp, &mut to, STATE | PKEY_INDEX | PORT_NUM | ACCESS_FLAGS)
    }

    /// Returns the object of a queue pair.
    #[inline]
    pub(super) fn qp(&self, qp: Qp) -> Result<*mut ibv_qp, DeviceError> {
        let (number, object) = self.last_qp.get();
        if number == qp.0 && !object.is_null() { Ok(object) } else { self.find_qp(qp) }
    }

    fn find_qp(&self, qp: Qp) -> Result<*mut ibv_qp, DeviceError> {
        let (doing, why) = ("using a queue pair", "it is gone");
        let &(object, _) = self.qps.get(&qp.0).ok_or(DeviceError { doing, why, code: 0 })?;
        self.last_qp.set((qp.0, object));
        Ok(object)
    }
}

impl Registrar for IbVerbs {
    fn allocate(&mut self, len: u64) -> Result<Region, DeviceError> {
        let doing = "registering memory";
        let bytes = usize::try_from(len).map_err(|_| refused(doing, libc::EINVAL))?;
        let mapping = Mapping::new(bytes, self.pages, &mut self.space).map_err(|error| {
            let code = error.raw_os_error().unwrap_or(0);
            DeviceError { doing, why: "the host has no memory left", code }
        })?;
        let flags = access::LOCAL_WRITE | access::REMOTE_READ;
        let flags = c_int::try_from(flags).expect("bits of verbs.h");
        let start = mapping.start();
        let (register, pd) = (self.verbs.ibv_reg_mr, self.pd);
        // SAFETY: the mapping lives until the region is deregistered.
        let register = || unsafe { register(pd, start.cast(), bytes, flags) };
        let mr = self.segments.time("ibv_reg_mr", register);
        let why = "the device refused (is RLIMIT_MEMLOCK too low? `ulimit -l`)";
        let mr = check_pointer("ibv_reg_mr", mr)
            .map_err(|_| DeviceError { why, ..refused(doing, -1) })?;
        // SAFETY: it was made just now.
        let (lkey, rkey) = unsafe { ((*mr).lkey, (*mr).rkey) };
        let address = start.expose_provenance() as u64;
        self.regions.insert(Registered { mapping, mr });
        Ok(Region { address, len, lkey, rkey })
    }

    fn free(&mut self, region: Region) {
        if let Some(Registered { mapping, mr }) = self.regions.remove(region.address) {
            // SAFETY: it is this device's, and the mapping lives longer.
            unsafe { (self.verbs.ibv_dereg_mr)(mr) };
            drop(mapping);
        }
    }
}

impl DeviceVerbs for IbVerbs {
    fn gid(&self) -> Ipv6Addr {
        self.gid
    }

    fn create_qp(&mut self, now: Instant, sizes: QpSizes) -> Result<Qp, DeviceError> {
        let (cq, reserved) = self.completions.reserve(&self.verbs, sizes)?;
        let mut init = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: if sizes.shared { self.srq } else { ptr::null_mut() },
            cap: ibv_qp_cap {
                max_send_wr: sizes.send,
                max_recv_wr: sizes.receive,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            qp_type: qp_type::RC,
            sq_sig_all: 0,
        };
        let (create, pd) = (self.verbs.ibv_create_qp, self.pd);
        // SAFETY: domain and queue are this device's.
        let create = || unsafe { create(pd, &raw mut init) };
        let qp = self.segments.time("ibv_create_qp", create);
        let qp = check_pointer("ibv_create_qp", qp).map_err(|_| {
            let error = refused("making a queue pair", -1);
            self.completions.release(reserved);
            error
        })?;
        // SAFETY: it was made just now.
        let number = unsafe { (*qp).qp_num };
        self.qps.insert(number, (qp, reserved));
        if let Err(error) = self.initialise(qp) {
            self.destroy_qp(now, Qp(number));
            return Err(error);
        }
        Ok(Qp(number))
    }

    fn connect_qp(
        &mut self,
        _: Instant,
        qp: Qp,
        psn: u32,
        peer: &ChannelOffer,
    ) -> Result<(), DeviceError> {
        use qp_attr_mask::{
            AV, DEST_QPN, MAX_DEST_RD_ATOMIC, MAX_QP_RD_ATOMIC, MIN_RNR_TIMER, PATH_MTU, RETRY_CNT,
            RNR_RETRY, RQ_PSN, SQ_PSN, STATE, TIMEOUT,
        };
        let qp = self.qp(qp)?;
        let dgid = ibv_gid { raw: peer.gid.octets(), ..ibv_gid::default() };
        let grh = ibv_global_route {
            dgid,
            sgid_index: self.gid_index,
            hop_limit: 64,
            flow_label: self.labels.flow_label,
            traffic_class: self.labels.traffic_class,
        };
        let sl = self.labels.service_level;
        let ah_attr =
            ibv_ah_attr { grh, sl, is_global: 1, port_num: PORT, ..ibv_ah_attr::default() };
        let mut to = ibv_qp_attr {
            qp_state: qp_state::RTR,
            path_mtu: self.mtu,
            dest_qp_num: peer.qp.into(),
            rq_psn: peer.psn.into(),
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            ah_attr,
            ..ibv_qp_attr::default()
        };
        let mask = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
        self.modify(qp, &mut to, mask)?;
        let mut to = ibv_qp_attr {
            qp_state: qp_state::RTS,
            sq_psn: psn,
            timeout: self.retries.timeout,
            retry_cnt: self.retries.count,
            rnr_retry: rnr_retry(peer),
            max_rd_atomic: 16,
            ..ibv_qp_attr::default()
        };
        let mask = STATE | SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;
        self.modify(qp, &mut to, mask)?;
        match self.source_ports.as_mut().map_or(0, |ports| ports.assign(qp)) {
            0 => Ok(()),
            code => Err(refused("setting a queue pair's source port", code)),
        }
    }

    fn reset_qp(&mut self, _: Instant, qp: Qp) -> Result<(), DeviceError> {
        let object = self.qp(qp)?;
        let mut to = ibv_qp_attr { qp_state: qp_state::RESET, ..ibv_qp_attr::default() };
        self.modify(object, &mut to, qp_attr_mask::STATE)?;
        if let Some(&(_, reserved)) = self.qps.get(&qp.0) {
            self.completions.discard(qp.0, reserved);
        }
        self.initialise(object)
    }

    fn destroy_qp(&mut self, _: Instant, qp: Qp) {
        if let Some((object, reserved)) = self.qps.remove(&qp.0) {
            self.last_qp.set((0, ptr::null_mut()));
            let destroy = self.verbs.ibv_destroy_qp;
            // SAFETY: it is this device's, and nothing else uses it.
            self.segments.time("ibv_destroy_qp", || unsafe { destroy(object) });
            self.completions.discard(qp.0, reserved);
            self.completions.release(reserved);
        }
    }

    fn create_shared_receives(&mut self, requests: u32) -> Result<(), DeviceError> {
        let attr = ibv_srq_attr { max_wr: requests, max_sge: 1, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is this device's.
        let srq = unsafe { (self.verbs.ibv_create_srq)(self.pd, &raw mut init) };
        self.srq = check_pointer("ibv_create_srq", srq)
            .map_err(|_| refused("making a shared receive queue", -1))?;
        Ok(())
    }

    fn destroy_shared_receives(&mut self) {
        let srq = core::mem::replace(&mut self.srq, ptr::null_mut());
        if !srq.is_null() {
            // SAFETY: it is this device's, and its queue pairs are gone.
            unsafe { (self.verbs.ibv_destroy_srq)(srq) };
        }
    }

    fn post_shared_receive(&mut self, wr_id: u64, to: Slice) -> Result<(), DeviceError> {
        let mut sge = sge(&to);
        let mut request = receive_request(wr_id, &mut sge);
        let mut bad = ptr::null_mut();
        // SAFETY: the request and its piece live until the call returns, as verbs requires.
        let posted = unsafe {
            let post = (*self.context).ops.post_srq_recv;
            post.map(|post| post(self.srq, &raw mut request, &raw mut bad))
        };
        match posted {
            Some(0) => Ok(()),
            code => Err(refused("posting a receive request", code.unwrap_or(libc::EOPNOTSUPP))),
        }
    }

    fn post_receive(&mut self, qp: Qp, wr_id: u64, to: Slice) -> Result<(), DeviceError> {
        let mut sge = sge(&to);
        let mut request = receive_request(wr_id, &mut sge);
        // SAFETY: the request is a list of one, and lives until the call returns with its piece.
        unsafe { self.post_receive_list(qp, &raw mut request) }
    }

    fn post_receives(&mut self, qp: Qp, wr_id: u64, to: &[Slice]) -> Result<(), DeviceError> {
        let mut pieces: Vec<ibv_sge> = to.iter().map(sge).collect();
        let mut requests: Vec<ibv_recv_wr> =
            pieces.iter_mut().map(|piece| receive_request(wr_id, piece)).collect();
        // SAFETY: the requests live until the call returns, with their pieces.
        unsafe { self.post_receive_list(qp, link(&mut requests)) }
    }

    #[inline(always)]
    fn post_send(
        &mut self,
        _: Instant,
        qp: Qp,
        wr_id: u64,
        work: Work<'_>,
        signaled: bool,
    ) -> Result<(), DeviceError> {
        let qp = self.qp(qp)?;
        let mut pieces = [ibv_sge::default(); 2];
        // SAFETY: zeros are a request of an opcode that is set below.
        let mut request: ibv_send_wr = unsafe { core::mem::zeroed() };
        request.wr_id = wr_id;
        request.send_flags = if signaled { send_flag::SIGNALED } else { 0 };
        let count = match work {
            Work::Send { from, immediate } => {
                request.opcode = wr_opcode::SEND_WITH_IMM;
                request.imm_data = immediate.to_be();
                pieces.iter_mut().zip(from).for_each(|(piece, slice)| *piece = sge(slice));
                from.len()
            }
            Work::Read { to, address, rkey } => {
                request.opcode = wr_opcode::RDMA_READ;
                request.wr.rdma = rdma_target { remote_addr: address, rkey };
                pieces[0] = sge(&to);
                1
            }
            Work::Probe => {
                request.opcode = wr_opcode::RDMA_WRITE;
                0
            }
        };
        request.sg_list = pieces.as_mut_ptr();
        request.num_sge = c_int::try_from(count).expect("two at most");
        let mut bad = ptr::null_mut();
        // SAFETY: the request and its pieces live until the call returns, as verbs requires.
        let posted = unsafe {
            (*self.context).ops.post_send.map(|post| post(qp, &raw mut request, &raw mut bad))
        };
        match posted {
            Some(0) => Ok(()),
            code => Err(refused("posting a send request", code.unwrap_or(libc::EOPNOTSUPP))),
        }
    }

    #[inline]
    fn poll(&mut self) -> Option<Completion> {
        let wc = self.completions.poll()?;
        let status = status_of(wc.status);
        let has_immediate = wc.wc_flags & wc_flag::WITH_IMM != 0;
        let len = if status == Status::Success { wc.byte_len } else { 0 };
        let immediate = has_immediate.then(|| u32::from_be(wc.imm_data));
        Some(Completion { qp: Qp(wc.qp_num), wr_id: wc.wr_id, status, len, immediate })
    }

    #[inline(always)]
    fn bytes(&self, slice: Slice) -> &[u8] {
        self.regions.bytes(slice)
    }

    #[inline(always)]
    fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        self.regions.bytes_mut(slice)
    }
}

const fn sge(slice: &Slice) -> ibv_sge {
    ibv_sge { addr: slice.address, length: slice.len, lkey: slice.lkey }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_end_on_rxe_too() {
        // SAFETY: a device's attributes are numbers, of which zero is one.
        let mut device: ibv_device_attr = unsafe { core::mem::zeroed() };
        assert_eq!(Retries::of(&device), Retries::NIC);
        device.vendor_id = Retries::RXE_VENDOR;
        let Retries { timeout, count } = Retries::of(&device);
        assert!(count < 7);
        let gives_up_after = (4096_u64 << timeout) * u64::from(count + 1);
        assert!(gives_up_after > 7_000_000_000, "{gives_up_after} ns");
    }
}
