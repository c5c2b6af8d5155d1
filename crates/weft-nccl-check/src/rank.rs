//! A rank: the plugin's calls, an exchange with the other rank, and connections between the two.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use crate::Args;
use crate::clock::{Stopwatch, now};
use crate::exchange::Exchange;
use crate::memory::Buffer;
use crate::net::{Comm, Handle, Library, Net};

/// Maximum time that a call which must not block may take.
const MAX_CALL: Duration = Duration::from_secs(2);

/// One of the two ranks.
#[derive(Debug)]
pub(crate) struct Rank<'a> {
    pub(crate) args: &'a Args,
    pub(crate) number: usize,
    pub(crate) version: u8,
    pub(crate) exchange: Exchange,
    /// The plugin, while it is loaded and initialised.
    pub(crate) net: Option<Net>,
    /// The memory of the check that runs.
    buffers: RefCell<Vec<Arc<Buffer>>>,
}

/// Comms in both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) send: Comm,
    pub(crate) receive: Comm,
}

impl<'a> Rank<'a> {
    pub(crate) fn new(args: &'a Args, number: usize, version: u8, exchange: Exchange) -> Self {
        Self { args, number, version, exchange, net: None, buffers: RefCell::default() }
    }

    /// Returns the plugin's calls.
    ///
    /// # Errors
    /// An earlier check could not load it.
    pub(crate) fn net(&self) -> Result<&Net, String> {
        self.net.as_ref().ok_or_else(|| "the plugin is not loaded".to_owned())
    }

    /// Returns new memory, which exists until the check has passed.
    pub(crate) fn buffer(&self, len: usize) -> Arc<Buffer> {
        let buffer = Arc::new(Buffer::new(len));
        self.buffers.borrow_mut().push(buffer.clone());
        buffer
    }

    /// Frees memory that the plugin does not use any more.
    pub(crate) fn free(&self, buffer: &Arc<Buffer>) {
        self.buffers.borrow_mut().retain(|other| !Arc::ptr_eq(other, buffer));
    }

    /// Frees the memory of the check. After a failure it is never freed: the plugin may still write to it.
    pub(crate) fn free_buffers(&self, passed: bool) {
        let buffers = self.buffers.take();
        if !passed {
            core::mem::forget(buffers);
        }
    }

    /// Loads the plugin and initialises it, as NCCL does for a communicator.
    ///
    /// # Errors
    /// The library cannot be loaded, or refuses.
    pub(crate) fn load(&mut self) -> Result<(), String> {
        let library = Library::open(&self.args.plugin).map_err(|error| format!("{error:#}"))?;
        let mut net = library
            .net(self.version, i32::try_from(self.number).unwrap_or(0))
            .map_err(|error| format!("{error:#}"))?;
        net.init()?;
        let devices = net.devices()?;
        if devices < 1 {
            return Err(format!("devices returned {devices}: NCCL needs at least 1"));
        }
        self.net = Some(net);
        Ok(())
    }

    /// Ends the communicator and unloads the plugin.
    ///
    /// # Errors
    /// `finalize` fails.
    pub(crate) fn unload(&mut self) -> Result<(), String> {
        match self.net.take() {
            Some(net) => Ok(net.finalize()?),
            None => Ok(()),
        }
    }

    /// Waits until the other rank has come to this point too.
    ///
    /// # Errors
    /// It has failed.
    pub(crate) fn meet(&self) -> Result<(), String> {
        self.exchange.send(b"here");
        self.exchange.receive().map(drop)
    }

    pub(crate) fn stopwatch(&self) -> Stopwatch {
        Stopwatch::start(Duration::from_secs(self.args.timeout))
    }

    /// Opens comms in both directions, as NCCL's set-up does: listen, exchange the handles, then call `connect` and `accept` in turns
    /// until both have returned a comm.
    ///
    /// # Errors
    /// A call fails or blocks, or the connection does not open.
    pub(crate) fn open(&self) -> Result<Pair, String> {
        let net = self.net()?;
        let (listener, handle) = net.listen(self.args.device)?;
        self.exchange.send(&handle);
        let handle = self.exchange.receive()?;
        let mut handle: Handle = handle.try_into().map_err(|_| "the other rank sent no handle")?;
        let (mut send, mut receive) = (None, None);
        let watch = self.stopwatch();
        while send.is_none() || receive.is_none() {
            if send.is_none() {
                send = at_once("connect", || Ok(net.connect(self.args.device, &mut handle)?))?;
            }
            if receive.is_none() {
                receive = at_once("accept", || Ok(net.accept(listener)?))?;
            }
            watch.wait(|| {
                format!("connect has returned {}, accept {}", comm(send), comm(receive))
            })?;
        }
        net.close_listen(listener)?;
        let (Some(send), Some(receive)) = (send, receive) else {
            return Err("no comms".to_owned());
        };
        Ok(Pair { send, receive })
    }

    /// Closes comms in both directions.
    ///
    /// # Errors
    /// A call fails.
    pub(crate) fn close(&self, pair: Pair) -> Result<(), String> {
        let net = self.net()?;
        net.close_send(pair.send)?;
        net.close_receive(pair.receive)?;
        Ok(())
    }
}

/// Makes a call that must not block.
///
/// # Errors
/// It fails, or takes longer than [`MAX_CALL`].
pub(crate) fn at_once<T>(
    name: &str,
    call: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let began = now();
    let value = call()?;
    let took = began.elapsed();
    if took > MAX_CALL {
        return Err(format!("{name} took {} ms: it must not wait for the peer", took.as_millis()));
    }
    Ok(value)
}

fn comm(comm: Option<Comm>) -> &'static str {
    if comm.is_some() { "a comm" } else { "none" }
}
