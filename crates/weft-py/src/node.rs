//! A node for Python. While it waits, other threads of the interpreter run, and signals are handled.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use weft_msg::{Carrier, ChannelId, Payload, SendError};
use weft_units::Duration;
use weft_xrdma::{Lending, Options};

use crate::body::Body;
use crate::error::{Raise, exception};
use crate::event::{Event, channel, convert};
use crate::memory::Memory;
use crate::shared::{Shared, State};

/// Maximum delay before a signal is handled.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A context on a device, and the sockets around it.
#[pyclass(frozen, module = "weft._weft")]
#[derive(Debug)]
pub(crate) struct Node {
    shared: Arc<Shared>,
}

impl Node {
    fn with<R: Send>(&self, py: Python<'_>, act: impl FnOnce(&mut State) -> R) -> PyResult<R> {
        self.shared.with(py, act)
    }

    fn submit(
        &self,
        to: u64,
        body: &Bound<'_, PyAny>,
        send: impl FnOnce(&mut State, ChannelId, Payload<'_>) -> Result<u64, SendError>,
    ) -> PyResult<u64> {
        let (py, to) = (body.py(), channel(to));
        let body = Body::of(&self.shared, body)?;
        let payload = body.payload(py);
        let sent = self.with(py, |state| {
            let number = send(state, to, payload)?;
            if let Payload::Lent(memory) = payload {
                state.lending.lend(to, number, memory);
            }
            Ok(number)
        })?;
        sent.map_err(|error: SendError| error.raise(py))
    }
}

/// Converts Python's seconds to a duration. A negative number becomes 0, a number that is too large the maximum.
///
/// # Errors
/// The number is NaN.
fn to_duration(seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() {
        return Err(PyValueError::new_err("the timeout is not a number"));
    }
    let time = time::Duration::try_from_secs_f64(seconds.max(0.0));
    let nanos = time.ok().and_then(|time| u64::try_from(time.as_nanos()).ok());
    Ok(nanos.map_or(Duration::MAX, Duration::from_nanos))
}

/// Resolves HOST:PORT to a socket address, without the interpreter's lock.
fn resolve(py: Python<'_>, address: &str) -> PyResult<SocketAddr> {
    let found = py.detach(|| address.to_socket_addrs().map(|mut all| all.next()));
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(exception(py, "ConnectError", &format!("{address:?} has no address"))),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
            Err(PyValueError::new_err(format!("{address:?}, expected HOST:PORT: {error}")))
        }
        Err(error) => Err(exception(py, "ConnectError", &format!("{address:?}: {error}"))),
    }
}

#[pymethods]
impl Node {
    #[new]
    fn new(py: Python<'_>, options: BTreeMap<String, String>) -> PyResult<Self> {
        let mut chosen = Options::default();
        for (name, value) in &options {
            chosen.set(name, value).map_err(|error| error.raise(py))?;
        }
        let node = py.detach(|| weft_xrdma::Node::new(chosen)).map_err(|error| error.raise(py))?;
        Ok(Self { shared: Arc::new(Shared::new(node, Lending::default())) })
    }

    /// Accepts channels at an address. Returns the address with its port.
    fn listen(&self, py: Python<'_>, address: &str) -> PyResult<String> {
        let address = resolve(py, address)?;
        let local = self.with(py, |state| state.node.listen(address))?;
        local.map(|address| address.to_string()).map_err(|error| error.raise(py))
    }

    /// Starts to open a channel; "connected" or "connect-failed" follows with the number returned.
    fn connect(&self, py: Python<'_>, address: &str) -> PyResult<u64> {
        let address = resolve(py, address)?;
        let ticket = self.with(py, |state| state.node.connect(address))?;
        ticket.map(|ticket| ticket.number()).map_err(|error| error.raise(py))
    }

    /// Sends a message and returns its number.
    fn send(&self, channel: u64, body: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.submit(channel, body, |state, channel, body| {
            let now = state.node.now();
            state.node.context().send(now, channel, body)
        })
    }

    /// Sends a request and returns its number.
    fn request(&self, channel: u64, body: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.submit(channel, body, |state, channel, body| {
            let now = state.node.now();
            state.node.context().request(now, channel, body)
        })
    }

    /// Answers a request.
    fn respond(&self, channel: u64, request: u64, body: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.submit(channel, body, |state, channel, body| {
            let now = state.node.now();
            state.node.context().respond(now, channel, request, body)
        })
    }

    /// Cancels a request: its response is dropped.
    fn forget(&self, py: Python<'_>, of: u64, request: u64) -> PyResult<()> {
        self.with(py, |state| state.node.context().cancel(channel(of), request))
    }

    /// Closes a channel; "closed" follows.
    fn close_channel(&self, py: Python<'_>, which: u64) -> PyResult<()> {
        self.with(py, |state| {
            let now = state.node.now();
            state.node.context().close(now, channel(which));
        })
    }

    /// Ends a channel at once; "closed" follows.
    fn abort_channel(&self, py: Python<'_>, which: u64) -> PyResult<()> {
        self.with(py, |state| {
            let now = state.node.now();
            state.node.context().abort(now, channel(which));
        })
    }

