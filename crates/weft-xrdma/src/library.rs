//! `libibverbs.so.1`, loaded on first use: a program on TCP only, or one that only prints its help, does not need it.

use core::ffi::{CStr, c_char, c_int, c_void};

use libloading::Library;
use weft_msg::{ConfigError, DeviceError};

use weft_verbs_abi::*;

/// The reasons why RDMA is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsLibraryError {
    /// The library cannot be loaded.
    #[error(
        "cannot load {NAME} ({0}): install libibverbs1 for RDMA hardware, or start the program with `weft run -- PROGRAM`"
    )]
    Missing(#[source] libloading::Error),
    /// The library lacks a function.
    #[error("{NAME} has no {name}: it is older than rdma-core 18")]
    Incomplete {
        /// The function.
        name: &'static str,
    },
    /// The library finds no device.
    #[error("no RDMA device: `ibv_devices` lists none; `weft run -- PROGRAM` brings one")]
    NoDevice,
    /// There is no device of this name.
    #[error("no RDMA device {name:?} (there are: {known})")]
    NoSuchDevice {
        /// The requested name.
        name: String,
        /// The names of the existing devices.
        known: String,
    },
    /// The device is iWARP's, which lacks what channels are made of.
    #[error(
        "RDMA device {device} is iWARP: it has no SEND with immediate data, and queue pairs that only rdma_cm connects; \
         name a device of RoCE or InfiniBand (device=NAME), or start the program with `weft run -- PROGRAM`"
    )]
    Iwarp {
        /// The device.
        device: String,
    },
    /// The device has no address that peers can reach.
    #[error("RDMA device {device} has no address{of}: is its network interface up?")]
    NoAddress {
        /// The device.
        device: String,
        /// The requested address as part of the message; empty if none was requested.
        of: String,
    },
    /// No library sets source ports on the device.
    #[error(
        "source_ports: {device} cannot have them ({reason}); a flow_label sets one for all channels"
    )]
    SourcePorts {
        /// The device.
        device: String,
        /// The reason.
        reason: String,
    },
    /// An environment variable is invalid.
    #[error("{name}: {error}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// The reason.
        #[source]
        error: ConfigError,
    },
    /// A call failed.
    #[error("{call}: {error}")]
    Failed {
        /// The function.
        call: &'static str,
        /// The error text.
        #[source]
        error: std::io::Error,
    },
}

/// The name by which the loader finds the library.
const NAME: &str = "libibverbs.so.1";

macro_rules! functions {
    ($($name:ident: $signature:ty;)+) => {
        /// The functions, and the loaded library that contains them.
        #[derive(Debug)]
        pub(crate) struct Verbs {
            $(pub(crate) $name: $signature,)+
            library: Library,
        }

        impl Verbs {
            /// Loads the library.
            ///
            /// # Errors
            /// The library cannot be loaded, or lacks a function.
            pub(crate) fn load() -> Result<Self, VerbsLibraryError> {
                // SAFETY: libibverbs only registers drivers when it is loaded.
                let library = unsafe { Library::new(NAME) }.map_err(VerbsLibraryError::Missing)?;
                // SAFETY: the signatures are those of verbs.h.
                unsafe {
                    Ok(Self {
                        $($name: *library
                            .get::<$signature>(concat!(stringify!($name), "\0").as_bytes())
                            .map_err(|_| VerbsLibraryError::Incomplete { name: stringify!($name) })?,)+
                        library,
                    })
                }
            }
        }
    };
}

impl Verbs {
    /// Returns a function that rdma-core's library lacks and Weft's may have: the NICs' libraries have it.
    pub(crate) fn optional(&self, name: &CStr) -> Option<SetSourcePort> {
        // SAFETY: every library that has a function of this name has it with this type.
        unsafe { self.library.get::<SetSourcePort>(name.to_bytes_with_nul()) }.ok().map(|set| *set)
    }
}

type List = *mut *mut ibv_device;

functions! {
    ibv_get_device_list: unsafe extern "C" fn(*mut c_int) -> List;
    ibv_free_device_list: unsafe extern "C" fn(List);
    ibv_get_device_name: unsafe extern "C" fn(*mut ibv_device) -> *const c_char;
    ibv_open_device: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device: unsafe extern "C" fn(*mut ibv_context) -> c_int;
    ibv_query_device: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    ibv_query_gid: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    ibv_alloc_pd: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd: unsafe extern "C" fn(*mut ibv_pd) -> c_int;
    ibv_reg_mr: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr: unsafe extern "C" fn(*mut ibv_mr) -> c_int;
    ibv_create_comp_channel: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel: unsafe extern "C" fn(*mut ibv_comp_channel) -> c_int;
    ibv_create_cq: unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_destroy_cq: unsafe extern "C" fn(*mut ibv_cq) -> c_int;
    ibv_get_cq_event: unsafe extern "C" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: unsafe extern "C" fn(*mut ibv_cq, u32);
    ibv_resize_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
    ibv_create_srq: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_destroy_srq: unsafe extern "C" fn(*mut ibv_srq) -> c_int;
    ibv_create_qp: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_destroy_qp: unsafe extern "C" fn(*mut ibv_qp) -> c_int;
}

/// Returns the object that a function created.
///
/// # Errors
/// The pointer is null; the error is that of errno.
pub(crate) fn check_pointer<T>(
    call: &'static str,
    pointer: *mut T,
) -> Result<*mut T, VerbsLibraryError> {
    if pointer.is_null() {
        return Err(VerbsLibraryError::Failed { call, error: std::io::Error::last_os_error() });
    }
    Ok(pointer)
}

/// Returns the error of a failed call: `result` is an error number, or negative if the number is in
/// errno.
pub(crate) fn refused(doing: &'static str, result: c_int) -> DeviceError {
    let code = if result > 0 {
        result
    } else {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    };
    DeviceError { doing, why: "the device refused", code }
}

/// Checks a function's result, which is zero or an error number.
pub(crate) fn check_result(call: &'static str, result: c_int) -> Result<(), VerbsLibraryError> {
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::from_raw_os_error(result.abs());
    Err(VerbsLibraryError::Failed { call, error })
}
