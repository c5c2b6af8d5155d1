//! A test of UCX on the device under `weft run`, which emulates its node in `/dev`.

use crate::library::LIBRARY;
use crate::pair::{OneHost, Stage, run};

/// Runs one test of `ucx_perftest` over a transport.
pub(crate) fn perftest(stage: &impl Stage, transport: &str, test: &str) {
    let preload = LIBRARY.join("libweft_preload.so");
    let words = format!(
        "env LD_PRELOAD={} UCX_TLS={transport} UCX_NET_DEVICES=weft0:1 ucx_perftest -n 200 -w 10 -t {test}",
        preload.display()
    );
    let printed = run(stage, &words);
    assert!(printed.client.contains("Final:"), "{printed:?}");
}

#[test]
fn ucx_accepts_a_device_without_a_node() {
    perftest(&OneHost, "rc_v", "tag_lat");
}
