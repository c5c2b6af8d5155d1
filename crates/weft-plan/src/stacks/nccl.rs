//! NCCL has no setting for source ports. On Weft's device the library below it reads the port table.

use alloc::vec;

use super::{StackRow, variable};

pub(super) const ROW: StackRow = StackRow {
    queue_pairs: 4,
    // The first port on which Weft's device receives, where no other process of the host has it.
    destination_port: 0x5000,
    settings: None,
    variables: |_, queue_pairs| vec![variable("NCCL_IB_QPS_PER_CONNECTION", queue_pairs)],
    conditions: "programs under `weft run`, and the table at this path on every server; on a NIC, NCCL sends from its driver's \
                 ports",
};
