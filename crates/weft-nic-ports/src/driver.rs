//! The drivers of NICs whose libraries set the source port of a queue pair.

use core::ffi::{CStr, c_void};
use std::fs;
use std::path::Path;

use weft_verbs_abi::{BNXT_SOURCE_PORT, MLX5_SOURCE_PORT, SetSourcePort, SourcePortFunction};

weft_units::registry! {
    /// A kernel driver.
    pub(crate) enum Driver: "driver" {
        /// NVIDIA ConnectX and BlueField. `mlx5dv_modify_qp_udp_sport(3)`: the queue pair must be ready to send.
        Mlx5 => "mlx5_core";
        /// Broadcom.
        Bnxt => "bnxt_en";
    }
}

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
    pub(crate) fn set_port(self) -> Result<SetSourcePort, String> {
        let SourcePortFunction { libraries, name, .. } = self.function();
        let mut reason = String::new();
        for library in libraries {
            // SAFETY: both names are C strings; a driver's library has no other effect when it is loaded.
            let found = unsafe {
                let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
                if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) }
            };
            if !found.is_null() {
                // SAFETY: the libraries' headers declare the function with this type.
                return Ok(unsafe { core::mem::transmute::<*mut c_void, SetSourcePort>(found) });
            }
            // SAFETY: the last call has failed, so the message is a C string, which is copied at once.
            reason = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
        }
        Err(format!("no {}: {reason}", name.to_string_lossy()))
    }

    /// Returns the name of the function, and the libraries that may have it.
    const fn function(self) -> SourcePortFunction {
        match self {
            Self::Mlx5 => MLX5_SOURCE_PORT,
            Self::Bnxt => BNXT_SOURCE_PORT,
        }
    }
}
