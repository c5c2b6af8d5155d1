//! The objects of `verbs.h` that a connection needs, on the device that is linked into this library. Each is destroyed when it is
//! dropped, and keeps the objects that it uses.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

// The functions below are this crate's.
use weft_verbs as _;
use weft_verbs_abi::*;

/// The only port of a RoCE device.
const PORT: u8 = 1;
/// Maximum size of a message that a work request carries itself, bytes.
pub(crate) const INLINE: u32 = 64;
/// Work requests that a queue pair holds: 32 messages and as many clear-to-send messages whose ACKs are not processed yet.
pub(crate) const MAX_SENDS: u32 = 256;
/// Receive requests that a queue pair holds: one for each message in progress, and as many that are about to be posted again.
pub(crate) const MAX_RECEIVES: u32 = 64;

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid)
    -> c_int;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_reg_mr(pd: *mut ibv_pd, address: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        entries: c_int,
        own: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_modify_qp(qp: *mut ibv_qp, to: *mut ibv_qp_attr, mask: c_int) -> c_int;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
}

/// Returns the object that a function created.
///
/// # Errors
/// The pointer is null; the error is that of errno.
fn made<T>(call: &str, pointer: *mut T) -> io::Result<*mut T> {
    if pointer.is_null() {
        return Err(named(call, &io::Error::last_os_error()));
    }
    Ok(pointer)
}

/// Checks a function's result, which is zero or an error number.
fn done(call: &str, result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        number => Err(named(call, &io::Error::from_raw_os_error(number.abs()))),
    }
}

fn named(call: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}: {error}"))
}

/// An opened device with a protection domain, in which all memory is registered.
#[derive(Debug)]
pub(crate) struct Domain {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
}

// SAFETY: libibverbs allows calls from any thread.
unsafe impl Send for Domain {}
// SAFETY: likewise.
unsafe impl Sync for Domain {}

impl Domain {
    /// Opens the only device.
    ///
    /// # Errors
    /// There is no device, or it cannot be opened.
    pub(crate) fn open() -> io::Result<Self> {
        let mut count = 0;
        // SAFETY: the list has `count` devices until it is freed.
        let context = unsafe {
            let list = made("ibv_get_device_list", ibv_get_device_list(&raw mut count))?;
            let context = match count {
                0 => Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "no device (does WEFT_DEVICE name one that runs? `weft device list`)",
                )),
                _ => made("ibv_open_device", ibv_open_device(*list)),
            };
            ibv_free_device_list(list);
            context?
        };
        // SAFETY: the context is open.
        match made("ibv_alloc_pd", unsafe { ibv_alloc_pd(context) }) {
            Ok(pd) => Ok(Self { context, pd }),
            Err(error) => {
                // SAFETY: it was opened above, and has no objects.
                unsafe { ibv_close_device(context) };
                Err(error)
            }
        }
    }

    /// Returns the device's addresses in the order of its GID table; an index into this list is a [`QueuePair`]'s `gid`.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        (0_u8..=u8::MAX)
            .map_while(|index| {
                let mut gid = ibv_gid::default();
                // SAFETY: the context is open, and `gid` has room for the result.
                let found =
                    unsafe { ibv_query_gid(self.context, PORT, index.into(), &raw mut gid) } == 0;
                found.then(|| Ipv6Addr::from(gid.raw).to_canonical())
            })
            .collect()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: every object that uses them keeps this value.
        unsafe {
            ibv_dealloc_pd(self.pd);
            ibv_close_device(self.context);
        }
    }
}

/// Registered memory.
#[derive(Debug)]
pub(crate) struct Region {
    mr: *mut ibv_mr,
    _domain: Arc<Domain>,
}

// SAFETY: libibverbs allows calls from any thread.
unsafe impl Send for Region {}
// SAFETY: likewise.
unsafe impl Sync for Region {}

