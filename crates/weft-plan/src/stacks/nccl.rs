//! NCCL has no setting for source ports. `libweft_nic_ports.so.1`, between it and the system's libibverbs, sets those of
//! the table.

use alloc::vec;

use super::{PortOrigin, ROCE_PORT, StackRow, variable};

pub(super) const ROW: StackRow = StackRow {
    queue_pairs: 4,
    destination_port: ROCE_PORT,
    ports: PortOrigin::Table("WEFT_NIC_PORTS"),
    variables: |_, queue_pairs| {
        vec![
            variable("NCCL_IB_QPS_PER_CONNECTION", queue_pairs),
            variable("NCCL_IBVERBS_LIB", "libweft_nic_ports.so.1"),
        ]
    },
    conditions: "mlx5 or bnxt_re NICs, RoCEv2, NCCL from 2.30 on (before, LD_PRELOAD loads the library), and the table at \
                 this path on every server",
};