    /// Moves a channel to a carrier, "rdma" or "tcp".
    fn switch(&self, py: Python<'_>, which: u64, to: &str) -> PyResult<()> {
        let to = Carrier::from_name(to).ok_or_else(|| {
            PyValueError::new_err(format!("{to:?} is no carrier, expected \"rdma\" or \"tcp\""))
        })?;
        let switched = self.with(py, |state| {
            let now = state.node.now();
            state.node.context().switch(now, channel(which), to)
        })?;
        switched.map_err(|error| error.raise(py))
    }

    /// Makes progress and returns the events.
    fn poll(&self, py: Python<'_>) -> PyResult<Vec<Event>> {
        let events = self.with(py, |state| {
            state.node.poll();
            state.take_events()
        })?;
        convert(py, &self.shared, events)
    }

    /// Makes progress after a wait for the descriptor, and returns the events.
    fn process_event(&self, py: Python<'_>) -> PyResult<Vec<Event>> {
        let events = self.with(py, |state| {
            state.node.process_event();
            state.take_events()
        })?;
        convert(py, &self.shared, events)
    }

    /// Waits for an event, `timeout` seconds at most. Returns True if there is one.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let mut left = timeout.map(to_duration).transpose()?;
        loop {
            let timeout =
                left.map_or(SIGNAL_CHECK_INTERVAL, |left| left.min(SIGNAL_CHECK_INTERVAL));
            let wait = |state: &mut State| {
                let start = state.node.now();
                let has_event = state.node.wait(Some(timeout));
                (has_event, state.node.now().since(start))
            };
            let waited = py.detach(|| self.shared.try_with(wait));
            let (has_event, took) = waited.map_err(|unusable| unusable.raise(py))?;
            if has_event {
                return Ok(true);
            }
            py.check_signals()?;
            left = left.map(|left| left - took.min(left));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
        }
    }

    /// Returns the descriptor for an event loop.
    fn event_fd(&self, py: Python<'_>) -> PyResult<RawFd> {
        self.with(py, |state| state.node.event_fd())
    }

    /// Prepares to sleep on the descriptor. Returns the maximum time in seconds, or None if work is pending.
    fn arm(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let sleep = self.with(py, |state| state.node.arm())?;
        Ok(sleep.map(|sleep| time::Duration::from_nanos(sleep.as_nanos()).as_secs_f64()))
    }

    /// Changes an on-line parameter.
    fn set(&self, py: Python<'_>, name: &str, value: &str) -> PyResult<()> {
        let set = self.with(py, |state| state.node.context().set(name, value))?;
        set.map_err(|error| error.raise(py))
    }

    /// Returns all parameters with their values.
    fn parameters(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, String>> {
        self.with(py, |state| {
            let parameters = state.node.context().parameters();
            parameters.into_iter().map(|parameter| (parameter.name, parameter.value)).collect()
        })
    }

    /// Allocates registered memory.
    fn memory(&self, py: Python<'_>, len: u32) -> PyResult<Memory> {
        if len == 0 {
            return Err(PyValueError::new_err("memory of 0 bytes"));
        }
        let block = self.with(py, |state| state.node.context().allocate(len))?;
        let block = block.map_err(|refused| refused.raise(py))?;
        Ok(Memory::new(Arc::clone(&self.shared), block, len))
    }

    /// Returns the state of a channel; None if it is gone.
    fn channel_state(&self, py: Python<'_>, of: u64) -> PyResult<Option<BTreeMap<&str, i64>>> {
        let status = self.with(py, |state| {
            let now = state.node.now();
            let context = state.node.context();
            Some((context.status(channel(of))?, context.clock(now, channel(of))))
        })?;
        Ok(status.map(|(status, clock)| {
            let stats = status.stats;
            let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            BTreeMap::from([
                ("sent", count(stats.sent)),
                ("sent_bytes", count(stats.sent_bytes)),
                ("received", count(stats.received)),
                ("received_bytes", count(stats.received_bytes)),
                ("large", count(stats.large)),
                ("acks", count(stats.acks)),
                ("nops", count(stats.nops)),
                ("probes", count(stats.probes)),
                ("in_flight", status.in_flight.into()),
                ("depth", status.depth.into()),
                ("backlog", status.backlog.into()),
                ("asked", status.pending_calls.into()),
                ("receive_bytes", count(status.receive_bytes)),
                ("clock_offset_ns", clock.map_or(0, |clock| clock.offset)),
                ("on_tcp", (status.carrier == Carrier::Stream).into()),
            ])
        }))
    }

    /// Returns the state of the node.
    fn state(&self, py: Python<'_>) -> PyResult<BTreeMap<&str, u64>> {
        self.with(py, |state| {
            let context = state.node.context();
            let memory = context.memory();
            let stats = context.stats();
            BTreeMap::from([
                ("memory_bytes", memory.registered),
                ("memory_used_bytes", memory.used),
                ("channels", context.channels().count() as u64),
                ("qps_cached", context.cached_qps() as u64),
                ("qps_created", stats.qps_created),
                ("qps_reused", stats.qps_reused),
                ("slow_polls", stats.slow_polls),
                ("slow_calls", stats.slow_calls),
            ])
        })
    }

    /// True if the node was closed.
    #[getter]
    fn closed(&self) -> bool {
        !self.shared.is_open()
    }

    /// Ends the node and its channels at once.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }
}