impl Region {
    /// Registers memory, which peers may write to.
    ///
    /// # Errors
    /// The device refuses it.
    ///
    /// # Safety
    /// The memory exists until the region is dropped.
    pub(crate) unsafe fn register(
        domain: &Arc<Domain>,
        start: *mut c_void,
        len: usize,
    ) -> io::Result<Self> {
        let flags =
            c_int::try_from(access::LOCAL_WRITE | access::REMOTE_WRITE).expect("bits of verbs.h");
        // SAFETY: the domain exists; the caller guarantees the memory.
        let mr = made("ibv_reg_mr", unsafe { ibv_reg_mr(domain.pd, start, len, flags) })?;
        Ok(Self { mr, _domain: domain.clone() })
    }

    /// Returns the key of local work requests.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the region exists.
        unsafe { (*self.mr).lkey }
    }

    /// Returns the key of peers' work requests.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the region exists.
        unsafe { (*self.mr).rkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it was registered, and is not used any more.
        unsafe { ibv_dereg_mr(self.mr) };
    }
}

/// One end of a reliable connection, with a completion queue of its own.
#[derive(Debug)]
pub(crate) struct QueuePair {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    gid: u8,
    domain: Arc<Domain>,
}

// SAFETY: libibverbs allows calls from any thread.
unsafe impl Send for QueuePair {}

/// The values by which a peer reaches a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) address: Ipv6Addr,
}

