//! Mooncake's transfer engine: queue pair `i` of an endpoint sends from entry `i` of a list, modulo its length
//! (`docs/source/design/transfer-engine/index.md` of Mooncake, `RdmaEndPoint`).

use alloc::vec;

use super::{PortOrigin, PortSource, ROCE_PORT, Settings, StackRow, list, variable};

pub(super) const ROW: StackRow = StackRow {
    queue_pairs: 2,
    destination_port: ROCE_PORT,
    ports: PortOrigin::Settings(Settings {
        count: |queue_pairs| queue_pairs,
        source: |queue_pair, settings| PortSource { setting: queue_pair % settings, offset: 0 },
        span: |_| 1,
    }),
    variables: |ports, queue_pairs| {
        vec![
            variable("MC_NUM_QP_PER_EP", queue_pairs),
            variable("MC_MLX5_QP_UDP_SPORTS", list(ports)),
        ]
    },
    conditions: "mlx5 NICs, RoCEv2, and a build of Mooncake with USE_MLX5DV; otherwise it warns once and sends from \
                 the driver's ports",
};
