//! A plugin's calls, whichever version of the interface they go through.

use core::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use anyhow::{Context, Result};
use libloading::os::unix;
use weft_nccl_abi::*;

use crate::logger::logger;

/// A call's error: NCCL's number, as the plugin returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) call: &'static str,
    pub(crate) code: ncclResult_t,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = match self.code {
            result::UNHANDLED_CUDA_ERROR => "ncclUnhandledCudaError",
            result::SYSTEM_ERROR => "ncclSystemError",
            result::INTERNAL_ERROR => "ncclInternalError",
            result::INVALID_ARGUMENT => "ncclInvalidArgument",
            result::INVALID_USAGE => "ncclInvalidUsage",
            result::REMOTE_ERROR => "ncclRemoteError",
            result::IN_PROGRESS => "ncclInProgress",
            _ => "an unknown result",
        };
        write!(f, "{} returned {name} ({})", self.call, self.code)?;
        match crate::logger::take_warning() {
            line if line.is_empty() => Ok(()),
            line => write!(f, "; its log: {line}"),
        }
    }
}

impl From<Refused> for String {
    fn from(refused: Refused) -> Self {
        refused.to_string()
    }
}

/// A loaded plugin.
#[derive(Debug)]
pub(crate) struct Library {
    library: unix::Library,
    path: PathBuf,
}

impl Library {
    /// Loads a plugin as NCCL does: all symbols at once, visible to nobody else.
    ///
    /// # Errors
    /// The library cannot be loaded.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // SAFETY: the user asks to run this library's code.
        let library = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) };
        let library = library.with_context(|| format!("cannot load {}", path.display()))?;
        Ok(Self { library, path: path.to_owned() })
    }

    /// Returns `true` if the plugin exports this version.
    pub(crate) fn exports(&self, version: u8) -> bool {
        self.symbol::<u8>(version).is_some()
    }

    fn symbol<T>(&self, version: u8) -> Option<*const T> {
        self.address(symbol(version)).map(<*const c_void>::cast)
    }

    /// Returns `true` if the plugin exports this symbol.
    pub(crate) fn has(&self, name: &CStr) -> bool {
        self.address(name).is_some()
    }

    /// Returns the address of a symbol, if the plugin exports it.
    pub(crate) fn address(&self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: an address of any type is asked for, and not used as that type here.
        unsafe { self.library.get::<*const c_void>(name.to_bytes_with_nul()) }
            .ok()
            .map(|symbol| symbol.into_raw().cast_const().cast())
    }

    /// Returns the calls of a version for one of the two ranks.
    ///
    /// # Errors
    /// The plugin does not export it, or lacks a call that NCCL makes.
    pub(crate) fn net(self, version: u8, rank: c_int) -> Result<Net> {
        let missing = || format!("{} has no ncclNetPlugin_v{version}", self.path.display());
        macro_rules! table {
            ($kind:ident) => {
                // SAFETY: the structure of this symbol lives as long as the library, which `Net` keeps.
                Table::$kind(unsafe { &*self.symbol(version).with_context(missing)? })
            };
        }
        let table = match version {
            6 => table!(V6),
            7 => table!(V7),
            8 => table!(V8),
            9 => table!(V9),
            10 => table!(V10),
            11 => table!(V11),
            _ => table!(V12),
        };
        Ok(Net { table, version, rank, context: ptr::null_mut(), _library: self })
    }
}

