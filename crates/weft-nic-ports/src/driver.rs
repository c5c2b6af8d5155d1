//! The drivers of NICs whose libraries set the source port of a queue pair.

use core::ffi::{CStr, c_int, c_void};
use std::fs;
use std::path::Path;

use weft_verbs_abi::ibv_qp;

weft_units::registry! {
    /// A kernel driver.
    pub(crate) enum Driver: "driver" {
        /// NVIDIA ConnectX and BlueField. `mlx5dv_modify_qp_udp_sport(3)`: the queue pair must be ready to send.
        Mlx5 => "mlx5_core";
        /// Broadcom. Its library has another name with each version of rdma-core's provider interface.
        Bnxt => "bnxt_en";
    }
}

/// Sets the UDP source port of a queue pair; returns zero or an error number.
pub(crate) type SetPort = unsafe extern "C" fn(*mut ibv_qp, u16) -> c_int;

/// The variable that names the driver instead of sysfs.
const VARIABLE: &str = "WEFT_NIC_DRIVER";

impl Driver {
    /// Returns the driver of a device by sysfs, or the one that the environment names.
    ///
    /// # Errors
    /// A message: the driver is unknown.
    pub(crate) fn of(device: &str) -> Result<Self, String> {
        let name = match std::env::var(VARIABLE) {
            Ok(name) if !name.is_empty() => name,
            _ => {
                let link = Path::new("/sys/class/infiniband").join(device).join("device/driver");
                let target = fs::read_link(&link).map_err(|error| {
                    format!("{device}: {}: {error}; {VARIABLE} can name it", link.display())
                })?;
                target.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
        };
        name.parse().map_err(|error| format!("{device}: {error}"))
    }

    /// Returns the function of the driver's library.
    ///
    /// # Errors
    /// A message: no library has it.
    pub(crate) fn set_port(self) -> Result<SetPort, String> {
        let (libraries, function) = self.function();
        let mut reason = String::new();
        for library in libraries {
            // SAFETY: both names are C strings; a driver's library has no other effect when it is loaded.
            let found = unsafe {
                let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
                if library.is_null() { library } else { libc::dlsym(library, function.as_ptr()) }
            };
            if !found.is_null() {
                // SAFETY: the libraries' headers declare the function with this type.
                return Ok(unsafe { core::mem::transmute::<*mut c_void, SetPort>(found) });
            }
            // SAFETY: the last call has failed, so the message is a C string, which is copied at once.
            reason = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
        }
        Err(format!("no {}: {reason}", function.to_string_lossy()))
    }

    /// Returns the libraries that may have the function, and its name.
    const fn function(self) -> (&'static [&'static CStr], &'static CStr) {
        match self {
            Self::Mlx5 => (&[c"libmlx5.so.1"], c"mlx5dv_modify_qp_udp_sport"),
            Self::Bnxt => (
                &[c"libbnxt_re.so", c"libbnxt_re-rdmav59.so", c"libbnxt_re-rdmav34.so"],
                c"bnxt_re_dv_modify_qp_udp_sport",
            ),
        }
    }
}