impl QueuePair {
    /// Creates a queue pair in the state INIT, whose local address is the one at index `gid`.
    ///
    /// # Errors
    /// The device has no resources left.
    pub(crate) fn create(domain: &Arc<Domain>, gid: u8) -> io::Result<Self> {
        let entries = c_int::try_from(MAX_SENDS + MAX_RECEIVES).expect("few");
        // SAFETY: the context is open.
        let cq =
            unsafe { ibv_create_cq(domain.context, entries, ptr::null_mut(), ptr::null_mut(), 0) };
        let mut pair = Self {
            qp: ptr::null_mut(),
            cq: made("ibv_create_cq", cq)?,
            gid,
            domain: domain.clone(),
        };
        let mut init = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: pair.cq,
            recv_cq: pair.cq,
            srq: ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: MAX_SENDS,
                max_recv_wr: MAX_RECEIVES,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: INLINE,
            },
            qp_type: qp_type::RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queue exist.
        pair.qp = made("ibv_create_qp", unsafe { ibv_create_qp(domain.pd, &raw mut init) })?;
        let mut to = ibv_qp_attr {
            qp_state: qp_state::INIT,
            port_num: PORT,
            qp_access_flags: access::REMOTE_WRITE,
            ..ibv_qp_attr::default()
        };
        use qp_attr_mask::{ACCESS_FLAGS, PKEY_INDEX, PORT as PORT_NUM, STATE};
        pair.modify(&mut to, STATE | PKEY_INDEX | PORT_NUM | ACCESS_FLAGS)?;
        Ok(pair)
    }

    /// Returns the number of the queue pair.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair exists.
        unsafe { (*self.qp).qp_num }
    }

    /// Connects to a peer, which may send at once.
    ///
    /// # Errors
    /// The device refuses the peer's address.
    pub(crate) fn connect(&self, psn: u32, peer: &Endpoint) -> io::Result<()> {
        use qp_attr_mask::{
            AV, DEST_QPN, MAX_DEST_RD_ATOMIC, MAX_QP_RD_ATOMIC, MIN_RNR_TIMER, PATH_MTU, RETRY_CNT,
            RNR_RETRY, RQ_PSN, SQ_PSN, STATE, TIMEOUT,
        };
        let grh = ibv_global_route {
            dgid: ibv_gid { raw: peer.address.octets(), ..ibv_gid::default() },
            sgid_index: self.gid,
            hop_limit: 64,
            ..ibv_global_route::default()
        };
        let mut to = ibv_qp_attr {
            qp_state: qp_state::RTR,
            path_mtu: IBV_MTU_4096,
            dest_qp_num: peer.qpn,
            rq_psn: peer.psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ah_attr: ibv_ah_attr { grh, is_global: 1, port_num: PORT, ..ibv_ah_attr::default() },
            ..ibv_qp_attr::default()
        };
        self.modify(
            &mut to,
            STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
        )?;
        let mut to = ibv_qp_attr {
            qp_state: qp_state::RTS,
            sq_psn: psn,
            timeout: 18,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            ..ibv_qp_attr::default()
        };
        self.modify(&mut to, STATE | SQ_PSN | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC)
    }

    fn modify(&self, to: &mut ibv_qp_attr, mask: u32) -> io::Result<()> {
        let mask = c_int::try_from(mask).expect("bits of verbs.h");
        // SAFETY: the queue pair exists.
        done("ibv_modify_qp", unsafe { ibv_modify_qp(self.qp, to, mask) })
    }

    /// Posts a receive request; without `to` one for a WRITE with immediate data.
    ///
    /// # Errors
    /// The queue is full, or the queue pair has failed.
    pub(crate) fn post_receive(&self, wr_id: u64, to: Option<ibv_sge>) -> io::Result<()> {
        let mut pieces = to.unwrap_or_default();
        let mut request = ibv_recv_wr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: &raw mut pieces,
            num_sge: to.is_some().into(),
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the request and its piece live until the call returns, as verbs requires.
        let result = unsafe {
            let post = (*self.domain.context).ops.post_recv;
            post.map_or(libc::EOPNOTSUPP, |post| post(self.qp, &raw mut request, &raw mut bad))
        };
        done("ibv_post_recv", result)
    }

    /// Posts a SEND of a few bytes, at most [`INLINE`], which are copied. With `signaled` a completion announces its ACK.
    ///
    /// # Errors
    /// The queue is full, or the queue pair has failed.
    pub(crate) fn post_send(&self, wr_id: u64, bytes: &[u8], signaled: bool) -> io::Result<()> {
        let piece = ibv_sge {
            addr: bytes.as_ptr().expose_provenance() as u64,
            length: u32::try_from(bytes.len()).expect("a few bytes"),
            lkey: 0,
        };
        // SAFETY: zeros are a request of an opcode that is set below.
        let mut request: ibv_send_wr = unsafe { core::mem::zeroed() };
        request.wr_id = wr_id;
        request.opcode = wr_opcode::SEND;
        request.send_flags = send_flag::INLINE | if signaled { send_flag::SIGNALED } else { 0 };
        self.post(request, piece)
    }

    /// Posts a WRITE of memory with an immediate value. A completion announces its ACK.
    ///
    /// # Errors
    /// The queue is full, or the queue pair has failed.
    pub(crate) fn post_write(
        &self,
        wr_id: u64,
        from: ibv_sge,
        to: rdma_target,
        immediate: u32,
    ) -> io::Result<()> {
        // SAFETY: zeros are a request of an opcode that is set below.
        let mut request: ibv_send_wr = unsafe { core::mem::zeroed() };
        request.wr_id = wr_id;
        request.opcode = wr_opcode::RDMA_WRITE_WITH_IMM;
        request.send_flags = send_flag::SIGNALED;
        request.imm_data = immediate.to_be();
        request.wr.rdma = to;
        self.post(request, from)
    }

    /// Posts a request with one piece, or none if that is empty.
    fn post(&self, mut request: ibv_send_wr, mut piece: ibv_sge) -> io::Result<()> {
        request.sg_list = &raw mut piece;
        request.num_sge = (piece.length > 0).into();
        let mut bad = ptr::null_mut();
        // SAFETY: the request and its piece live until the call returns, as verbs requires.
        let result = unsafe {
            let post = (*self.domain.context).ops.post_send;
            post.map_or(libc::EOPNOTSUPP, |post| post(self.qp, &raw mut request, &raw mut bad))
        };
        done("ibv_post_send", result)
    }

    /// Fills a batch with completions and returns their number.
    pub(crate) fn poll(&self, batch: &mut [ibv_wc]) -> usize {
        let room = c_int::try_from(batch.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue exists, and the batch has room for that many completions.
        let polled = unsafe {
            let poll = (*self.domain.context).ops.poll_cq;
            poll.map_or(0, |poll| poll(self.cq, room, batch.as_mut_ptr()))
        };
        usize::try_from(polled).unwrap_or(0)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the queue pair, if it was created, is not used any more, and neither is its queue then.
        unsafe {
            if !self.qp.is_null() {
                ibv_destroy_qp(self.qp);
            }
            ibv_destroy_cq(self.cq);
        }
    }
}
