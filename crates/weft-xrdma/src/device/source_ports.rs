//! The source ports of queue pairs, by the NIC's own library: verbs.h has no function for them.

use core::ffi::CStr;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_NOW};
use weft_verbs_abi::{
    BNXT_SOURCE_PORT, MLX5_SOURCE_PORT, SetSourcePort, SourcePortFunction, ibv_qp,
};

use crate::library::{Verbs, VerbsLibraryError};

/// The ports of a device's queue pairs, in turn.
#[derive(Debug)]
pub(super) struct SourcePorts {
    ports: RangeInclusive<u16>,
    /// The port of the next queue pair.
    next: u16,
    set: SetSourcePort,
    /// The library that has the function; `None` for libibverbs.
    _library: Option<Library>,
}

impl SourcePorts {
    /// Returns ports for a device.
    ///
    /// # Errors
    /// No library can set them.
    pub(super) fn new(
        verbs: &Verbs,
        device: &str,
        ports: RangeInclusive<u16>,
    ) -> Result<Self, VerbsLibraryError> {
        let next = *ports.start();
        // Weft's own libibverbs has the function.
        if let Some(set) = verbs.optional(MLX5_SOURCE_PORT.name) {
            return Ok(Self { ports, next, set, _library: None });
        }
        let unsupported = |reason| VerbsLibraryError::SourcePorts { device: device.into(), reason };
        let driver = driver_of(device).map_err(unsupported)?;
        let function = [MLX5_SOURCE_PORT, BNXT_SOURCE_PORT].into_iter();
        let function =
            function.clone().find(|function| function.driver == driver).ok_or_else(|| {
                let known: Vec<_> = function.map(|function| function.driver).collect();
                unsupported(format!("its driver is {driver}, not {}", known.join(" or ")))
            })?;
        let (library, set) = load(&function).map_err(unsupported)?;
        Ok(Self { ports, next, set, _library: Some(library) })
    }

    /// Gives a queue pair that is ready to send the next port; returns zero or an error number.
    pub(super) fn assign(&mut self, qp: *mut ibv_qp) -> i32 {
        let port = self.next;
        self.next = if port == *self.ports.end() { *self.ports.start() } else { port + 1 };
        // SAFETY: the queue pair exists, and the function is that of its device's driver.
        unsafe { (self.set)(qp, port) }
    }
}

/// Returns the kernel driver of a device.
fn driver_of(device: &str) -> Result<String, String> {
    let link = Path::new("/sys/class/infiniband").join(device).join("device/driver");
    let target =
        fs::read_link(&link).map_err(|error| format!("its driver {}: {error}", link.display()))?;
    Ok(target.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

/// Loads the first library that has the function.
fn load(function: &SourcePortFunction) -> Result<(Library, SetSourcePort), String> {
    let mut reason = String::new();
    for name in function.libraries {
        match load_from(name, function.name) {
            Ok(found) => return Ok(found),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

fn load_from(library: &CStr, name: &CStr) -> Result<(Library, SetSourcePort), libloading::Error> {
    // SAFETY: a driver's library has no other effect when it is loaded, and its header declares the function with this
    // type.
    unsafe {
        let library = Library::open(Some(&*library.to_string_lossy()), RTLD_NOW)?;
        let set = *library.get::<SetSourcePort>(name.to_bytes_with_nul())?;
        Ok((library, set))
    }
}
