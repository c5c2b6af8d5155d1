//! A congestion control that is a class of Python.

use std::fmt;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use weft_transport::TransportConfig;
use weft_transport::congestion::{AckSample, Congestion};
use weft_units::{BitRate, Duration, Instant};

use super::failure::Failure;
use super::settings::{Config, micros};

/// The methods that a class must have.
pub(super) const CONTROL_METHODS: [&str; 3] = ["on_ack", "on_loss", "on_timeout"];

/// An ACK of new packets.
#[pyclass(frozen, get_all, module = "weft._weft")]
#[derive(Clone, Copy, Debug)]
struct Ack {
    now_us: f64,
    acked_bytes: u32,
    acked_packets: u32,
    marked_packets: u32,
    rtt_us: Option<f64>,
    fabric_delay_us: Option<f64>,
    in_flight: u32,
    hops: u8,
}

impl From<&AckSample> for Ack {
    fn from(ack: &AckSample) -> Self {
        Self {
            now_us: micros(ack.now),
            acked_bytes: ack.acked_bytes,
            acked_packets: ack.acked_packets,
            marked_packets: ack.marked_packets,
            rtt_us: ack.rtt.map(Duration::as_micros_f64),
            fabric_delay_us: ack.fabric_delay.map(Duration::as_micros_f64),
            in_flight: ack.in_flight,
            hops: ack.hops,
        }
    }
}

/// A control of one connection.
pub(super) struct Control {
    /// The object; `None` if its class raised an exception.
    object: Option<Py<PyAny>>,
    mtu: u32,
    /// The object's window and rate after its last call.
    window: u32,
    rate: Option<BitRate>,
    failure: Failure,
}

impl fmt::Debug for Control {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Control").field("window", &self.window).finish_non_exhaustive()
    }
}

impl Control {
    pub(super) fn new(class: &Py<PyAny>, config: &TransportConfig, failure: Failure) -> Self {
        let mtu = u32::from(config.mtu);
        let made = Python::attach(|py| class.call1(py, (Config::from(config),)));
        let object = made.map_err(|error| failure.record(error)).ok();
        let mut control = Self { object, mtu, window: mtu, rate: None, failure };
        control.call(|_| Ok(()));
        control
    }

    /// Calls `method` on the object, unless it failed before, and reads its window and rate.
    fn call(&mut self, method: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>) {
        let Some(object) = self.object.as_ref().filter(|_| !self.failure.is_raised()) else {
            return;
        };
        let read = Python::attach(|py| {
            let object = object.bind(py);
            method(object)?;
            let rate = object.getattr_opt("rate_gbps")?;
            let rate = rate.map_or(Ok(None), |rate| rate.extract::<Option<f64>>())?;
            Ok((window_of(object, self.mtu)?, rate.map(rate_of).transpose()?))
        });
        match read {
            Ok((window, rate)) => (self.window, self.rate) = (window, rate),
            Err(error) => self.failure.record(error),
        }
    }
}

/// Returns the window of an object, bytes.
fn window_of(object: &Bound<'_, PyAny>, mtu: u32) -> PyResult<u32> {
    let window: f64 = object.getattr("window")?.extract()?;
    if window >= f64::from(mtu) {
        #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
        #[expect(clippy::cast_sign_loss, reason = "it is positive")]
        return Ok(window as u32);
    }
    Err(PyValueError::new_err(format!(
        "window is {window} bytes, expected at least a packet's {mtu}"
    )))
}

/// Returns the rate of `gbps` Gb/s.
fn rate_of(gbps: f64) -> PyResult<BitRate> {
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
    #[expect(clippy::cast_sign_loss, reason = "a negative rate is zero, which is refused")]
    let rate = BitRate::bps((gbps * 1e9) as u64);
    rate.ok_or_else(|| PyValueError::new_err(format!("rate_gbps is {gbps}, expected above zero")))
}

impl Congestion for Control {
    fn on_ack(&mut self, ack: &AckSample) {
        self.call(|object| object.call_method1("on_ack", (Ack::from(ack),)).map(drop));
    }

    fn on_loss(&mut self, now: Instant) {
        self.call(|object| object.call_method1("on_loss", (micros(now),)).map(drop));
    }

    fn on_timeout(&mut self, now: Instant) {
        self.call(|object| object.call_method1("on_timeout", (micros(now),)).map(drop));
    }

    fn window(&self) -> u32 {
        self.window
    }

    fn rate(&self) -> Option<BitRate> {
        self.rate
    }
}
