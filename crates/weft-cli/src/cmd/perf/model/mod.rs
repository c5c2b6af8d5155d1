//! Flow models: each decides which calls a client makes, when, and on which channel (X-RDMA's XR-Perf, section VI.B).
//! A model knows no channel, clock or socket: the client polls it for calls, and reports each response to it.

use weft_sim::workload::sizes::Sizes;
use weft_units::{Duration, Rng};

mod bulk;
mod elephants_mice;
mod incast;
mod ping_pong;
mod rpc_mix;

/// A call to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The due time, since the run began. The duration of a call counts from it, so that time spent waiting for a
    /// busy channel is included.
    pub(super) due: Duration,
    /// The index of the channel.
    pub(super) channel: u32,
    /// Bytes of the request.
    pub(super) request: u32,
    /// Bytes of the response.
    pub(super) response: u32,
    /// The index of the model's class that it is counted in.
    pub(super) class: usize,
}

/// A source of calls.
pub(super) trait Model {
    /// Returns the classes that calls are counted in.
    fn classes(&self) -> &'static [&'static str];

    /// Returns the next call that is due by `at`, since the run began.
    fn next(&mut self, at: Duration, rng: &mut Rng) -> Option<Call>;

    /// Returns the due time of the next call, if that does not depend on responses.
    fn due(&self) -> Option<Duration> {
        None
    }

    /// Records a call's response at this time, since the run began. If a longer measurement of the model ends with it,
    /// returns the measurement's class and duration.
    fn on_response(&mut self, call: &Call, at: Duration) -> Option<(usize, Duration)>;
}

/// Parameters of a model from the command line.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Bytes of a message; `None` for the model's own choice.
    pub(super) size: Option<u32>,
    /// The distribution that sizes are drawn from.
    pub(super) sizes: Sizes,
    /// Calls per second of open-loop arrivals.
    pub(super) rate: f64,
    /// Calls in flight on each channel of closed-loop models.
    pub(super) outstanding: u32,
    pub(super) channels: u32,
}

/// Declares every model: its file, its name, and its description.
macro_rules! models {
    ($($kind:ident => $module:ident, $name:literal, $about:literal;)+) => {
        /// A flow model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        pub(super) enum Kind { $(#[doc = $about] #[value(name = $name)] $kind),+ }

        impl Kind {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$kind),+];

            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }

            /// Returns the model of this shape.
            pub(super) fn build(self, shape: &Shape) -> Box<dyn Model> {
                match self { $(Self::$kind => Box::new($module::Model::new(shape))),+ }
            }
        }
    };
}

models! {
    PingPong => ping_pong, "ping-pong", "one message there and back at a time";
    Bulk => bulk, "bulk", "long messages, several under way on each channel";
    ElephantsMice => elephants_mice, "elephants-mice", "long messages on one channel, short open-loop calls on the others";
    Incast => incast, "incast", "one request on every channel at once, again when all responses are there";
    RpcMix => rpc_mix, "rpc-mix", "open-loop reads and writes of sizes drawn from a distribution";
}

/// A Poisson process of independent arrivals.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    /// Arrivals per second.
    rate: f64,
    /// The time of the next arrival, since the run began.
    next: Duration,
}

impl Arrivals {
    fn new(rate: f64) -> Self {
        Self { rate, next: Duration::ZERO }
    }

    /// Returns the time of the next arrival, if that was by `at`.
    fn take(&mut self, at: Duration, rng: &mut Rng) -> Option<Duration> {
        let due = (self.next <= at).then_some(self.next)?;
        // The logarithm of zero is never taken.
        let seconds = -(1.0 - rng.unit()).ln() / self.rate;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let gap = Duration::from_nanos((seconds * 1e9) as u64);
        self.next = due + gap;
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use weft_sim::workload::sizes::Published;
    use weft_units::Seed;

    use super::*;

    fn shape() -> Shape {
        let sizes = Sizes::published(Published::GoogleRpc);
        Shape { size: None, sizes, rate: 10_000.0, outstanding: 4, channels: 3 }
    }

    #[test]
    fn every_model_calls_within_bounds_and_continues_after_responses() {
        for &kind in Kind::ALL {
            let (mut model, mut rng) = (kind.build(&shape()), Seed(7).child("models", 0).rng());
            let (mut waiting, mut calls) = (Vec::new(), 0);
            for tick in 0..2_000 {
                let at = Duration::from_micros(100 * tick);
                while let Some(call) = model.next(at, &mut rng) {
                    assert!(call.due <= at && call.channel < 3, "{}: {call:?}", kind.name());
                    assert!(call.class < model.classes().len(), "{}: {call:?}", kind.name());
                    waiting.push(call);
                    calls += 1;
                }
                assert!(model.due().is_none_or(|due| due > at), "{}", kind.name());
                for call in waiting.drain(..) {
                    if let Some((class, took)) = model.on_response(&call, at) {
                        assert!(class < model.classes().len() && took <= at, "{}", kind.name());
                    }
                }
            }
            assert!(calls >= 1_000, "{}: {calls}", kind.name());
        }
    }

    #[test]
    fn arrivals_have_their_rate_at_any_polling_interval() {
        let (mut arrivals, mut rng) = (Arrivals::new(50_000.0), Seed(1).child("arrivals", 0).rng());
        let mut count = 0;
        for tick in 1..=100 {
            while arrivals.take(Duration::from_millis(10 * tick), &mut rng).is_some() {
                count += 1;
            }
        }
        // Five standard deviations of 50,000.
        assert!((48_900..51_100).contains(&count), "{count}");
    }
}
