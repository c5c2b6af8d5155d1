//! The functions of the `libibverbs.so.1` below.

use core::ffi::{CStr, c_int, c_void};
use std::sync::LazyLock;

use weft_verbs_abi::{ibv_context, ibv_gid, ibv_qp, ibv_qp_attr};

/// The functions that this library calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ibverbs {
    pub(crate) modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    pub(crate) query_gid: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int,
}

/// Returns the functions; `None`, with a message, if there is no such library.
pub(crate) fn below() -> Option<&'static Ibverbs> {
    static BELOW: LazyLock<Option<Ibverbs>> = LazyLock::new(load);
    BELOW.as_ref()
}

fn load() -> Option<Ibverbs> {
    // SAFETY: the name is a C string. The library is loaded already, because this one depends on it.
    let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
    let functions = (|| {
        let modify_qp = symbol(library, c"ibv_modify_qp")?;
        let query_gid = symbol(library, c"ibv_query_gid")?;
        // SAFETY: verbs.h declares the functions with these types.
        Some(unsafe {
            Ibverbs {
                modify_qp: core::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
                >(modify_qp),
                query_gid: core::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int,
                >(query_gid),
            }
        })
    })();
    if functions.is_none() {
        crate::report::once("no libibverbs.so.1 with ibv_modify_qp and ibv_query_gid is loaded");
    }
    functions
}

/// Returns a symbol of a library itself, or of those that it needs.
fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is open, and the names are C strings.
    let symbol = unsafe { libc::dlvsym(library, name.as_ptr(), c"IBVERBS_1.1".as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}
