//! The functions of NICs' own libraries that set the source port of a queue pair. verbs.h has none.

use core::ffi::{CStr, c_int};

use super::ibv_qp;

/// Sets the UDP source port of a queue pair that is ready to send; returns zero or an error number
/// (`mlx5dv_modify_qp_udp_sport(3)`).
pub type SetSourcePort = unsafe extern "C" fn(*mut ibv_qp, u16) -> c_int;

/// The function of one kernel driver's NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePortFunction {
    /// The kernel driver.
    pub driver: &'static str,
    /// The names of the libraries that may have it.
    pub libraries: &'static [&'static CStr],
    /// Its name, of type [`SetSourcePort`].
    pub name: &'static CStr,
}

/// NVIDIA ConnectX and BlueField. Weft's `libibverbs.so.1` has a function of this name and type, too.
pub const MLX5_SOURCE_PORT: SourcePortFunction = SourcePortFunction {
    driver: "mlx5_core",
    libraries: &[c"libmlx5.so.1"],
    name: c"mlx5dv_modify_qp_udp_sport",
};

/// Broadcom. Its library has another name with each version of rdma-core's provider interface.
pub const BNXT_SOURCE_PORT: SourcePortFunction = SourcePortFunction {
    driver: "bnxt_en",
    libraries: &[c"libbnxt_re.so", c"libbnxt_re-rdmav59.so", c"libbnxt_re-rdmav34.so"],
    name: c"bnxt_re_dv_modify_qp_udp_sport",
};
