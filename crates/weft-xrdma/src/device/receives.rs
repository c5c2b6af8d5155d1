//! Receive requests in the form of verbs.h: one, or a list that one call posts.

use core::ptr;

use weft_msg::{DeviceError, Qp};
use weft_verbs_abi::{ibv_recv_wr, ibv_sge};

use super::IbVerbs;
use crate::library::refused;

/// Returns a request with one piece, which nothing follows.
pub(super) const fn receive_request(wr_id: u64, piece: &mut ibv_sge) -> ibv_recv_wr {
    ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: &raw mut *piece, num_sge: 1 }
}

/// Links requests in order. Returns the list; null if there are none.
pub(super) fn link(requests: &mut [ibv_recv_wr]) -> *mut ibv_recv_wr {
    let mut list = ptr::null_mut();
    for request in requests.iter_mut().rev() {
        request.next = list;
        list = request;
    }
    list
}

impl IbVerbs {
    /// Posts a list of requests.
    ///
    /// # Errors
    /// The errors of `post_receive`; the requests before the refused one are posted.
    ///
    /// # Safety
    /// `list` is null or a list, and its requests and their pieces live until the call returns.
    pub(super) unsafe fn post_receive_list(
        &self,
        qp: Qp,
        list: *mut ibv_recv_wr,
    ) -> Result<(), DeviceError> {
        let qp = self.qp(qp)?;
        let mut bad = ptr::null_mut();
        // SAFETY: guaranteed by the caller, as verbs requires.
        let posted =
            unsafe { (*self.context).ops.post_recv.map(|post| post(qp, list, &raw mut bad)) };
        match posted {
            Some(0) => Ok(()),
            code => Err(refused("posting a receive request", code.unwrap_or(libc::EOPNOTSUPP))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_all_requests_in_order_and_ends_with_null() {
        let mut pieces = [64, 128, 192].map(|addr| ibv_sge { addr, length: 64, lkey: 7 });
        let mut requests: Vec<_> =
            pieces.iter_mut().map(|piece| receive_request(5, piece)).collect();
        let (mut next, mut addresses) = (link(&mut requests), Vec::new());
        // SAFETY: the requests and their pieces are above.
        while let Some(request) = unsafe { next.as_ref() } {
            assert_eq!((request.wr_id, request.num_sge), (5, 1));
            // SAFETY: likewise.
            addresses.push(unsafe { (*request.sg_list).addr });
            next = request.next;
        }
        assert_eq!(addresses, [64, 128, 192]);
        assert!(link(&mut []).is_null());
    }
}
