//! The structures of `rdma/rdma_cma.h`, field by field, under their C names (rdma-core 44). `tests/layout.rs` has the C
//! compiler print the size and offset of every field and compares them.
#![allow(non_camel_case_types, reason = "the names of rdma_cma.h, so that its manual pages apply")]
#![allow(
    missing_debug_implementations,
    reason = "pointers and unions of C have no useful debug output"
)]

use core::ffi::{c_char, c_int, c_void};

use libc::{sockaddr, sockaddr_storage, socklen_t};

use weft_verbs_abi::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_srq,
};

/// Kinds of events.
#[allow(missing_docs, reason = "rdma_get_cm_event(3)")]
pub mod cm_event {
    pub const ADDR_RESOLVED: u32 = 0;
    pub const ADDR_ERROR: u32 = 1;
    pub const ROUTE_RESOLVED: u32 = 2;
    pub const CONNECT_REQUEST: u32 = 4;
    pub const CONNECT_RESPONSE: u32 = 5;
    pub const CONNECT_ERROR: u32 = 6;
    pub const UNREACHABLE: u32 = 7;
    pub const REJECTED: u32 = 8;
    pub const ESTABLISHED: u32 = 9;
    pub const DISCONNECTED: u32 = 10;
}

/// Port spaces.
#[allow(missing_docs, reason = "rdma_create_id(3)")]
pub mod port_space {
    pub const TCP: u32 = 0x0106;
    pub const UDP: u32 = 0x0111;
}

/// The key of every datagram queue pair of [`port_space::UDP`].
pub const RDMA_UDP_QKEY: u32 = 0x0123_4567;
/// The maximum number of concurrent READs and atomics that the device supports, in both directions.
pub const RDMA_MAX_RESOURCES: u8 = 0xff;

/// Flags of [`rdma_addrinfo`].
#[allow(missing_docs, reason = "rdma_getaddrinfo(3)")]
pub mod addrinfo_flag {
    pub const PASSIVE: i32 = 1;
    pub const NUMERICHOST: i32 = 2;
    pub const FAMILY: i32 = 8;
}

/// Levels and names of options.
#[allow(missing_docs, reason = "rdma_set_option(3)")]
pub mod option {
    pub const LEVEL_ID: i32 = 0;
    pub const TOS: i32 = 0;
    pub const REUSEADDR: i32 = 1;
    pub const AFONLY: i32 = 2;
    pub const ACK_TIMEOUT: i32 = 3;
}

/// The addresses of a connection as GIDs.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "rdma_create_id(3)")]
pub struct rdma_ib_addr {
    pub sgid: ibv_gid,
    pub dgid: ibv_gid,
    pub pkey: u16,
}

/// The addresses of a connection.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "rdma_create_id(3)")]
pub struct rdma_addr {
    pub src_addr: sockaddr_storage,
    pub dst_addr: sockaddr_storage,
    pub addr: rdma_ib_addr,
}

/// The route of a connection.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "rdma_resolve_route(3)")]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: *mut c_void,
    pub num_paths: c_int,
}

/// A channel that delivers events to the program.
#[repr(C)]
#[allow(missing_docs, reason = "rdma_create_event_channel(3)")]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// An identifier: one end of a connection, or a listener.
#[repr(C)]
#[allow(missing_docs, reason = "rdma_create_id(3)")]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: u32,
    pub port_num: u8,
    pub event: *mut rdma_cm_event,
    pub send_cq_channel: *mut ibv_comp_channel,
    pub send_cq: *mut ibv_cq,
    pub recv_cq_channel: *mut ibv_comp_channel,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub pd: *mut ibv_pd,
    pub qp_type: u32,
}

/// The parameters that both ends of a connection exchange.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "rdma_connect(3)")]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// The address of the other end's datagram queue pair.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "rdma_get_cm_event(3)")]
pub struct rdma_ud_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub ah_attr: ibv_ah_attr,
    pub qp_num: u32,
    pub qkey: u32,
}

/// The parameters of an event; the port space selects the member.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "rdma_get_cm_event(3)")]
pub union rdma_event_param {
    pub conn: rdma_conn_param,
    pub ud: rdma_ud_param,
}

/// An event.
#[repr(C)]
#[allow(missing_docs, reason = "rdma_get_cm_event(3)")]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: u32,
    pub status: c_int,
    pub param: rdma_event_param,
}

/// The addresses that a name resolves to.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "rdma_getaddrinfo(3)")]
pub struct rdma_addrinfo {
    pub ai_flags: c_int,
    pub ai_family: c_int,
    pub ai_qp_type: c_int,
    pub ai_port_space: c_int,
    pub ai_src_len: socklen_t,
    pub ai_dst_len: socklen_t,
    pub ai_src_addr: *mut sockaddr,
    pub ai_dst_addr: *mut sockaddr,
    pub ai_src_canonname: *mut c_char,
    pub ai_dst_canonname: *mut c_char,
    pub ai_route_len: usize,
    pub ai_route: *mut c_void,
    pub ai_connect_len: usize,
    pub ai_connect: *mut c_void,
    pub ai_next: *mut Self,
}
