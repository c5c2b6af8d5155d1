//! mori: queue pair `i` of a peer sends from entry `i` modulo 4 of a list of four (`RdmaDeviceContext::GetUdpSport`).
//! Its IO engine numbers every queue pair 0, so all of them send from the first entry.

use alloc::vec;

use super::{PortOrigin, PortSource, ROCE_PORT, Settings, StackRow, list, variable};

/// Entries of the list, fixed in mori.
const ENTRIES: usize = 4;

pub(super) const ROW: StackRow = StackRow {
    queue_pairs: 4,
    destination_port: ROCE_PORT,
    ports: PortOrigin::Settings(Settings {
        count: |_| ENTRIES,
        source: |queue_pair, settings| PortSource { setting: queue_pair % settings, offset: 0 },
        span: |_| 1,
    }),
    variables: |ports, queue_pairs| {
        vec![
            variable("MORI_NUM_QP_PER_PE", queue_pairs),
            variable("MORI_MLX5_ENABLE_UDP_SPORT", 1),
            variable("MORI_BNXT_ENABLE_UDP_SPORT", 1),
            variable("MORI_GOR_PORT", list(ports)),
        ]
    },
    conditions: "mlx5, bnxt_re or ionic NICs; mori's IO engine uses the first of the four ports only",
};
