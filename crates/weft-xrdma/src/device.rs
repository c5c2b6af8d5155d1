//! A device of `libibverbs.so.1` as the messaging layer needs one.

use core::ffi::{CStr, c_int};
use core::ptr;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{BorrowedFd, RawFd};

use weft_msg::{
    Completion, Qp, QpSizes, Refused, Region, Registrar, Slice, Verbs as Asked, Work, rnr_retry,
};
use weft_rnic::Status;
use weft_units::Instant;
use weft_wire::ChannelOffer;

use crate::library::{Verbs, VerbsLibraryError, done, made};
use crate::memory::{Mapping, Pages};
use weft_verbs_abi::*;

/// Which device, and how it is used.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// Its name; the first there is.
    pub device: Option<String>,
    /// The address that peers reach it by; its first.
    pub address: Option<IpAddr>,
    /// What kind of pages its memory is made of.
    pub pages: Pages,
}

/// RoCE devices have a port for each network.
const PORT: u8 = 1;
/// Completions that are taken from the device at a time.
const BATCH: usize = 16;

/// An opened device with one completion queue.
#[derive(Debug)]
pub struct IbVerbs {
    verbs: Verbs,
    name: String,
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    /// Completions that there is room for.
    room: u64,
    srq: *mut ibv_srq,
    gid: Ipv6Addr,
    gid_index: u8,
    mtu: u32,
    pages: Pages,
    qps: BTreeMap<u32, *mut ibv_qp>,
    regions: BTreeMap<u64, (Mapping, *mut ibv_mr)>,
    below: usize,
    batch: [ibv_wc; BATCH],
    next: usize,
    filled: usize,
    /// The last batch was all that the queue had.
    drained: bool,
}

// SAFETY: the objects are used by whoever has the device alone, and libibverbs does not mind which thread that is.
unsafe impl Send for IbVerbs {}

