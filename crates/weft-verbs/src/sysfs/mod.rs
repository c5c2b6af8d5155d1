//! The device in the kernel's folders. A program under `weft run` reads them as those of a device with a driver: the
//! library of `preload/` sends the paths there to a folder of this user, which this module fills.

mod entries;
mod folder;
mod host;

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::LazyLock;

use crate::device::DEVICE;

/// The folder that holds `sys` and `dev`; `None` if there is no device, or no place for the folder.
pub(crate) static ROOT: LazyLock<Option<CString>> = LazyLock::new(|| {
    if !DEVICE.is_there() {
        return None;
    }
    match folder::write(&entries::of(&DEVICE, &host::Host::read(&DEVICE.addresses))) {
        Ok(path) => CString::new(path.into_os_string().into_vec()).ok(),
        Err(error) => {
            eprintln!("weft: programs find no device in /sys/class/infiniband: {error}");
            None
        }
    }
});