/// The structure of a version.
#[derive(Clone, Copy, Debug)]
enum Table {
    V6(&'static ncclNet_v6_t),
    V7(&'static ncclNet_v7_t),
    V8(&'static ncclNet_v8_t),
    V9(&'static ncclNet_v9_t),
    V10(&'static ncclNet_v10_t),
    V11(&'static ncclNet_v11_t),
    V12(&'static ncclNet_v12_t),
}

/// Evaluates an expression with the structure of whichever version.
macro_rules! any {
    ($table:expr, $net:ident => $value:expr) => {
        match $table {
            Table::V6($net) => $value,
            Table::V7($net) => $value,
            Table::V8($net) => $value,
            Table::V9($net) => $value,
            Table::V10($net) => $value,
            Table::V11($net) => $value,
            Table::V12($net) => $value,
        }
    };
}

/// Makes a call and checks its result.
macro_rules! call {
    ($function:expr, $name:literal, $($argument:expr),*) => {
        match $function {
            // SAFETY: NCCL's interface: every pointer is valid for the call, and objects are open.
            Some(function) => checked($name, unsafe { function($($argument),*) }),
            None => Err(Refused { call: concat!($name, ", which is a null pointer,"), code: -1 }),
        }
    };
}

fn checked(call: &'static str, code: ncclResult_t) -> Result<(), Refused> {
    if code == result::SUCCESS { Ok(()) } else { Err(Refused { call, code }) }
}

/// A handle, which ranks exchange as bytes.
pub(crate) type Handle = [u8; NCCL_NET_HANDLE_MAXSIZE];

/// The properties of a device that every version has, and those of later versions where there are any.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    pub(crate) name: Option<String>,
    pub(crate) pointers: c_int,
    pub(crate) speed: c_int,
    pub(crate) max_comms: c_int,
    pub(crate) max_receives: c_int,
    /// From version 9 on: the first of the device's parts and their number, and the maximum size of a message.
    pub(crate) parts: Option<(c_int, c_int)>,
    pub(crate) max_bytes: Option<usize>,
}

/// An open comm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comm(pub(crate) *mut c_void);
// SAFETY: NCCL uses comms from several threads too.
unsafe impl Send for Comm {}
// SAFETY: likewise.
unsafe impl Sync for Comm {}

/// A request in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request(*mut c_void);
// SAFETY: NCCL uses requests from several threads too.
unsafe impl Send for Request {}

/// A registration of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registration(*mut c_void);
// SAFETY: NCCL uses registrations from several threads too.
unsafe impl Send for Registration {}
// SAFETY: likewise.
unsafe impl Sync for Registration {}

/// The calls of one version.
#[derive(Debug)]
pub(crate) struct Net {
    table: Table,
    pub(crate) version: u8,
    /// The number of this rank, the tag of its messages.
    rank: c_int,
    context: *mut c_void,
    _library: Library,
}

// SAFETY: NCCL makes the calls from several threads too, and the context is only passed back.
unsafe impl Send for Net {}
// SAFETY: likewise.
unsafe impl Sync for Net {}

impl Net {
    /// Returns the network's name, and the calls that are null though NCCL makes them.
    pub(crate) fn describe(&self) -> (Option<String>, Vec<&'static str>) {
        let mut missing = Vec::new();
        macro_rules! need {
            ($net:ident: $($field:ident)*) => {
                $(if $net.$field.is_none() { missing.push(stringify!($field)); })*
            };
        }
        let name = any!(self.table, net => {
            need!(net: init devices getProperties listen connect accept regMr deregMr isend irecv iflush test closeSend closeRecv closeListen);
            net.name
        });
        match self.table {
            Table::V11(net) => need!(net: finalize),
            Table::V12(net) => need!(net: finalize),
            _ => {}
        }
        (string(name), missing)
    }

    pub(crate) fn init(&mut self) -> Result<(), Refused> {
        let mut config = ncclNetCommConfig_v10_t { trafficClass: NCCL_NET_TRAFFIC_CLASS_UNDEF };
        let context = &raw mut self.context;
        match self.table {
            Table::V6(net) => call!(net.init, "init", logger()),
            Table::V7(net) => call!(net.init, "init", logger()),
            Table::V8(net) => call!(net.init, "init", logger()),
            Table::V9(net) => call!(net.init, "init", logger()),
            Table::V10(net) => call!(net.init, "init", logger(), Some(profile)),
            Table::V11(net) => {
                call!(net.init, "init", context, 7, &raw mut config, logger(), Some(profile))
            }
            Table::V12(net) => {
                call!(net.init, "init", context, 7, &raw mut config, logger(), Some(profile))
            }
        }
    }

    pub(crate) fn finalize(&self) -> Result<(), Refused> {
        match self.table {
            Table::V11(net) => call!(net.finalize, "finalize", self.context),
            Table::V12(net) => call!(net.finalize, "finalize", self.context),
            _ => Ok(()),
        }
    }

    pub(crate) fn devices(&self) -> Result<c_int, Refused> {
        let mut count = 0;
        any!(self.table, net => call!(net.devices, "devices", &raw mut count))?;
        Ok(count)
    }

    pub(crate) fn properties(&self, device: c_int) -> Result<Properties, Refused> {
        macro_rules! common {
            ($net:ident, $($parts:tt)*) => {{
                // SAFETY: all-zero bytes are valid for numbers and pointers.
                let mut of = unsafe { core::mem::zeroed() };
                call!($net.getProperties, "getProperties", device, &raw mut of)?;
                let (parts, max_bytes) = ($($parts)*)(&of);
                Properties {
                    name: string(of.name),
                    pointers: of.ptrSupport,
                    speed: of.speed,
                    max_comms: of.maxComms,
                    max_receives: of.maxRecvs,
                    parts,
                    max_bytes,
                }
            }};
        }
        Ok(match self.table {
            Table::V6(net) => common!(net, |_: &ncclNetProperties_v6_t| (None, None)),
            Table::V7(net) => common!(net, |_: &ncclNetProperties_v7_t| (None, None)),
            Table::V8(net) => common!(net, |_: &ncclNetProperties_v8_t| (None, None)),
            Table::V9(net) => common!(net, |of: &ncclNetProperties_v9_t| (
                Some((of.vProps.devs[0], of.vProps.ndevs)),
                Some(of.maxP2pBytes)
            )),
            Table::V10(net) => common!(net, |of: &ncclNetProperties_v9_t| (
                Some((of.vProps.devs[0], of.vProps.ndevs)),
                Some(of.maxP2pBytes)
            )),
            Table::V11(net) => common!(net, |of: &ncclNetProperties_v11_t| (
                Some((of.vProps.devs[0], of.vProps.ndevs)),
                Some(of.maxP2pBytes)
            )),
            Table::V12(net) => common!(net, |of: &ncclNetProperties_v12_t| (
                Some((of.vProps.devs[0], of.vProps.ndevs)),
                Some(of.maxP2pBytes)
            )),
        })
    }

    pub(crate) fn listen(&self, device: c_int) -> Result<(Comm, Handle), Refused> {
        let (mut handle, mut comm) = ([0; NCCL_NET_HANDLE_MAXSIZE], ptr::null_mut());
        let (to, out) = ((&raw mut handle).cast(), &raw mut comm);
        match self.table {
            Table::V11(net) => call!(net.listen, "listen", self.context, device, to, out),
            Table::V12(net) => call!(net.listen, "listen", self.context, device, to, out),
            Table::V6(net) => call!(net.listen, "listen", device, to, out),
            Table::V7(net) => call!(net.listen, "listen", device, to, out),
            Table::V8(net) => call!(net.listen, "listen", device, to, out),
            Table::V9(net) => call!(net.listen, "listen", device, to, out),
            Table::V10(net) => call!(net.listen, "listen", device, to, out),
        }?;
        Ok((Comm(comm), handle))
    }

    /// Makes one call of `connect`; `None` if the plugin asks for another with the same handle.
    pub(crate) fn connect(
        &self,
        device: c_int,
        handle: &mut Handle,
    ) -> Result<Option<Comm>, Refused> {
        let (mut comm, mut offload) = (ptr::null_mut(), ptr::null_mut());
        let mut config = ncclNetCommConfig_v10_t { trafficClass: NCCL_NET_TRAFFIC_CLASS_UNDEF };
        let (from, out, offload) = ((&raw mut *handle).cast(), &raw mut comm, &raw mut offload);
        match self.table {
            Table::V6(net) => call!(net.connect, "connect", device, from, out),
            Table::V7(net) => call!(net.connect, "connect", device, from, out, offload),
            Table::V8(net) => call!(net.connect, "connect", device, from, out, offload),
            Table::V9(net) => call!(net.connect, "connect", device, from, out, offload),
            Table::V10(net) => {
                call!(net.connect, "connect", device, &raw mut config, from, out, offload)
            }
            Table::V11(net) => {
                call!(net.connect, "connect", self.context, device, from, out, offload)
            }
            Table::V12(net) => {
                call!(net.connect, "connect", self.context, device, from, out, offload)
            }
        }?;
        Ok((!comm.is_null()).then_some(Comm(comm)))
    }

    /// Makes one call of `accept`; `None` if no connection is open yet.
    pub(crate) fn accept(&self, listener: Comm) -> Result<Option<Comm>, Refused> {
        let (mut comm, mut offload) = (ptr::null_mut(), ptr::null_mut());
        let (out, offload) = (&raw mut comm, &raw mut offload);
        match self.table {
            Table::V6(net) => call!(net.accept, "accept", listener.0, out),
            Table::V7(net) => call!(net.accept, "accept", listener.0, out, offload),
            Table::V8(net) => call!(net.accept, "accept", listener.0, out, offload),
            Table::V9(net) => call!(net.accept, "accept", listener.0, out, offload),
            Table::V10(net) => call!(net.accept, "accept", listener.0, out, offload),
            Table::V11(net) => call!(net.accept, "accept", listener.0, out, offload),
            Table::V12(net) => call!(net.accept, "accept", listener.0, out, offload),
        }?;
        Ok((!comm.is_null()).then_some(Comm(comm)))
    }

    /// Registers memory of the host.
    pub(crate) fn register(
        &self,
        comm: Comm,
        data: *mut u8,
        size: usize,
    ) -> Result<Registration, Refused> {
        let (mut memory, data) = (ptr::null_mut(), data.cast());
        let (out, int) = (&raw mut memory, c_int::try_from(size).unwrap_or(-1));
        match self.table {
            Table::V6(net) => call!(net.regMr, "regMr", comm.0, data, int, pointer::HOST, out),
            Table::V7(net) => call!(net.regMr, "regMr", comm.0, data, int, pointer::HOST, out),
            Table::V8(net) => call!(net.regMr, "regMr", comm.0, data, size, pointer::HOST, out),
            Table::V9(net) => call!(net.regMr, "regMr", comm.0, data, size, pointer::HOST, out),
            Table::V10(net) => call!(net.regMr, "regMr", comm.0, data, size, pointer::HOST, out),
            Table::V11(net) => call!(net.regMr, "regMr", comm.0, data, size, pointer::HOST, out),
            Table::V12(net) => call!(net.regMr, "regMr", comm.0, data, size, pointer::HOST, out),
        }?;
        Ok(Registration(memory))
    }

    pub(crate) fn deregister(&self, comm: Comm, memory: Registration) -> Result<(), Refused> {
        any!(self.table, net => call!(net.deregMr, "deregMr", comm.0, memory.0))
    }

    /// Makes one call of `isend`; `None` if the plugin asks for another.
    pub(crate) fn send(
        &self,
        comm: Comm,
        data: *mut u8,
        size: usize,
        memory: Registration,
    ) -> Result<Option<Request>, Refused> {
        let (mut request, data, tag) = (ptr::null_mut(), data.cast(), self.rank);
        let (out, int, none) =
            (&raw mut request, c_int::try_from(size).unwrap_or(-1), ptr::null_mut());
        match self.table {
            Table::V6(net) => call!(net.isend, "isend", comm.0, data, int, tag, memory.0, out),
            Table::V7(net) => call!(net.isend, "isend", comm.0, data, int, tag, memory.0, out),
            Table::V8(net) => call!(net.isend, "isend", comm.0, data, int, tag, memory.0, out),
            Table::V9(net) => call!(net.isend, "isend", comm.0, data, size, tag, memory.0, out),
            Table::V10(net) => {
                call!(net.isend, "isend", comm.0, data, size, tag, memory.0, none, out)
            }
            Table::V11(net) => {
                call!(net.isend, "isend", comm.0, data, size, tag, memory.0, none, out)
            }
            Table::V12(net) => {
                call!(net.isend, "isend", comm.0, data, size, tag, memory.0, none, out)
            }
        }?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// Makes one call of `irecv`; `None` if the plugin asks for another. `watched`: as NCCL does for LL and LL128, whose receivers
    /// read the buffer before the request is complete. Only version 9 and later are told.
    pub(crate) fn receive(
        &self,
        comm: Comm,
        data: *mut u8,
        size: usize,
        memory: Registration,
        watched: bool,
    ) -> Result<Option<Request>, Refused> {
        let mut request = match watched && self.version >= 9 {
            true => ptr::without_provenance_mut(NCCL_NET_OPTIONAL_RECV_COMPLETION),
            false => ptr::null_mut(),
        };
        let (mut data, mut memory, mut tag): (*mut c_void, _, c_int) =
            (data.cast(), memory.0, 1 - self.rank);
        let (mut size, mut int, mut none) =
            (size, c_int::try_from(size).unwrap_or(-1), ptr::null_mut());
        let (data, memory, tag) = (&raw mut data, &raw mut memory, &raw mut tag);
        let (size, int, none, out) = (&raw mut size, &raw mut int, &raw mut none, &raw mut request);
        match self.table {
            Table::V6(net) => call!(net.irecv, "irecv", comm.0, 1, data, int, tag, memory, out),
            Table::V7(net) => call!(net.irecv, "irecv", comm.0, 1, data, int, tag, memory, out),
            Table::V8(net) => call!(net.irecv, "irecv", comm.0, 1, data, int, tag, memory, out),
            Table::V9(net) => call!(net.irecv, "irecv", comm.0, 1, data, size, tag, memory, out),
            Table::V10(net) => {
                call!(net.irecv, "irecv", comm.0, 1, data, size, tag, memory, none, out)
            }
            Table::V11(net) => {
                call!(net.irecv, "irecv", comm.0, 1, data, size, tag, memory, none, out)
            }
            Table::V12(net) => {
                call!(net.irecv, "irecv", comm.0, 1, data, size, tag, memory, none, out)
            }
        }?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// Returns the size of a message, bytes, once its request is complete.
    pub(crate) fn test(&self, request: Request) -> Result<Option<usize>, Refused> {
        let (mut done, mut size) = (0, -1);
        any!(self.table, net => call!(net.test, "test", request.0, &raw mut done, &raw mut size))?;
        Ok((done != 0).then_some(usize::try_from(size).unwrap_or(usize::MAX)))
    }

    pub(crate) fn close_send(&self, comm: Comm) -> Result<(), Refused> {
        any!(self.table, net => call!(net.closeSend, "closeSend", comm.0))
    }

    pub(crate) fn close_receive(&self, comm: Comm) -> Result<(), Refused> {
        any!(self.table, net => call!(net.closeRecv, "closeRecv", comm.0))
    }

    pub(crate) fn close_listen(&self, comm: Comm) -> Result<(), Refused> {
        any!(self.table, net => call!(net.closeListen, "closeListen", comm.0))
    }
}

/// The profiler's callback: this program has none.
unsafe extern "C" fn profile(
    _: *mut *mut c_void,
    _: c_int,
    _: *mut c_void,
    _: i64,
    _: *mut c_void,
) -> ncclResult_t {
    result::SUCCESS
}

fn string(name: *const core::ffi::c_char) -> Option<String> {
    // SAFETY: the plugin's names are null or strings that live as long as it is loaded.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}
