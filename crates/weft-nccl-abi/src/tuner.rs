//! The structures of NCCL's tuner plugin interface, versions 2 to 5. A plugin exports one [`ncclTuner_v5_t`] or an earlier form as
//! the symbol `ncclTunerPlugin_v5`. NCCL looks in `NCCL_TUNER_PLUGIN`, in `libnccl-tuner.so` and then in the net plugin.
//!
//! | version | from NCCL | change |
//! | --- | --- | --- |
//! | 2 | 2.21 | the plugin names an algorithm and a protocol |
//! | 3 | 2.22 | the plugin changes a table of costs |
//! | 4 | 2.24 | the call says whether buffers can be registered |
//! | 5 | 2.28 | `init` has the communicator's number, its NVLink domains and NCCL's constants |

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::{ncclDebugLogger_t, ncclResult_t};

/// The versions of the interface, the newest first, in the order in which NCCL looks for them.
pub const VERSIONS: [u8; 4] = [5, 4, 3, 2];

/// Returns the symbol under which a plugin exports a version.
///
/// # Panics
/// Panics if `version` is not one of [`VERSIONS`].
pub const fn symbol(version: u8) -> &'static CStr {
    match version {
        2 => c"ncclTunerPlugin_v2",
        3 => c"ncclTunerPlugin_v3",
        4 => c"ncclTunerPlugin_v4",
        5 => c"ncclTunerPlugin_v5",
        _ => panic!("a version from 2 to 5"),
    }
}

/// Collectives, `ncclFunc_t`.
pub mod function {
    use core::ffi::c_int;

    pub const BROADCAST: c_int = 0;
    pub const REDUCE: c_int = 1;
    pub const ALL_GATHER: c_int = 2;
    pub const REDUCE_SCATTER: c_int = 3;
    pub const ALL_REDUCE: c_int = 4;
}

/// Algorithms: the rows of the table of costs.
pub mod algorithm {
    use core::ffi::c_int;

    pub const TREE: c_int = 0;
    pub const RING: c_int = 1;
    pub const COLLNET_DIRECT: c_int = 2;
    pub const COLLNET_CHAIN: c_int = 3;
    pub const NVLS: c_int = 4;
    pub const NVLS_TREE: c_int = 5;
    pub const PAT: c_int = 6;
}

/// Protocols: the columns of the table of costs.
pub mod protocol {
    use core::ffi::c_int;

    pub const LL: c_int = 0;
    pub const LL128: c_int = 1;
    pub const SIMPLE: c_int = 2;
}

/// The cost of a combination that NCCL will not use.
pub const NCCL_ALGO_PROTO_IGNORE: f32 = -1.0;
/// Number of algorithms from version 5 on.
pub const NCCL_NUM_ALGORITHMS: usize = 7;
/// Number of protocols.
pub const NCCL_NUM_PROTOCOLS: usize = 3;

/// The NVLink domains of a communicator.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ncclNvlDomainInfo_v5_t {
    pub nNvlDomains: c_int,
    pub minRanksPerNvlDomain: c_int,
    pub maxRanksPerNvlDomain: c_int,
}

/// The numbers of NCCL's own cost model, which a plugin may change: bandwidths by compute capability and number of nodes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ncclTunerConstants_v5_t {
    pub baseLatencies: [[f64; NCCL_NUM_PROTOCOLS]; NCCL_NUM_ALGORITHMS],
    pub hwLatencies: [[[f64; NCCL_NUM_PROTOCOLS]; NCCL_NUM_ALGORITHMS]; 3],
    pub llMaxBws: [[f64; 3]; 4],
    pub perChMaxRingLL128Bws: [[f64; 3]; 4],
    pub perChMaxTreeLL128Bws: [[f64; 3]; 4],
    pub perChMaxTreeBws: [[f64; 3]; 4],
    pub perChMaxNVLSTreeBws: [[f64; 3]; 4],
}

macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*);)+) => {
        $(pub type $name = Option<unsafe extern "C" fn($($argument: $type),*) -> ncclResult_t>;)+
    };
}

calls! {
    InitTuner_v2(ranks: usize, nodes: usize, log: ncclDebugLogger_t, context: *mut *mut c_void);
    InitTuner_v5(context: *mut *mut c_void, communicator: u64, ranks: usize, nodes: usize, log: ncclDebugLogger_t, domains: *mut ncclNvlDomainInfo_v5_t, constants: *mut ncclTunerConstants_v5_t);
    GetCollInfo_v2(context: *mut c_void, function: c_int, bytes: usize, collnet: c_int, nvls: c_int, operations: c_int, algorithm: *mut c_int, protocol: *mut c_int, channels: *mut c_int);
    GetCollInfo_v3(context: *mut c_void, function: c_int, bytes: usize, operations: c_int, costs: *mut *mut f32, algorithms: c_int, protocols: c_int, channels: *mut c_int);
    GetCollInfo_v4(context: *mut c_void, function: c_int, bytes: usize, operations: c_int, costs: *mut *mut f32, algorithms: c_int, protocols: c_int, registered: c_int, channels: *mut c_int);
    DestroyTuner(context: *mut c_void);
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclTuner_v2_t {
    pub name: *const c_char,
    pub init: InitTuner_v2,
    pub getCollInfo: GetCollInfo_v2,
    pub destroy: DestroyTuner,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclTuner_v3_t {
    pub name: *const c_char,
    pub init: InitTuner_v2,
    pub getCollInfo: GetCollInfo_v3,
    pub destroy: DestroyTuner,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclTuner_v4_t {
    pub name: *const c_char,
    pub init: InitTuner_v2,
    pub getCollInfo: GetCollInfo_v4,
    pub destroy: DestroyTuner,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ncclTuner_v5_t {
    pub name: *const c_char,
    pub init: InitTuner_v5,
    pub getCollInfo: GetCollInfo_v4,
    pub finalize: DestroyTuner,
}
