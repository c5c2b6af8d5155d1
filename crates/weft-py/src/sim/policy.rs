//! A path policy that is a class of Python.

use std::fmt;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use weft_transport::TransportConfig;
use weft_transport::path::{Candidates, Feedback, PathId, PathPolicy, Paths};
use weft_units::{Instant, Rng};

use super::failure::Failure;
use super::settings::{Config, micros};

/// The methods that a class must have.
pub(super) const POLICY_METHODS: [&str; 2] = ["select", "on_feedback"];

/// A policy of one connection.
pub(super) struct Policy {
    /// The object; `None` if its class raised an exception.
    object: Option<Py<PyAny>>,
    compares_paths: bool,
    failure: Failure,
}

impl fmt::Debug for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Policy").field("object", &self.object).finish_non_exhaustive()
    }
}

impl Policy {
    pub(super) fn new(class: &Py<PyAny>, config: &TransportConfig, failure: Failure) -> Self {
        let made = Python::attach(|py| -> PyResult<(Py<PyAny>, bool)> {
            let object = class.bind(py).call1((Config::from(config),))?;
            let compares = object.getattr_opt("compares_paths")?;
            let compares = compares.map_or(Ok(false), |compares| compares.extract())?;
            Ok((object.unbind(), compares))
        });
        let (object, compares_paths) = match made {
            Ok((object, compares)) => (Some(object), compares),
            Err(error) => {
                failure.record(error);
                (None, false)
            }
        };
        Self { object, compares_paths, failure }
    }

    /// Calls `method` on the object, unless it failed before, and records its exception.
    fn call<T>(&self, method: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Option<T> {
        let object = self.object.as_ref().filter(|_| !self.failure.is_raised())?;
        Python::attach(|py| {
            method(object.bind(py)).map_err(|error| self.failure.record(error)).ok()
        })
    }
}

impl PathPolicy for Policy {
    fn select(&mut self, paths: &Candidates<'_>, now: Instant, rng: &mut Rng) -> Option<PathId> {
        let random = rng.next_u64();
        self.call(|object| {
            let view = PathView::new(paths, |path| paths.is_open(path), random);
            let chosen = object.call_method1("select", (view, micros(now)))?;
            let Some(path) = chosen.extract::<Option<u16>>()? else { return Ok(None) };
            if path >= paths.count() || !paths.is_open(PathId(path)) {
                let count = paths.count();
                return Err(PyValueError::new_err(format!(
                    "select returned path {path}, which is not open; paths.open() lists those of \
                     the {count} that are"
                )));
            }
            Ok(Some(PathId(path)))
        })
        .flatten()
    }

    fn on_feedback(&mut self, path: PathId, feedback: Feedback, paths: &Paths, now: Instant) {
        let (kind, marked, rtt) = match feedback {
            Feedback::Acked { marked, rtt } => ("acked", marked, rtt),
            Feedback::Lost => ("lost", false, None),
            Feedback::TimedOut => ("timed-out", false, None),
            Feedback::Trimmed => ("trimmed", false, None),
        };
        let rtt_us = rtt.map(weft_units::Duration::as_micros_f64);
        self.call(|object| {
            let view = PathView::new(paths, |path| paths.is_up(path), 0);
            let feedback = PathFeedback { kind, marked, rtt_us };
            object.call_method1("on_feedback", (path.0, feedback, view, micros(now))).map(drop)
        });
    }

    fn compares_paths(&self) -> bool {
        self.compares_paths
    }
}

/// The network's answer to a packet.
#[pyclass(frozen, get_all, module = "weft._weft")]
#[derive(Clone, Copy, Debug)]
struct PathFeedback {
    kind: &'static str,
    marked: bool,
    rtt_us: Option<f64>,
}

/// The paths of one connection at one moment.
#[pyclass(module = "weft._weft")]
#[derive(Debug)]
pub(crate) struct PathView {
    paths: Vec<PathState>,
    /// The state of the generator of [`Self::random`].
    random: u64,
}

#[derive(Clone, Copy, Debug)]
struct PathState {
    open: bool,
    up: bool,
    rtt_us: Option<f64>,
    in_flight: u32,
    window: u32,
}

impl PathView {
    fn new(paths: &Paths, is_open: impl Fn(PathId) -> bool, random: u64) -> Self {
        let state = |path| PathState {
            open: is_open(path),
            up: paths.is_up(path),
            rtt_us: paths.rtt(path).map(weft_units::Duration::as_micros_f64),
            in_flight: paths.in_flight(path),
            window: paths.window(path),
        };
        Self { paths: paths.ids().map(state).collect(), random }
    }

    fn at(&self, path: usize) -> PyResult<&PathState> {
        let count = self.paths.len();
        let missing = || PyIndexError::new_err(format!("path {path} of {count}"));
        self.paths.get(path).ok_or_else(missing)
    }
}

#[pymethods]
impl PathView {
    fn __len__(&self) -> usize {
        self.paths.len()
    }

    fn is_open(&self, path: usize) -> PyResult<bool> {
        Ok(self.at(path)?.open)
    }

    fn is_up(&self, path: usize) -> PyResult<bool> {
        Ok(self.at(path)?.up)
    }

    fn rtt_us(&self, path: usize) -> PyResult<Option<f64>> {
        Ok(self.at(path)?.rtt_us)
    }

    fn in_flight(&self, path: usize) -> PyResult<u32> {
        Ok(self.at(path)?.in_flight)
    }

    fn window(&self, path: usize) -> PyResult<u32> {
        Ok(self.at(path)?.window)
    }

    /// Returns the open paths, lowest first.
    fn open(&self) -> Vec<usize> {
        (0..self.paths.len()).filter(|&path| self.paths[path].open).collect()
    }

    /// Returns the first open path at or after `start`, wrapping around.
    fn open_from(&self, start: usize) -> Option<usize> {
        let count = self.paths.len();
        let all = (0..count).map(|step| (start % count + step) % count);
        all.into_iter().find(|&path| self.paths[path].open)
    }

    /// Returns a random number below `below`, the same for the same seed of the run (SplitMix64).
    fn random(&mut self, below: u32) -> PyResult<u32> {
        if below == 0 {
            return Err(PyValueError::new_err("random(0): there is no number below zero"));
        }
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let high = (mixed ^ (mixed >> 31)) >> 32;
        Ok(u32::try_from((high * u64::from(below)) >> 32).expect("it is below"))
    }
}
