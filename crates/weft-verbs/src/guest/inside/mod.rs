//! The library's part, in the guest: it finds the device, attaches to the host's relay, and registers memory by its
//! physical pages.

pub(crate) mod bridge;
pub(crate) mod guardian;
mod layout;
mod pinned;
mod port;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::frames::{Frames, MAX_BODY};
use super::regions::Regions;
use crate::attach::{Answer, CallError, Caller, Description, Page, Probe, Request, Run, Signal};
use crate::engine::Region;
use crate::engine::command::{Command, Reply};
use crate::engine::fork::Held;
use bridge::Bridge;
use pinned::{PageMap, Pinned, Pins};
use port::Port;
pub(crate) use port::device;

/// Maximum number of runs in a message: each takes at most fifteen bytes.
const MAX_RUNS_AT_ONCE: usize = MAX_BODY / 16;

/// Returns the refusal of a process that gets no port.
fn refused(error: &port::PortError) -> CallError {
    let errno = match error {
        port::PortError::InUse(_) => libc::EBUSY,
        port::PortError::Open { cause, .. } => cause.raw_os_error().unwrap_or(libc::EIO),
        port::PortError::NoRelay(_) | port::PortError::NoSlot(_) => libc::ENODEV,
    };
    CallError::Refused { errno, reason: error.to_string() }
}

/// Asks the relay to describe the device.
///
/// # Errors
/// There is no free port, or the relay does not answer.
pub(crate) fn describe(name: &str) -> Result<Description, CallError> {
    let Port { port, slot, .. } = Port::open(name).map_err(|error| refused(&error))?;
    let bridge = bridge::start(Frames::new(port), session()?, slot);
    let Bridge { mut caller, signal, .. } = bridge.map_err(kernel("cannot use the port"))?;
    let called = caller.call(&Request::Describe { name: String::new() }, &[]);
    drop(caller);
    // From then on the port is free again.
    signal.wait_for_end();
    match called? {
        (Answer::Description(description), _) => Ok(description),
        _ => Err(CallError::Nonsense),
    }
}

/// Draws the number of a session.
fn session() -> Result<u32, CallError> {
    let drawn = weft_udp::random().map(u32::from_ne_bytes);
    drawn.map_err(|error| kernel("no random numbers")(error.into()))
}

fn kernel(reason: &'static str) -> impl Fn(io::Error) -> CallError {
    move |cause| CallError::kernel(reason, &cause)
}

/// The parts of an attachment to the relay.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) caller: Caller,
    pub(crate) signal: Signal,
    pub(crate) page: Page,
    pub(crate) memory: Registered,
}

/// Attaches this process to a device of the guest.
///
/// # Errors
/// There is no free port, this user may not see physical pages, they lie elsewhere than the relay assumes, or it refuses.
pub(crate) fn attach(name: &str) -> Result<Attachment, CallError> {
    if !layout::is_expected() {
        let reason = "this guest's memory does not lie where its relay looks for it (/proc/iomem): start QEMU with all \
                      options that `weft device guest` prints";
        return Err(CallError::Refused { errno: libc::EFAULT, reason: reason.into() });
    }
    let Port { port, bar, offset, slot } = Port::open(name).map_err(|error| refused(&error))?;
    let own = session()?;
    let memory = Registered::new(&port, own)?;
    let bridge = bridge::start(Frames::new(port), own, slot);
    let Bridge { mut caller, signal } = bridge.map_err(kernel("cannot use the port"))?;
    match attach_over(&mut caller, &memory, bar, offset) {
        Ok(page) => Ok(Attachment { caller, signal, page, memory }),
        Err(error) => {
            // Bridge and guardian would both read the host's answer to the guardian.
            drop(caller);
            signal.wait_for_end();
            Err(error)
        }
    }
}

/// Attaches over a bridge. Returns the rings.
fn attach_over(
    caller: &mut Caller,
    memory: &Registered,
    bar: OwnedFd,
    offset: u64,
) -> Result<Page, CallError> {
    let value = Box::new(u64::from(session()?));
    let address = (&raw const *value).expose_provenance() as u64;
    let pinned = memory.announce(caller, address, 8)?;
    let probe = Probe { address, value: *value };
    match caller.call(&Request::attach("", probe), &[])? {
        (Answer::Attached, _) => {}
        _ => return Err(CallError::Nonsense),
    }
    drop(pinned);
    Page::open_in(bar, offset).map_err(|errno| kernel("cannot map the device's BAR")(errno.into()))
}

/// The memory that this process has registered.
#[derive(Debug)]
pub(crate) struct Registered {
    map: PageMap,
    pins: Arc<Pins>,
    /// The guardian acts when it is closed.
    _lifeline: Held,
    /// The pinned pages of each region.
    regions: Mutex<Regions<Pinned>>,
}

impl Registered {
    /// Starts to register memory of this process, whose session has the number `own`.
    fn new(port: &File, own: u32) -> Result<Self, CallError> {
        let map = PageMap::open().map_err(kernel("cannot read /proc/self/pagemap"))?;
        let pins = Pins::new();
        let pins = pins.map_err(kernel("the guest's kernel has no io_uring of Linux 5.19"))?;
        let lifeline = guardian::start(port, pins.as_fd(), own.wrapping_add(1));
        let lifeline = lifeline.map_err(kernel("cannot start a process"))?;
        let regions = Mutex::default();
        Ok(Self { map, pins: Arc::new(pins), _lifeline: lifeline, regions })
    }

    /// Sends the pages that a command needs before it. Returns those pages, pinned.
    ///
    /// # Errors
    /// The memory cannot be pinned, or the relay refuses its pages.
    pub(crate) fn prepare(
        &self,
        caller: &mut Caller,
        command: &Command,
    ) -> Result<Option<Pinned>, CallError> {
        match *command {
            Command::Register(_, Region { address, length, .. }) if length > 0 => {
                self.announce(caller, address, length).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Pins memory, and sends its pages to the relay.
    fn announce(
        &self,
        caller: &mut Caller,
        address: u64,
        length: u64,
    ) -> Result<Pinned, CallError> {
        let pinned = self.pins.pin(address, length);
        let pinned =
            pinned.map_err(kernel("the guest's kernel does not pin this memory (io_uring)"))?;
        let runs = self.map.runs(address, length);
        let runs: Vec<Run> =
            runs.map_err(kernel("the guest's kernel does not show physical pages to this user"))?;
        for part in runs.chunks(MAX_RUNS_AT_ONCE) {
            caller.call(&Request::Pages(part.to_vec()), &[])?;
        }
        Ok(pinned)
    }

    /// Applies a command that the relay has executed.
    pub(crate) fn follow(&self, command: &Command, reply: &Reply, pinned: Option<Pinned>) {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.follow(command, reply, pinned);
    }
}
