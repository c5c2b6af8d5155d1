//! A test that every structure has the C compiler's layout.

use weft_rdmacm::abi::*;

#[macro_use]
#[path = "../../weft-verbs-abi/tests/layouts/mod.rs"]
mod layouts;

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

#[test]
fn structures_have_the_layout_of_rdma_cma_h() {
    layouts::compare("rdma/rdma_cma.h", "librdmacm-dev", &layouts());
}
