//! Conversion of completions to the structure of C.

use weft_rnic::{AtomicKind, Completion, Extra, Status, WorkKind};

use weft_verbs_abi::*;

const fn opcode(kind: WorkKind) -> u32 {
    match kind {
        WorkKind::Send => wc_opcode::SEND,
        WorkKind::Write => wc_opcode::RDMA_WRITE,
        WorkKind::Read => wc_opcode::RDMA_READ,
        WorkKind::Atomic(AtomicKind::CompareSwap) => wc_opcode::COMP_SWAP,
        WorkKind::Atomic(AtomicKind::FetchAdd) => wc_opcode::FETCH_ADD,
        WorkKind::BindWindow => wc_opcode::BIND_MW,
        WorkKind::LocalInvalidate => wc_opcode::LOCAL_INV,
        WorkKind::Receive => wc_opcode::RECV,
        WorkKind::ReceiveWriteWithImmediate => wc_opcode::RECV_RDMA_WITH_IMM,
    }
}

/// The values of `sl` in a datagram's completion: the kind of the network header before the datagram. RoCE has no
/// service levels, and adapters use the field for the kind; UCX drops a datagram whose header is of another kind.
const ROCE_V2_IPV6: u8 = 1;
const ROCE_V2_IPV4: u8 = 2;

/// Returns the structure that a program gets for a completion.
pub(super) fn wc(completion: &Completion) -> ibv_wc {
    let Completion { wr_id, status, kind, length, extra, qp, source, solicited: _ } = *completion;
    let (word, with) = match extra {
        Some(Extra::Immediate(word)) => (word.to_be(), wc_flag::WITH_IMM),
        Some(Extra::Invalidated(key)) => (key, wc_flag::WITH_INV),
        None => (0, 0),
    };
    let (route, sl) = match source.map(|source| source.address.is_ipv4()) {
        None => (0, 0),
        Some(false) => (wc_flag::GRH, ROCE_V2_IPV6),
        Some(true) => (wc_flag::GRH, ROCE_V2_IPV4),
    };
    ibv_wc {
        wr_id,
        status: status as u32,
        opcode: opcode(kind),
        vendor_err: if status == Status::Success { 0 } else { status as u32 },
        byte_len: length,
        imm_data: word,
        qp_num: qp.0,
        src_qp: source.map_or(0, |source| source.qp.0),
        wc_flags: with | route,
        sl,
        ..ibv_wc::default()
    }
}

#[cfg(test)]
mod tests {
    use weft_rnic::{DatagramSource, QueuePairNumber};

    use super::*;

    #[test]
    fn a_datagram_s_completion_has_its_source() {
        let address = ([10, 0, 0, 1], 0x5000).into();
        let completion = Completion {
            wr_id: 7,
            status: Status::Success,
            kind: WorkKind::Receive,
            length: 140,
            extra: Some(Extra::Immediate(0x0102_0304)),
            qp: QueuePairNumber(0x1234),
            source: Some(DatagramSource { qp: QueuePairNumber(0x4321), address }),
            solicited: false,
        };
        let wc = wc(&completion);
        assert_eq!((wc.wr_id, wc.byte_len, wc.qp_num, wc.src_qp), (7, 140, 0x1234, 0x4321));
        assert_eq!((wc.opcode, wc.wc_flags), (wc_opcode::RECV, wc_flag::GRH | wc_flag::WITH_IMM));
        assert_eq!(wc.sl, ROCE_V2_IPV4);
        assert_eq!(wc.imm_data.to_ne_bytes(), [1, 2, 3, 4]);
    }

    #[test]
    fn every_status_has_its_number() {
        assert_eq!(Status::WrFlush as u32, wc_status::WR_FLUSH_ERR);
        assert_eq!(Status::RetryExceeded as u32, wc_status::RETRY_EXC_ERR);
        assert_eq!(Status::Fatal as u32, wc_status::FATAL_ERR);
        assert_eq!(Status::General as u32, wc_status::GENERAL_ERR);
    }
}
