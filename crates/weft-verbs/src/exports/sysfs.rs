//! The kernel's view of devices in sysfs. It contains this device for programs with the library of `preload/`.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::errno::{Errno, pointer};
use crate::sysfs::ROOT;

/// Returns the folder whose `sys` and `dev` contain the device, or null. The preloaded library calls it.
#[unsafe(no_mangle)]
extern "C" fn weft_sysfs_root() -> *const c_char {
    pointer(|| ROOT.as_ref().map(|root| root.as_ptr().cast_mut()).ok_or(Errno(libc::ENODEV)))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// # Safety
/// `folder` and `file` are strings, and `buf` has room for `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller guarantees that they are strings.
    let (folder, file) = unsafe { (CStr::from_ptr(folder), CStr::from_ptr(file)) };
    let path =
        Path::new(OsStr::from_bytes(folder.to_bytes())).join(OsStr::from_bytes(file.to_bytes()));
    // SAFETY: the caller has room for `size` bytes.
    let buf = unsafe { core::slice::from_raw_parts_mut(buf.cast::<u8>(), size) };
    match std::fs::File::open(path).and_then(|mut file| file.read(buf)) {
        Ok(read) => {
            let line = read - usize::from(buf[..read].last() == Some(&b'\n'));
            if let Some(end) = buf.get_mut(line) {
                *end = 0;
            }
            c_int::try_from(line).unwrap_or(c_int::MAX)
        }
        Err(_) => -1,
    }
}
