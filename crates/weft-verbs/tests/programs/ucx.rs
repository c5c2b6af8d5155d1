//! Tests of UCX, which uses the device through verbs alone.

use std::process::{Child, Command, Stdio};

use crate::pair::{OneHost, Stage, run};

/// A host where the device has a node in `/dev`, which UCX looks for: any character device suffices, and no other
/// process sees it.
struct WithNode;

const MAKE_NODE: &str = "mkdir -p /dev/infiniband && mount -t tmpfs none /dev/infiniband && \
                         ln -s /dev/null /dev/infiniband/weft0 && exec \"$@\"";

impl Stage for WithNode {
    fn server(&self) -> String {
        OneHost.server()
    }

    fn start(&self, second: bool, command: &mut Command) -> Child {
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "sh", "-c", MAKE_NODE, "sh"]);
        inside.arg(command.get_program()).args(command.get_args());
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside.stdout(Stdio::piped()).stderr(Stdio::piped());
        OneHost.start(second, &mut inside)
    }
}

/// Runs tests of `ucx_perftest` over one transport.
fn perftest(transport: &str, tests: &[&str]) {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !is_root {
        let test = format!("ucx over {transport}");
        return weft_testkit::skip(&test, "no mount namespace (run as root)");
    }
    for test in tests {
        let words = format!(
            "env UCX_TLS={transport} UCX_NET_DEVICES=weft0:1 ucx_perftest -n 200 -w 10 -t {test}"
        );
        let printed = run(&WithNode, &words);
        assert!(printed.client.contains("Final:"), "{printed:?}");
    }
}

#[test]
fn ucx_over_rc() {
    perftest(
        "rc_v",
        &["tag_lat", "tag_bw -s 65536", "ucp_put_bw -s 65536", "ucp_get -s 8", "ucp_fadd -s 8"],
    );
}

#[test]
fn ucx_over_ud() {
    perftest("ud_v", &["tag_lat", "tag_bw -s 65536"]);
}
