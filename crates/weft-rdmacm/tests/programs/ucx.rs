//! UCX takes the device where `weft run` makes it look as if it had a node in `/dev`.

use crate::library::LIBRARY;
use crate::pair::{OneHost, run};

#[test]
fn ucx_takes_a_device_without_a_node() {
    let preload = LIBRARY.join("libweft_preload.so");
    let words = format!(
        "env LD_PRELOAD={} UCX_TLS=rc_v UCX_NET_DEVICES=weft0:1 ucx_perftest -n 200 -w 10 -t tag_lat",
        preload.display()
    );
    let printed = run(&OneHost, &words);
    assert!(printed.client.contains("Final:"), "{printed:?}");
}
