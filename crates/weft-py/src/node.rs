//! A node. While it waits, other threads of the interpreter run, and signals are seen to.

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
use crate::event::{Event, channel, tell};
use crate::memory::Memory;
use crate::shared::{Shared, State};

/// Maximum delay of a signal.
const PATIENCE: Duration = Duration::from_millis(50);

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

/// Seconds of Python; those too many to count are for ever, or nearly.
fn nanoseconds(seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() {
        return Err(PyValueError::new_err("a timeout that is not a number"));
    }
    let time = time::Duration::try_from_secs_f64(seconds.max(0.0));
    let nanos = time.ok().and_then(|time| u64::try_from(time.as_nanos()).ok());
    Ok(nanos.map_or(Duration::MAX, Duration::from_nanos))
}

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

    /// Takes channels at an address; says which it became.
    fn listen(&self, py: Python<'_>, address: &str) -> PyResult<String> {
        let address = resolve(py, address)?;
        let became = self.with(py, |state| state.node.listen(address))?;
        became.map(|address| address.to_string()).map_err(|error| error.raise(py))
    }

    /// Begins a channel; "connected" or "connect-failed" follows with this number.
    fn connect(&self, py: Python<'_>, address: &str) -> PyResult<u64> {
        let address = resolve(py, address)?;
        let ticket = self.with(py, |state| state.node.connect(address))?;
        ticket.map(|ticket| ticket.number()).map_err(|error| error.raise(py))
    }

    /// Sends a message and gives its number.
    fn send(&self, channel: u64, body: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.submit(channel, body, |state, channel, body| {
            let now = state.node.now();
            state.node.context().send(now, channel, body)
        })
    }

    /// Sends a request and gives its number.
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

    /// A request's response is no longer wanted.
    fn forget(&self, py: Python<'_>, of: u64, request: u64) -> PyResult<()> {
        self.with(py, |state| state.node.context().forget(channel(of), request))
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

    /// Moves everything that can move, and says what happened.
    fn poll(&self, py: Python<'_>) -> PyResult<Vec<Event>> {
        let happened = self.with(py, |state| {
            state.node.poll();
            state.take_events()
        })?;
        tell(py, &self.shared, happened)
    }

    /// The same after a wait for the descriptor.
    fn process_event(&self, py: Python<'_>) -> PyResult<Vec<Event>> {
        let happened = self.with(py, |state| {
            state.node.process_event();
            state.take_events()
        })?;
        tell(py, &self.shared, happened)
    }

    /// Waits for an event, for this many seconds at most. Returns True if there is one.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let mut left = timeout.map(nanoseconds).transpose()?;
        loop {
            let patience = left.map_or(PATIENCE, |left| left.min(PATIENCE));
            let wait = |state: &mut State| {
                let start = state.node.now();
                let happened = state.node.wait(Some(patience));
                (happened, state.node.now().since(start))
            };
            let waited = py.detach(|| self.shared.try_with(wait));
            let (happened, took) = waited.map_err(|unusable| unusable.raise(py))?;
            if happened {
                return Ok(true);
            }
            py.check_signals()?;
            left = left.map(|left| left - took.min(left));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
        }
    }

    /// The descriptor to wait for.
    fn event_fd(&self, py: Python<'_>) -> PyResult<RawFd> {
        self.with(py, |state| state.node.event_fd())
    }

    /// Gets ready to sleep on the descriptor: for how many seconds at most, or None when something is to be done
    /// first.
    fn arm(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let sleep = self.with(py, |state| state.node.arm())?;
        Ok(sleep.map(|sleep| time::Duration::from_nanos(sleep.as_nanos()).as_secs_f64()))
    }

    /// Changes an on-line parameter.
    fn set(&self, py: Python<'_>, name: &str, value: &str) -> PyResult<()> {
        let set = self.with(py, |state| state.node.context().set(name, value))?;
        set.map_err(|error| error.raise(py))
    }

    /// Every parameter with its value.
    fn parameters(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, String>> {
        self.with(py, |state| {
            let parameters = state.node.context().config().parameters();
            parameters.into_iter().map(|parameter| (parameter.name, parameter.value)).collect()
        })
    }

    /// Registered memory.
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
        let status = self.with(py, |state| state.node.context().status(channel(of)))?;
        Ok(status.map(|status| {
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
                ("asked", status.asked.into()),
                ("receive_bytes", count(status.receive_bytes)),
                ("clock_offset_ns", status.clock_offset.unwrap_or(0)),
                ("on_tcp", (status.carrier == Carrier::Stream).into()),
            ])
        }))
    }

    /// Returns the state of the node.
    fn state(&self, py: Python<'_>) -> PyResult<BTreeMap<&str, u64>> {
        self.with(py, |state| {
            let context = state.node.context();
            let (memory, used) = context.memory();
            let stats = context.stats();
            BTreeMap::from([
                ("memory_bytes", memory),
                ("memory_used_bytes", used),
                ("channels", context.channels().count() as u64),
                ("qps_cached", context.cached_qps() as u64),
                ("qps_created", stats.qps_created),
                ("qps_reused", stats.qps_reused),
                ("slow_polls", stats.slow_polls),
                ("slow_calls", stats.slow_calls),
            ])
        })
    }

    /// Returns True if it was closed.
    #[getter]
    fn closed(&self) -> bool {
        !self.shared.is_open()
    }

    /// Ends everything at once.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }
}
