//! UCCL-EP: data queue pair `r` of a peer sends from a base plus 1 plus `r`, the others from the base itself and from
//! the two ports after the data's (`ep/README.md` and `ep/src/rdma.cpp` of UCCL).

use super::{PortOrigin, PortSource, ROCE_PORT, Settings, StackRow, variable};

pub(super) const ROW: StackRow = StackRow {
    // `kChannelPerProxy` of UCCL, which no variable changes.
    queue_pairs: 8,
    destination_port: ROCE_PORT,
    ports: PortOrigin::Settings(Settings {
        count: |_| 1,
        source: |queue_pair, _| PortSource {
            setting: 0,
            offset: u16::try_from(queue_pair + 1).unwrap_or(u16::MAX),
        },
        span: |queue_pairs| u16::try_from(queue_pairs + 3).unwrap_or(u16::MAX),
    }),
    variables: |ports, _| {
        let base = ports.first();
        base.map(|base| variable("UCCL_UDP_SPORT_BASE", base)).into_iter().collect()
    },
    conditions: "mlx5 NICs and RoCEv2; a proxy thread has eight data queue pairs to each peer, all threads from the \
                 same ports",
};
