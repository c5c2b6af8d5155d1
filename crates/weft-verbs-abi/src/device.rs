//! Devices, their ports and their capabilities.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::be64;

/// The address of a port. An IPv4 address is `::ffff:a.b.c.d`, as in RoCE v2.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid {
    /// The address in network byte order.
    pub raw: [u8; 16],
    /// A field without size that gives the structure the alignment of C's 64-bit halves.
    pub align: [u64; 0],
}

/// An entry of a port's GID table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_gid_entry {
    /// The address.
    pub gid: ibv_gid,
    /// The index in the table.
    pub gid_index: u32,
    /// The number of the port.
    pub port_num: u32,
    /// The type: [`IBV_GID_TYPE_ROCE_V2`].
    pub gid_type: u32,
    /// The index of the network interface, or zero.
    pub ndev_ifindex: u32,
}

/// The GID type of RoCE v2: UDP encapsulation.
pub const IBV_GID_TYPE_ROCE_V2: u32 = 2;

/// The node type of a channel adapter.
pub const IBV_NODE_CA: c_int = 1;
/// The transport type with InfiniBand semantics, on every link layer.
pub const IBV_TRANSPORT_IB: c_int = 0;
/// The transport type of iWARP, RDMA over TCP (RFC 5040).
pub const IBV_TRANSPORT_IWARP: c_int = 1;
/// The atomicity among operations of the same device.
pub const IBV_ATOMIC_HCA: u32 = 1;
/// The state of a port that carries traffic.
pub const IBV_PORT_ACTIVE: u32 = 4;
/// The physical state of a port whose link is up (IBTA, PortPhysicalState).
pub const PHYS_STATE_LINK_UP: u8 = 5;
/// The link layer of RoCE.
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;
/// The code of an MTU of 4096 bytes. The code of 256 bytes is 1.
pub const IBV_MTU_4096: u32 = 5;
/// The code of an MTU of 1024 bytes.
pub const IBV_MTU_1024: u32 = 3;

/// The bits of [`ibv_device_attr::device_cap_flags`].
pub mod device_cap {
    /// RC queue pairs send RNR NAKs.
    pub const RC_RNR_NAK_GEN: u32 = 1 << 12;
    /// Shared receive queues can be resized.
    pub const SRQ_RESIZE: u32 = 1 << 13;
    /// The device has memory windows.
    pub const MEM_WINDOW: u32 = 1 << 17;
    /// The device has LOCAL_INV and SEND_WITH_INV.
    pub const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    /// The device has memory windows of type 2B, bound to a queue pair and a protection domain.
    pub const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
}

/// The bits of [`ibv_port_attr::port_cap_flags`].
pub mod port_cap {
    /// A connection manager listens on the port.
    pub const CM_SUP: u32 = 1 << 16;
    /// The GIDs are IP addresses.
    pub const IP_BASED_GIDS: u32 = 1 << 26;
}

/// The attributes of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_query_device(3)")]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: be64,
    pub sys_image_guid: be64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: u32,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// The input of `ibv_query_device_ex`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_query_device_ex_input {
    /// The mask of extensions; none exists.
    pub comp_mask: u32,
}

/// The attributes of a device with the later additions to verbs. Weft has none of the additions: only `orig_attr`,
/// `device_cap_flags_ex` and `phys_port_cnt_ex` are not zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_query_device_ex(3)")]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
    pub odp_caps: [u64; 3],
    pub completion_timestamp_mask: u64,
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
    pub tso_caps: [u32; 2],
    pub rss_caps: [u64; 4],
    pub max_wq_type_rq: u32,
    pub packet_pacing_caps: [u32; 3],
    pub raw_packet_caps: u32,
    pub tm_caps: [u32; 5],
    pub cq_mod_caps: [u16; 2],
    pub max_dm_size: u64,
    pub pci_atomic_caps: [u16; 3],
    pub xrc_odp_caps: u32,
    pub phys_port_cnt_ex: u32,
}

/// The attributes of a port.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "ibv_query_port(3)")]
pub struct ibv_port_attr {
    pub state: u32,
    pub max_mtu: u32,
    pub active_mtu: u32,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// Number of bytes that `ibv_query_port` fills in: programs from before `link_layer` was added have no more space.
pub const COMPAT_PORT_ATTR_LEN: usize = core::mem::offset_of!(ibv_port_attr, link_layer);

/// A device in the list of devices.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "ibv_get_device_list(3)")]
pub struct ibv_device {
    pub _ops: [*const c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}