impl IbVerbs {
    /// Opens a device with room for `completions`.
    ///
    /// # Errors
    /// There is no library, no device, no address, or the device has no room.
    pub fn open(options: &DeviceOptions, completions: u32) -> Result<Self, VerbsLibraryError> {
        let verbs = Verbs::load()?;
        let (context, name) = open_device(&verbs, options.device.as_deref())?;
        let mut this = Self {
            verbs,
            context,
            pd: ptr::null_mut(),
            channel: ptr::null_mut(),
            cq: ptr::null_mut(),
            room: completions.into(),
            srq: ptr::null_mut(),
            gid: Ipv6Addr::UNSPECIFIED,
            gid_index: 0,
            mtu: 0,
            pages: options.pages,
            name: String::new(),
            qps: BTreeMap::new(),
            regions: BTreeMap::new(),
            below: 0,
            batch: [ibv_wc::default(); BATCH],
            next: 0,
            filled: 0,
            drained: false,
        };
        this.find_address(&name, options.address)?;
        this.name = name;
        let entries = c_int::try_from(completions).unwrap_or(c_int::MAX);
        // SAFETY: the context is open; what it makes is destroyed with `this`.
        unsafe {
            let verbs = &this.verbs;
            this.pd = made("ibv_alloc_pd", (verbs.ibv_alloc_pd)(context))?;
            let channel = (verbs.ibv_create_comp_channel)(context);
            this.channel = made("ibv_create_comp_channel", channel)?;
            let flags = libc::fcntl((*this.channel).fd, libc::F_GETFL);
            libc::fcntl((*this.channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            let cq = (verbs.ibv_create_cq)(context, entries, ptr::null_mut(), this.channel, 0);
            this.cq = made("ibv_create_cq", cq)?;
        }
        Ok(this)
    }

    /// Finds the row of the port's table that peers are told.
    fn find_address(
        &mut self,
        name: &str,
        wanted: Option<IpAddr>,
    ) -> Result<(), VerbsLibraryError> {
        // SAFETY: a port's attributes are numbers, of which zero is one.
        let mut port: ibv_port_attr = unsafe { core::mem::zeroed() };
        // SAFETY: the context is open and `port` has room.
        let asked = unsafe { (self.verbs.ibv_query_port)(self.context, PORT, &raw mut port) };
        done("ibv_query_port", asked)?;
        self.mtu = port.active_mtu;
        let rows = (0..port.gid_tbl_len).filter_map(|row| {
            let mut gid = ibv_gid::default();
            // SAFETY: likewise.
            let asked =
                unsafe { (self.verbs.ibv_query_gid)(self.context, PORT, row, &raw mut gid) };
            (asked == 0).then(|| (row, Ipv6Addr::from(gid.raw)))
        });
        let rows: Vec<_> = rows.filter(|(_, gid)| !gid.is_unspecified()).collect();
        let found = match wanted {
            Some(address) => rows.iter().find(|(_, gid)| gid.to_canonical() == address),
            None => {
                rows.iter().find(|(_, gid)| gid.to_ipv4_mapped().is_some()).or_else(|| rows.first())
            }
        };
        let (row, gid) = *found.ok_or_else(|| VerbsLibraryError::NoAddress {
            device: name.into(),
            of: wanted.map(|address| format!(" {address}")).unwrap_or_default(),
        })?;
        (self.gid, self.gid_index) = (gid, u8::try_from(row).unwrap_or(0));
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The descriptor that becomes readable when an armed device has completions.
    pub fn event_fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as `self`.
        unsafe { (*self.channel).fd }
    }

    /// The same, borrowed.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the channel, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.event_fd()) }
    }

    /// Has the next completion make the descriptor readable. What completed before does not: poll once more.
    pub fn arm(&mut self) {
        // SAFETY: queue and context are this device's, and the function is what verbs.h would call.
        unsafe {
            if let Some(arm) = (*self.context).ops.req_notify_cq {
                arm(self.cq, 0);
            }
        }
    }

    /// Takes the notifications that came.
    pub fn take_notifications(&mut self) {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is this device's, does not block, and both pointers have room.
        unsafe {
            while (self.verbs.ibv_get_cq_event)(self.channel, &raw mut cq, &raw mut context) == 0 {
                (self.verbs.ibv_ack_cq_events)(cq, 1);
            }
        }
    }

    fn modify(&self, qp: *mut ibv_qp, to: &mut ibv_qp_attr, mask: u32) -> Result<(), Refused> {
        let mask = c_int::try_from(mask).expect("bits of verbs.h");
        // SAFETY: the queue pair is this device's.
        match unsafe { (self.verbs.ibv_modify_qp)(qp, to, mask) } {
            0 => Ok(()),
            code => Err(refused("changing a queue pair's state", code)),
        }
    }

    fn initialise(&self, qp: *mut ibv_qp) -> Result<(), Refused> {
        use qp_attr_mask::{ACCESS_FLAGS, PKEY_INDEX, PORT as PORT_NUM, STATE};
        let mut to = ibv_qp_attr {
            qp_state: qp_state::INIT,
            port_num: PORT,
            qp_access_flags: access::REMOTE_READ | access::REMOTE_WRITE,
            ..ibv_qp_attr::default()
        };
        self.modify(qp, &mut to, STATE | PKEY_INDEX | PORT_NUM | ACCESS_FLAGS)
    }

    /// Makes the completion queue as long as one more queue pair, and those there are, could fill it while nobody
    /// looks: one that overflows is lost with all of them.
    fn make_room(&mut self, sizes: QpSizes) -> Result<(), Refused> {
        let each = u64::from(sizes.send) + u64::from(sizes.receive);
        let wanted = each * (self.qps.len() as u64 + 1);
        if wanted <= self.room {
            return Ok(());
        }
        let room = wanted.next_power_of_two() - 1;
        let entries = c_int::try_from(room).unwrap_or(c_int::MAX);
        // SAFETY: the queue is this device's.
        match unsafe { (self.verbs.ibv_resize_cq)(self.cq, entries) } {
            0 => self.room = room,
            code => return Err(refused("making room for completions", code)),
        }
        Ok(())
    }

    fn qp(&self, qp: Qp) -> Result<*mut ibv_qp, Refused> {
        self.qps.get(&qp.0).copied().ok_or(Refused {
            doing: "using a queue pair",
            why: "it is gone",
            code: 0,
        })
    }

    /// Takes completions from the device; whether there were any.
    fn take_batch(&mut self) -> bool {
        // To ask a queue again that was empty just now would cost a turn of the device, before what came out of
        // it is handled.
        if core::mem::take(&mut self.drained) {
            return false;
        }
        // SAFETY: the queue is this device's, and the batch has room for what is asked for.
        let got = unsafe {
            let room = c_int::try_from(BATCH).expect("a few");
            let poll = (*self.context).ops.poll_cq;
            poll.map_or(0, |poll| poll(self.cq, room, self.batch.as_mut_ptr()))
        };
        (self.next, self.filled) = (0, usize::try_from(got).unwrap_or(0));
        self.drained = (1..BATCH).contains(&self.filled);
        self.filled > 0
    }
}

fn open_device(
    verbs: &Verbs,
    wanted: Option<&str>,
) -> Result<(*mut ibv_context, String), VerbsLibraryError> {
    let mut count = 0;
    // SAFETY: the list has `count` devices, with names, until it is freed.
    unsafe {
        let list = (verbs.ibv_get_device_list)(&raw mut count);
        // Without RDMA in the kernel the library has no list at all.
        let list = made("ibv_get_device_list", list).map_err(|error| match error {
            VerbsLibraryError::Failed { error, .. }
                if error.raw_os_error() == Some(libc::ENOSYS) =>
            {
                VerbsLibraryError::NoDevice
            }
            other => other,
        })?;
        let devices: Vec<_> = (0..usize::try_from(count).unwrap_or(0))
            .map(|index| *list.add(index))
            .map(|device| (device, (verbs.ibv_get_device_name)(device)))
            .map(|(device, name)| (device, CStr::from_ptr(name).to_string_lossy().into_owned()))
            .collect();
        let found = devices.iter().find(|(_, name)| wanted.is_none_or(|wanted| wanted == name));
        let opened = match (found, wanted) {
            (Some((device, name)), _) => made("ibv_open_device", (verbs.ibv_open_device)(*device))
                .map(|context| (context, name.clone())),
            (None, Some(name)) if !devices.is_empty() => {
                let known: Vec<_> = devices.iter().map(|(_, name)| name.as_str()).collect();
                Err(VerbsLibraryError::NoSuchDevice { name: name.into(), known: known.join(", ") })
            }
            (None, _) => Err(VerbsLibraryError::NoDevice),
        };
        (verbs.ibv_free_device_list)(list);
        opened
    }
}

impl Drop for IbVerbs {
    fn drop(&mut self) {
        // SAFETY: users before what they use; each was made and is not destroyed yet.
        unsafe {
            for qp in self.qps.values() {
                (self.verbs.ibv_destroy_qp)(*qp);
            }
            for (_, mr) in self.regions.values() {
                (self.verbs.ibv_dereg_mr)(*mr);
            }
            if !self.srq.is_null() {
                (self.verbs.ibv_destroy_srq)(self.srq);
            }
            if !self.cq.is_null() {
                (self.verbs.ibv_destroy_cq)(self.cq);
            }
            if !self.channel.is_null() {
                (self.verbs.ibv_destroy_comp_channel)(self.channel);
            }
            if !self.pd.is_null() {
                (self.verbs.ibv_dealloc_pd)(self.pd);
            }
            (self.verbs.ibv_close_device)(self.context);
        }
    }
}

/// What a call that failed says: `result` is an error number, or negative where it is in errno.
fn refused(doing: &'static str, result: c_int) -> Refused {
    let code = if result > 0 {
        result
    } else {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    };
    Refused { doing, why: "the device refused", code }
}

/// Where a slice is in the region that begins at `base`.
fn within(base: u64, slice: Slice) -> core::ops::Range<usize> {
    let from = usize::try_from(slice.address - base).expect("within a region");
    from..from + slice.len as usize
}

const fn sge(slice: &Slice) -> ibv_sge {
    ibv_sge { addr: slice.address, length: slice.len, lkey: slice.lkey }
}

fn status(number: u32) -> Status {
    use Status::*;
    let all = [
        Success,
        LocalLength,
        LocalQpOperation,
        LocalProtection,
        WrFlush,
        MwBind,
        BadResponse,
        LocalAccess,
        RemoteInvalidRequest,
        RemoteAccess,
        RemoteOperation,
        RetryExceeded,
        RnrRetryExceeded,
        RemoteAborted,
        Fatal,
    ];
    all.into_iter().find(|status| *status as u32 == number).unwrap_or(General)
}

impl Registrar for IbVerbs {
    fn allocate(&mut self, len: u64) -> Result<Region, Refused> {
        let doing = "registering memory";
        let bytes = usize::try_from(len).map_err(|_| refused(doing, libc::EINVAL))?;
        let mapping = Mapping::new(bytes, self.pages, &mut self.below).map_err(|error| {
            let code = error.raw_os_error().unwrap_or(0);
            Refused { doing, why: "the host has no memory left", code }
        })?;
        let flags = access::LOCAL_WRITE | access::REMOTE_READ;
        let flags = c_int::try_from(flags).expect("bits of verbs.h");
        let start = mapping.start();
        // SAFETY: the mapping lives until the region is deregistered.
        let mr = unsafe { (self.verbs.ibv_reg_mr)(self.pd, start.cast(), bytes, flags) };
        let why = "the device refused (is RLIMIT_MEMLOCK too low? `ulimit -l`)";
        let mr = made("ibv_reg_mr", mr).map_err(|_| Refused { why, ..refused(doing, -1) })?;
        // SAFETY: it was made just now.
        let (lkey, rkey) = unsafe { ((*mr).lkey, (*mr).rkey) };
        let address = start.expose_provenance() as u64;
        self.regions.insert(address, (mapping, mr));
        Ok(Region { address, len, lkey, rkey })
    }

