//! Queue pairs: state changes, queries, destruction; their creation, and requests that are built call by call.

use core::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use weft_rnic::{Access, Attributes, QueuePairNumber, Service, State};

use super::address_handle::resolve;
use super::{Object, Shared};
use crate::context::{Context, Opened};
use crate::engine::address_of;
use crate::engine::events::Open;
use crate::errno::{EINVAL, Outcome, number};
use weft_verbs_abi::*;

mod builder;
mod creation;
mod marking;

use builder::Builder;
pub(crate) use creation::create_qp_ex;
use marking::marking_of;

#[repr(C)]
pub(super) struct QueuePair {
    public: Shared<ibv_qp_ex>,
    pub(super) opened: Arc<Opened>,
    pub(super) number: QueuePairNumber,
    pub(super) service: Service,
    pub(super) asynchronous: Open,
    /// The requests that are built call by call, while `wr_start` holds the queue pair's mutex.
    builder: core::cell::UnsafeCell<Builder>,
    /// `true` if it was made for building requests.
    builds: bool,
    cap: ibv_qp_cap,
    signal_all: bool,
    /// The parts of the address vector that the device does not keep.
    address: Mutex<ibv_ah_attr>,
}

// SAFETY: the type is `repr(C)`, and begins with the structure.
unsafe impl Object for QueuePair {
    type Public = ibv_qp_ex;
}

/// # Safety
/// `qp` exists.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: guaranteed by the caller.
    let builds = unsafe { QueuePair::of(qp.cast()) }.builds;
    if builds { qp.cast() } else { core::ptr::null_mut() }
}

/// The states and their numbers.
const STATES: [(State, u32); 7] = [
    (State::Reset, qp_state::RESET),
    (State::Init, qp_state::INIT),
    (State::ReadyToReceive, qp_state::RTR),
    (State::ReadyToSend, qp_state::RTS),
    (State::SendQueueDrained, qp_state::SQD),
    (State::SendQueueError, qp_state::SQE),
    (State::Error, qp_state::ERR),
];

fn state_of(number: u32) -> Outcome<State> {
    STATES.iter().find(|row| row.1 == number).map(|row| row.0).ok_or(EINVAL)
}

fn number_of(state: State) -> u32 {
    STATES.iter().find(|row| row.0 == state).expect("every state is there").1
}

/// The supported attributes; alternate paths, rates and new sizes are not among them.
const KNOWN: u32 = {
    use qp_attr_mask::*;
    STATE
        | CUR_STATE
        | EN_SQD_ASYNC_NOTIFY
        | ACCESS_FLAGS
        | PKEY_INDEX
        | PORT
        | QKEY
        | AV
        | PATH_MTU
        | TIMEOUT
        | RETRY_CNT
        | RNR_RETRY
        | RQ_PSN
        | MAX_QP_RD_ATOMIC
        | MIN_RNR_TIMER
        | SQ_PSN
        | MAX_DEST_RD_ATOMIC
        | DEST_QPN
};

/// Returns the MTU of a number of `enum ibv_mtu`, bytes: 256 bytes is 1.
fn mtu_of(number: u32) -> Outcome<u16> {
    if (1..=5).contains(&number) { Ok(128 << number) } else { Err(EINVAL) }
}

impl QueuePair {
    /// Converts the program's changes to the device's attributes.
    fn attributes(&self, wanted: &ibv_qp_attr, mask: u32) -> Outcome<Attributes> {
        use qp_attr_mask::*;
        if mask & !KNOWN != 0 {
            return Err(EINVAL);
        }
        let given = |bit| mask & bit != 0;
        let rights = |bits: u32| Access::from_bits(bits & !access::RELAXED_ORDERING).ok_or(EINVAL);
        let destination = if given(AV) {
            let ip = resolve(&self.opened, &wanted.ah_attr)?;
            let known = self.opened.engine.query_qp(self.number)?.1.dest_qp;
            let qp = if given(DEST_QPN) { Some(wanted.dest_qp_num) } else { known };
            Some(address_of(ip, qp.unwrap_or(0)))
        } else {
            None
        };
        Ok(Attributes {
            state: given(STATE).then(|| state_of(wanted.qp_state)).transpose()?,
            current_state: given(CUR_STATE).then(|| state_of(wanted.cur_qp_state)).transpose()?,
            drained_event: given(EN_SQD_ASYNC_NOTIFY).then_some(wanted.en_sqd_async_notify != 0),
            access: given(ACCESS_FLAGS).then(|| rights(wanted.qp_access_flags)).transpose()?,
            pkey_index: given(PKEY_INDEX).then_some(wanted.pkey_index),
            port: given(PORT).then_some(wanted.port_num),
            qkey: given(QKEY).then_some(wanted.qkey),
            destination,
            marking: given(AV).then(|| marking_of(&wanted.ah_attr.grh)).transpose()?,
            path_mtu: given(PATH_MTU).then(|| mtu_of(wanted.path_mtu)).transpose()?,
            timeout: given(TIMEOUT).then_some(wanted.timeout),
            retry_count: given(RETRY_CNT).then_some(wanted.retry_cnt),
            rnr_retry: given(RNR_RETRY).then_some(wanted.rnr_retry),
            rq_psn: given(RQ_PSN).then_some(wanted.rq_psn),
            sq_psn: given(SQ_PSN).then_some(wanted.sq_psn),
            max_rd_atomic: given(MAX_QP_RD_ATOMIC).then_some(wanted.max_rd_atomic),
            max_dest_rd_atomic: given(MAX_DEST_RD_ATOMIC).then_some(wanted.max_dest_rd_atomic),
            min_rnr_timer: given(MIN_RNR_TIMER).then_some(wanted.min_rnr_timer),
            dest_qp: given(DEST_QPN).then_some(wanted.dest_qp_num),
        })
    }

