//! A rank of a group, for `weft.torch`: collectives on Python's memory, performed by a separate thread.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use weft_comm::{
    Buffer, Call, Collective, CommError, Communicator, DataType, Op, Options, Pending, Worker,
};

use crate::error::{Raise, exception};

/// Maximum delay before a signal is handled.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The state of a rank.
enum State {
    /// The rank listens for the others.
    Listening(Box<Communicator<Buffer>>),
    /// A thread performs the rank's collectives.
    Joined(Worker),
    /// The rank left the group, or could not join it.
    Left,
}

/// A rank of a group.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Group {
    state: Mutex<State>,
    /// The rank's address, for all ranks.
    #[pyo3(get)]
    address: String,
    /// Number of ranks.
    ranks: usize,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let state = core::mem::replace(&mut *self.state(), State::Left);
        // The thread returns memory to Python before it ends, and needs the interpreter for that.
        Python::attach(|py| py.detach(|| drop(state)));
    }
}

/// A collective in progress, which keeps its memory.
#[pyclass(frozen, module = "weft._weft")]
#[derive(Debug)]
pub(crate) struct Work {
    pending: Pending,
    /// The call as text, for errors.
    call: String,
}

/// Memory of Python, kept alive by this buffer.
struct Bytes(PyBuffer<u8>);

impl AsMut<[u8]> for Bytes {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        let (start, len) = (self.0.buf_ptr().cast::<u8>(), self.0.len_bytes());
        // SAFETY: the buffer has that many contiguous bytes, is writable, and lives as long as `self`.
        // Programs promise a backend of collectives not to use it until the work is done.
        unsafe { core::slice::from_raw_parts_mut(start, len) }
    }
}

/// Returns the value with this name.
///
/// # Errors
/// No value has the name.
fn find<T: Copy>(
    py: Python<'_>,
    name: &str,
    all: &[T],
    name_of: fn(T) -> &'static str,
) -> PyResult<T> {
    let found = all.iter().copied().find(|one| name_of(*one) == name);
    found.ok_or_else(|| exception(py, "OptionError", &format!("{name:?} is unknown")))
}

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Group {
    /// Opens a rank's device and listens. Options for groups of other sizes have their defaults: one set is for all groups
    /// of a job.
    #[new]
    fn new(
        py: Python<'_>,
        rank: usize,
        ranks: usize,
        options: BTreeMap<String, String>,
    ) -> PyResult<Self> {
        let mut chosen = Options::default();
        for (name, value) in &options {
            chosen.set(name, value).map_err(|error| error.raise(py))?;
        }
        let chosen = chosen.for_group_of(ranks);
        let listening = py.detach(|| Communicator::listen(rank, ranks, chosen));
        let (rank, address) = listening.map_err(|error| error.raise(py))?;
        let state = Mutex::new(State::Listening(Box::new(rank)));
        Ok(Self { state, address: address.to_string(), ranks })
    }

    /// Joins the ranks that listen at these addresses.
    fn connect(&self, py: Python<'_>, addresses: Vec<String>) -> PyResult<()> {
        let parsed: Result<Vec<SocketAddr>, _> = addresses.iter().map(|at| at.parse()).collect();
        let parsed = parsed.map_err(|_| {
            exception(py, "OptionError", &format!("{addresses:?} are not all addresses with ports"))
        })?;
        let joined = py.detach(|| {
            let mut state = self.state();
            match core::mem::replace(&mut *state, State::Left) {
                State::Listening(rank) => {
                    let worker = rank.connect(&parsed).and_then(Worker::start)?;
                    *state = State::Joined(worker);
                }
                other => *state = other,
            }
            Ok(())
        });
        joined.map_err(|error: CommError| error.raise(py))
    }

    /// Submits a collective on writable memory.
    fn submit(
        &self,
        collective: &str,
        memory: &Bound<'_, PyAny>,
        data_type: &str,
        op: &str,
        root: usize,
    ) -> PyResult<Work> {
        let py = memory.py();
        let buffer: PyBuffer<u8> = PyBuffer::get(memory)?;
        if !buffer.is_c_contiguous() || buffer.readonly() {
            return Err(PyBufferError::new_err("the memory is not writable, or not contiguous"));
        }
        let data_type = find(py, data_type, &DataType::ALL, DataType::name)?;
        let call = Call {
            collective: find(py, collective, Collective::ALL, Collective::name)?,
            data_type,
            op: find(py, op, &Op::ALL, Op::name)?,
            root,
            elements: buffer.len_bytes() / data_type.size(),
        };
        let checked = call.check(self.ranks, buffer.len_bytes());
        checked.map_err(|error| exception(py, "OptionError", &error.to_string()))?;
        let text = call.to_string();
        match &*self.state() {
            State::Joined(worker) => Ok(Work {
                pending: worker.submit(call, Buffer(Box::new(Bytes(buffer)))),
                call: text,
            }),
            _ => Err(exception(py, "Closed", "the group is not joined, or left")),
        }
    }

    /// Leaves the group after the other ranks have received this rank's data.
    fn leave(&self, py: Python<'_>) {
        py.detach(|| drop(core::mem::replace(&mut *self.state(), State::Left)));
    }
}

#[pymethods]
impl Work {
    /// Returns True if the work is done or has failed.
    fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    /// Waits until the work is done, `timeout` seconds at most.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let limit = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        let mut waited = Duration::ZERO;
        loop {
            let left = limit.map_or(SIGNAL_CHECK_INTERVAL, |limit| limit.saturating_sub(waited));
            match py.detach(|| self.pending.wait(SIGNAL_CHECK_INTERVAL.min(left))) {
                Some(Ok(())) => return Ok(()),
                Some(Err(why)) => {
                    return Err(exception(py, "Closed", &format!("{}: {why}", self.call)));
                }
                None => {}
            }
            py.check_signals()?;
            waited += SIGNAL_CHECK_INTERVAL.min(left);
            if limit.is_some_and(|limit| waited >= limit) {
                let (seconds, whom) = (waited.as_secs_f64(), self.pending.waits_for());
                let text =
                    format!("{} was not done in {seconds} s; it waits for {whom}", self.call);
                return Err(exception(py, "Timeout", &text));
            }
        }
    }
}
