//! The variables with which stacks for AI choose Weft's device.

use std::env;
use std::path::Path;
use std::process::Command;

weft_units::registry! {
    /// A stack that has an RDMA transport and others.
    pub(crate) enum Stack: "stack" {
        Nixl => "nixl", "NVIDIA's NIXL with the UCX in its wheels: UCX over the device, never over TCP";
        Mooncake => "mooncake", "Mooncake's transfer engine: one thread for a device, and the first address";
        Nccl => "nccl", "NVIDIA's NCCL: its InfiniBand transport, with Weft's libibverbs";
    }
}

impl Stack {
    /// Returns the variables and their values, for libraries in a folder and the name of a device.
    fn variables(self, folder: &Path, device: &str) -> Vec<(&'static str, String)> {
        match self {
            // The names are rdma-core's: UCX has faster ones for hardware of one vendor only.
            Self::Nixl => vec![
                ("UCX_TLS", "rc_verbs,ud_verbs,self".into()),
                ("UCX_NET_DEVICES", format!("{device}:1")),
            ],
            // The first GID is an address that others reach. Mooncake takes 10.0.0.0/8 for an overlay's addresses, and
            // prefers the loopback address to them.
            Self::Mooncake => {
                vec![("MC_WORKERS_PER_CTX", "1".into()), ("MC_GID_INDEX", "0".into())]
            }
            // NCCL looks up functions in the file that it opens, so that preloading is not enough; with NCCL_NET it fails
            // where it would use TCP.
            Self::Nccl => vec![
                ("NCCL_IBVERBS_LIB", folder.join("libibverbs.so.1").display().to_string()),
                ("NCCL_NET", "IB".into()),
                ("NCCL_IB_HCA", format!("={device}")),
            ],
        }
    }
}

/// Sets the variables of a stack for a program, except those that its user has set, and prints them in one line on
/// standard error.
pub(super) fn prepare(command: &mut Command, stack: Stack, folder: &Path, device: &str) {
    let mut line = format!("weft: for {stack}:");
    for (name, value) in stack.variables(folder, device) {
        match env::var_os(name) {
            Some(kept) => line += &format!(" {name}={} (kept)", kept.display()),
            None => {
                line += &format!(" {name}={value}");
                command.env(name, value);
            }
        }
    }
    eprintln!("{line}");
}