    /// Returns the queue pair's attributes as the structure of C.
    fn describe(&self) -> Outcome<ibv_qp_attr> {
        let (state, attributes) = self.opened.engine.query_qp(self.number)?;
        let state = number_of(state);
        Ok(ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            path_mtu: attributes.path_mtu.map_or(0, |mtu| mtu.ilog2() - 7),
            qkey: attributes.qkey.unwrap_or(0),
            rq_psn: attributes.rq_psn.unwrap_or(0),
            sq_psn: attributes.sq_psn.unwrap_or(0),
            dest_qp_num: attributes.dest_qp.unwrap_or(0),
            qp_access_flags: attributes.access.unwrap_or_default().bits(),
            cap: self.cap,
            ah_attr: *self.address.lock().unwrap_or_else(PoisonError::into_inner),
            pkey_index: attributes.pkey_index.unwrap_or(0),
            max_rd_atomic: attributes.max_rd_atomic.unwrap_or(0),
            max_dest_rd_atomic: attributes.max_dest_rd_atomic.unwrap_or(0),
            min_rnr_timer: attributes.min_rnr_timer.unwrap_or(0),
            port_num: attributes.port.unwrap_or(0),
            timeout: attributes.timeout.unwrap_or(0),
            retry_cnt: attributes.retry_count.unwrap_or(0),
            rnr_retry: attributes.rnr_retry.unwrap_or(0),
            ..ibv_qp_attr::default()
        })
    }
}

/// # Safety
/// `qp` exists, and `attributes` are valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let (pair, wanted) = unsafe { (QueuePair::of(qp.cast()), &*attributes) };
        let mask = mask.cast_unsigned();
        let changes = pair.attributes(wanted, mask)?;
        pair.modify(&changes)?;
        if mask & qp_attr_mask::AV != 0 {
            *pair.address.lock().unwrap_or_else(PoisonError::into_inner) = wanted.ah_attr;
        }
        let state = number_of(pair.opened.engine.query_qp(pair.number)?.0);
        // SAFETY: guaranteed by the caller.
        unsafe { (*qp).state = state };
        Ok(())
    })
}

/// # Safety
/// `qp` exists, and the others have room for attributes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let (pair, public) = unsafe { (QueuePair::of(qp.cast()), &*qp) };
        let described = pair.describe()?;
        let made_with = ibv_qp_init_attr {
            qp_context: public.qp_context,
            send_cq: public.send_cq,
            recv_cq: public.recv_cq,
            srq: public.srq,
            cap: pair.cap,
            qp_type: public.qp_type,
            sq_sig_all: pair.signal_all.into(),
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            attributes.write(described);
            init.write(made_with);
            (*qp).state = described.qp_state;
        }
        Ok(())
    })
}

/// # Safety
/// `qp` exists.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    number(|| {
        // SAFETY: guaranteed by the caller.
        let pair = unsafe { QueuePair::of(qp.cast()) };
        pair.opened.engine.destroy_qp(pair.number)?;
        let object = qp.expose_provenance();
        pair.opened.events.take(|event| event.object == object);
        pair.asynchronous.wait_for_none();
        // SAFETY: no event refers to it any more, and the caller gives it up.
        drop(unsafe { QueuePair::take(qp.cast()) });
        Ok(())
    })
}

/// Returns 1 if a connected queue pair of this context's device has unsent requests, or completions that wait to be polled;
/// otherwise 0. The connection manager calls it. The queue pair is identified by number, because it may be destroyed
/// meanwhile; the context is not, because the device that was opened after a daemon's end has the same numbers.
///
/// # Safety
/// `context` is open, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn weft_has_unseen(context: *mut ibv_context, qp_num: u32) -> c_int {
    if context.is_null() {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    let engine = unsafe { &Context::of(context).opened.engine };
    matches!(engine.has_unseen(QueuePairNumber(qp_num)), Ok(true)).into()
}

/// Returns 0: bytes of different messages, and of one message except the last, may arrive in any order.
#[unsafe(no_mangle)]
extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _operation: u32, _flags: u32) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_states_and_mtus_are_those_of_verbs_h() {
        for (state, number) in STATES {
            assert_eq!((state_of(number), number_of(state)), (Ok(state), number));
        }
        assert_eq!(state_of(7), Err(EINVAL));
        let mtus = [256, 512, 1024, 2048, 4096];
        for (number, bytes) in (1..).zip(mtus) {
            assert_eq!(mtu_of(number), Ok(bytes));
            assert_eq!(u32::from(bytes).ilog2() - 7, number);
        }
        assert_eq!((mtu_of(0), mtu_of(6)), (Err(EINVAL), Err(EINVAL)));
    }
}
