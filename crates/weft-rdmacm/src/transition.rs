//! The attributes of a connection's queue pair in each state (IBTA, section 12.9.8 and tables 91 to 96).

use core::ffi::c_int;

use crate::abi::RDMA_UDP_QKEY;
use crate::abi::rdma_cm_id;
use crate::errno::{EINVAL, Errno, Outcome};
use crate::ibverbs::{self, done, ibv_modify_qp};
use crate::id::Id;
use weft_verbs_abi::*;

/// The exponent of the ACK timeout, 4.096 µs times two to this: about a quarter of a second.
const ACK_TIMEOUT: u8 = 16;
/// The code of the shortest RNR NAK timer, 0.01 ms.
const RNR_TIMER: u8 = 1;

/// Returns the attributes of the queue pair in a state, and their mask.
///
/// # Errors
/// `EINVAL`: no such state. `ENOTCONN`: the other end has not sent the needed values yet.
pub(crate) fn attributes(id: &Id, state: u32) -> Outcome<(ibv_qp_attr, u32)> {
    use qp_attr_mask::*;
    // SAFETY: the field is set when the identifier is made.
    let service = unsafe { (*id.public()).qp_type };
    let details = id.details();
    let (own, peer) = (&details.own, details.peer.as_ref().ok_or(Errno(libc::ENOTCONN)));
    let mut to = ibv_qp_attr { qp_state: state, ..ibv_qp_attr::default() };
    let mask = match (state, service) {
        (qp_state::INIT, qp_type::UD) => {
            (to.port_num, to.qkey) = (ibverbs::PORT, RDMA_UDP_QKEY);
            PKEY_INDEX | PORT | QKEY
        }
        (qp_state::INIT, _) => {
            to.port_num = ibverbs::PORT;
            to.qp_access_flags = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;
            PKEY_INDEX | PORT | ACCESS_FLAGS
        }
        (qp_state::RTR, qp_type::UD) | (qp_state::ERR, _) => 0,
        (qp_state::RTS, qp_type::UD) => SQ_PSN,
        (qp_state::RTR, _) => {
            let peer = peer?;
            to.ah_attr = id.address_vector(&details);
            to.path_mtu = own.mtu.min(peer.mtu).into();
            (to.dest_qp_num, to.rq_psn) = (peer.queue_pair, peer.psn);
            (to.max_dest_rd_atomic, to.min_rnr_timer) = (own.responder_resources, RNR_TIMER);
            let reliable = MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
            AV | PATH_MTU | DEST_QPN | RQ_PSN | if service == qp_type::RC { reliable } else { 0 }
        }
        (qp_state::RTS, _) => {
            to.sq_psn = own.psn;
            to.timeout = details.ack_timeout.unwrap_or(ACK_TIMEOUT);
            (to.retry_cnt, to.rnr_retry) = (own.retry_count, own.rnr_retry_count);
            to.max_rd_atomic = own.initiator_depth;
            let reliable = TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;
            SQ_PSN | if service == qp_type::RC { reliable } else { 0 }
        }
        _ => return Err(EINVAL),
    };
    Ok((to, mask | STATE))
}

/// Moves the identifier's queue pair, if it has one, through states.
///
/// # Errors
/// The error of libibverbs.
pub(crate) fn advance(id: &Id, states: &[u32]) -> Outcome<()> {
    // SAFETY: only the calls that make and destroy the queue pair write this field.
    let pair = unsafe { (*id.public()).qp };
    if pair.is_null() {
        return Ok(());
    }
    for &state in states {
        modify(id, pair, state)?;
    }
    Ok(())
}

fn modify(id: &Id, pair: *mut ibv_qp, state: u32) -> Outcome<()> {
    let (mut to, mask) = attributes(id, state)?;
    // SAFETY: the queue pair exists.
    done(unsafe { ibv_modify_qp(pair, &raw mut to, mask.cast_signed()) })
}

/// Writes the attributes for the state in `to`, and their mask (`rdma_init_qp_attr(3)`).
///
/// # Safety
/// `id` is a live identifier, and the other pointers have room for their values.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    to: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    crate::errno::status(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (attributes, fields) = attributes(Id::of(id), (*to).qp_state)?;
            to.write(attributes);
            mask.write(fields.cast_signed());
        }
        Ok(())
    })
}