    fn free(&mut self, region: Region) {
        if let Some((mapping, mr)) = self.regions.remove(&region.address) {
            // SAFETY: it is this device's; the mapping goes after it.
            unsafe { (self.verbs.ibv_dereg_mr)(mr) };
            drop(mapping);
        }
    }
}

impl Asked for IbVerbs {
    fn gid(&self) -> Ipv6Addr {
        self.gid
    }

    fn create_qp(&mut self, _: Instant, sizes: QpSizes) -> Result<Qp, Refused> {
        self.make_room(sizes)?;
        let mut init = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: self.cq,
            recv_cq: self.cq,
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
        // SAFETY: domain and queue are this device's.
        let qp = unsafe { (self.verbs.ibv_create_qp)(self.pd, &raw mut init) };
        let qp = made("ibv_create_qp", qp).map_err(|_| refused("making a queue pair", -1))?;
        // SAFETY: it was made just now.
        let number = unsafe { (*qp).qp_num };
        self.qps.insert(number, qp);
        self.initialise(qp)?;
        Ok(Qp(number))
    }

    fn connect_qp(
        &mut self,
        _: Instant,
        qp: Qp,
        psn: u32,
        peer: &ChannelOffer,
    ) -> Result<(), Refused> {
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
            ..ibv_global_route::default()
        };
        let ah_attr = ibv_ah_attr { grh, is_global: 1, port_num: PORT, ..ibv_ah_attr::default() };
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
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: rnr_retry(peer),
            max_rd_atomic: 16,
            ..ibv_qp_attr::default()
        };
        let mask = STATE | SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;
        self.modify(qp, &mut to, mask)
    }

    fn reset_qp(&mut self, _: Instant, qp: Qp) -> Result<(), Refused> {
        // What it completed is not for whoever has it next.
        let stale = |completion: &ibv_wc| completion.qp_num == qp.0;
        let kept: Vec<_> =
            self.batch[self.next..self.filled].iter().filter(|wc| !stale(wc)).copied().collect();
        self.batch[..kept.len()].copy_from_slice(&kept);
        (self.next, self.filled) = (0, kept.len());
        let qp = self.qp(qp)?;
        let mut to = ibv_qp_attr { qp_state: qp_state::RESET, ..ibv_qp_attr::default() };
        self.modify(qp, &mut to, qp_attr_mask::STATE)?;
        self.initialise(qp)
    }

    fn destroy_qp(&mut self, _: Instant, qp: Qp) {
        if let Some(qp) = self.qps.remove(&qp.0) {
            // SAFETY: it is this device's, and nothing else uses it.
            unsafe { (self.verbs.ibv_destroy_qp)(qp) };
        }
    }

    fn create_shared_receives(&mut self, requests: u32) -> Result<(), Refused> {
        let attr = ibv_srq_attr { max_wr: requests, max_sge: 1, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is this device's.
        let srq = unsafe { (self.verbs.ibv_create_srq)(self.pd, &raw mut init) };
        self.srq = made("ibv_create_srq", srq)
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

    fn post_shared_receive(&mut self, wr_id: u64, to: Slice) -> Result<(), Refused> {
        let mut sge = sge(&to);
        let mut request =
            ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the request and its piece live until the call returns, which is what verbs asks for.
        let posted = unsafe {
            let post = (*self.context).ops.post_srq_recv;
            post.map(|post| post(self.srq, &raw mut request, &raw mut bad))
        };
        match posted {
            Some(0) => Ok(()),
            code => Err(refused("posting a receive request", code.unwrap_or(libc::EOPNOTSUPP))),
        }
    }

    fn post_receive(&mut self, qp: Qp, wr_id: u64, to: Slice) -> Result<(), Refused> {
        let qp = self.qp(qp)?;
        let mut sge = sge(&to);
        let mut request =
            ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: &raw mut sge, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the request and its piece live until the call returns, which is what verbs asks for.
        let posted = unsafe {
            (*self.context).ops.post_recv.map(|post| post(qp, &raw mut request, &raw mut bad))
        };
        match posted {
            Some(0) => Ok(()),
            code => Err(refused("posting a receive request", code.unwrap_or(libc::EOPNOTSUPP))),
        }
    }

    fn post_send(
        &mut self,
        _: Instant,
        qp: Qp,
        wr_id: u64,
        work: Work<'_>,
        signaled: bool,
    ) -> Result<(), Refused> {
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
        // SAFETY: the request and its pieces live until the call returns, which is what verbs asks for.
        let posted = unsafe {
            (*self.context).ops.post_send.map(|post| post(qp, &raw mut request, &raw mut bad))
        };
        match posted {
            Some(0) => Ok(()),
            code => Err(refused("posting a send request", code.unwrap_or(libc::EOPNOTSUPP))),
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        if self.next == self.filled && !self.take_batch() {
            return None;
        }
        let wc = self.batch[..self.filled].get(self.next)?;
        self.next += 1;
        let status = status(wc.status);
        let with = wc.wc_flags & wc_flag::WITH_IMM != 0;
        let len = if status == Status::Success { wc.byte_len } else { 0 };
        let immediate = with.then(|| u32::from_be(wc.imm_data));
        Some(Completion { qp: Qp(wc.qp_num), wr_id: wc.wr_id, status, len, immediate })
    }

    fn bytes(&self, slice: Slice) -> &[u8] {
        let found = self.regions.range(..=slice.address).next_back();
        let (base, (mapping, _)) = found.expect("registered memory");
        &mapping.bytes()[within(*base, slice)]
    }

    fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        let found = self.regions.range_mut(..=slice.address).next_back();
        let (base, (mapping, _)) = found.expect("registered memory");
        &mut mapping.bytes_mut()[within(*base, slice)]
    }
}
