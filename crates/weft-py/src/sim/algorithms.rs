//! Path policies and congestion controls that are classes of Python. They are called with the interpreter's lock, many
//! times slower than those of the tables. The first exception of one ends the run.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Arc;

use pyo3::exceptions::{PyAssertionError, PyTypeError};
use pyo3::prelude::*;
use weft_sim::{Cancel, Scenario};
use weft_transport::{External, TransportConfig, congestion, path};

use super::control::{CONTROL_METHODS, Control};
use super::failure::Failure;
use super::policy::{POLICY_METHODS, Policy};

/// The classes that a run's caller gave.
#[derive(Debug)]
pub(super) struct Algorithms {
    policy: Option<Arc<Py<PyAny>>>,
    congestion: Option<Arc<Py<PyAny>>>,
    failure: Failure,
}

impl Algorithms {
    /// Returns the algorithms, and sets the scenario's own to those that have the same scope: the policy's class says how
    /// many paths it uses at a time, and one window covers all paths.
    pub(super) fn new(
        py: Python<'_>,
        policy: Option<Py<PyAny>>,
        congestion: Option<Py<PyAny>>,
        scenario: &mut Scenario,
    ) -> PyResult<Self> {
        let overrides = &mut scenario.transport.overrides;
        if let Some(class) = &policy {
            check_methods(class.bind(py), &POLICY_METHODS, "weft.sim.PathPolicy")?;
            overrides.insert("policy".into(), spread_of(class.bind(py))?.name().into());
        }
        if let Some(class) = &congestion {
            check_methods(class.bind(py), &CONTROL_METHODS, "weft.sim.CongestionControl")?;
            overrides.insert("congestion".into(), congestion::Kind::FixedWindow.name().into());
        }
        let failure = Failure::default();
        Ok(Self { policy: policy.map(Arc::new), congestion: congestion.map(Arc::new), failure })
    }

    /// Returns the factories for the engines.
    pub(super) fn external(&self) -> External {
        let mut external = External::default();
        if let Some(class) = self.policy.clone() {
            let failure = self.failure.clone();
            external.policy = Some(Arc::new(move |config: &TransportConfig| {
                Box::new(Policy::new(&class, config, failure.clone()))
            }));
        }
        if let Some(class) = self.congestion.clone() {
            let failure = self.failure.clone();
            external.congestion = Some(Arc::new(move |config: &TransportConfig| {
                Box::new(Control::new(&class, config, failure.clone()))
            }));
        }
        external
    }

    /// Returns the wish to end a run that `cancel` expresses, or an exception.
    pub(super) fn cancel_on_error(&self, cancel: Cancel) -> Cancel {
        let failure = self.failure.clone();
        Cancel::when(move || failure.is_raised() || cancel.is_cancelled())
    }

    /// Raises the exception that ended the run, if there was one.
    pub(super) fn raise(&self, _py: Python<'_>) -> PyResult<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// Returns the policy of the table that uses as many paths at a time as the class says.
fn spread_of(class: &Bound<'_, PyAny>) -> PyResult<path::Kind> {
    let spread: Option<String> =
        class.getattr_opt("spread")?.map(|spread| spread.extract()).transpose()?;
    match spread.as_deref() {
        None | Some("all") => Ok(path::Kind::Oblivious),
        Some("one") => Ok(path::Kind::Plb),
        Some(other) => Err(PyTypeError::new_err(format!(
            "{}.spread is {other:?}, expected \"all\" or \"one\"",
            name_of(class)
        ))),
    }
}

/// Returns an error if a class lacks one of the methods.
fn check_methods(class: &Bound<'_, PyAny>, methods: &[&str], base: &str) -> PyResult<()> {
    if !class.is_callable() {
        return Err(PyTypeError::new_err(format!("expected a class such as {base}, not {class}")));
    }
    if class.is_instance_of::<pyo3::types::PyType>() {
        for method in methods {
            if !class.hasattr(*method)? {
                let name = name_of(class);
                return Err(PyTypeError::new_err(format!("{name} has no {method}; see {base}")));
            }
        }
    }
    Ok(())
}

/// Returns a class's name for errors.
pub(super) fn name_of(class: &Bound<'_, PyAny>) -> String {
    let name = class.getattr("__name__").and_then(|name| name.extract());
    name.unwrap_or_else(|_| class.to_string())
}

/// Raises an `AssertionError` unless a path policy keeps the rules of all policies.
#[pyfunction]
pub(crate) fn check_policy(py: Python<'_>, policy: Py<PyAny>) -> PyResult<()> {
    check(py, Some(policy), None, path::conformance::check)
}

/// Raises an `AssertionError` unless a congestion control keeps the rules of all controls.
#[pyfunction]
pub(crate) fn check_congestion(py: Python<'_>, congestion: Py<PyAny>) -> PyResult<()> {
    check(py, None, Some(congestion), congestion::conformance::check)
}

fn check(
    py: Python<'_>,
    policy: Option<Py<PyAny>>,
    control: Option<Py<PyAny>>,
    suite: fn(&TransportConfig),
) -> PyResult<()> {
    let text = "topology = { kind = \"leaf-spine\" }";
    let mut scenario = Scenario::parse(text, std::path::Path::new("")).expect("it is valid");
    let algorithms = Algorithms::new(py, policy, control, &mut scenario)?;
    let kind = |key| scenario.transport.overrides.get(key).and_then(toml::Value::as_str);
    let mut config =
        TransportConfig { external: algorithms.external(), ..TransportConfig::stellar() };
    if let Some(Ok(policy)) = kind("policy").map(str::parse) {
        config.policy = policy;
    }
    if let Some(Ok(control)) = kind("congestion").map(str::parse) {
        config.congestion = control;
    }
    // The exception has the text of the panic; printed too, it would look like a fault of ours.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(|| suite(&config))));
    set_hook(hook);
    // A rule may be broken because the algorithm raised an exception.
    algorithms.raise(py)?;
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        PyAssertionError::new_err(text.unwrap_or_else(|| "a rule is broken".into()))
    })
}
