//! Every structure is laid out as the C compiler lays it out.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use weft_rdmacm::abi::*;

/// For each structure its name and fields, as C says them and as Rust has them.
macro_rules! layouts {
    ($($name:ident { $($field:ident),* $(,)? })+) => {
        /// Lines that a C program prints and what they must be.
        fn layouts() -> Vec<(String, String, usize)> {
            let mut lines = Vec::new();
            $(
                let name = stringify!($name);
                let size = format!("sizeof(struct {name})");
                lines.push((format!("{name}"), size, size_of::<$name>()));
                $(
                    let rust = stringify!($field);
                    let offset = format!("offsetof(struct {name}, {rust})");
                    lines.push((format!("{name}.{rust}"), offset, core::mem::offset_of!($name, $field)));
                )*
            )+
            lines
        }
    };
}

layouts! {
    rdma_ib_addr { sgid, dgid, pkey }
    rdma_addr { src_addr, dst_addr, addr }
    rdma_route { addr, path_rec, num_paths }
    rdma_event_channel { fd }
    rdma_cm_id {
        verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
        recv_cq_channel, recv_cq, srq, pd, qp_type,
    }
    rdma_conn_param {
        private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
        rnr_retry_count, srq, qp_num,
    }
    rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
    rdma_cm_event { id, listen_id, event, status, param }
    rdma_addrinfo {
        ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr, ai_dst_addr,
        ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route, ai_connect_len, ai_connect, ai_next,
    }
}

/// Compiles and runs a C program.
fn output_of(source: &str, in_folder: &Path) -> String {
    let (file, program) = (in_folder.join("layout.c"), in_folder.join("layout"));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").arg(&file).arg("-o").arg(&program).output().unwrap();
    let complaint = String::from_utf8_lossy(&compiled.stderr);
    assert!(
        compiled.status.success(),
        "no rdma_cma.h (apt-get install librdmacm-dev)? {complaint}"
    );
    String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap()
}

#[test]
fn structures_are_laid_out_as_rdma_cma_h_says() {
    let layouts = layouts();
    let mut source = String::from("#include <rdma/rdma_cma.h>\n#include <stdio.h>\n");
    source += "#include <stddef.h>\nint main(void) {\n";
    for (_, expression, _) in &layouts {
        writeln!(source, "printf(\"%zu\\n\", {expression});").unwrap();
    }
    source += "}\n";
    let printed = output_of(&source, Path::new(env!("CARGO_TARGET_TMPDIR")));
    let said: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(said.len(), layouts.len());
    let wrong: Vec<_> = layouts
        .iter()
        .zip(said)
        .filter(|((_, _, ours), said)| ours != said)
        .map(|((name, _, ours), said)| format!("{name}: {ours}, rdma_cma.h has {said}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
