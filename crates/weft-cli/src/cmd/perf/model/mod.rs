//! Flow models: what clients ask for, when, and of whom (X-RDMA's XR-Perf, section VI.B). A model knows no
//! channel, clock or socket; it is asked what comes next, and told what was answered.

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
    /// When it is due, since the run began. How long it took counts from then: what waits for a busy channel
    /// waits.
    pub(super) due: Duration,
    /// On which of the channels.
    pub(super) channel: u32,
    /// Bytes of the request.
    pub(super) request: u32,
    /// Bytes of the response.
    pub(super) response: u32,
    /// Which of the model's classes it is counted with.
    pub(super) class: usize,
}

/// Decides what is asked for.
pub(super) trait Model {
    /// What calls are counted as.
    fn classes(&self) -> &'static [&'static str];

    /// The next call that is due by `at`.
    fn next(&mut self, at: Duration, rng: &mut Rng) -> Option<Call>;

    /// When the next call is due, if that does not depend on answers.
    fn due(&self) -> Option<Duration> {
        None
    }

    /// A call was answered at this time. A model may have measured something longer that ends with it: its
    /// class, and how long it took.
    fn answered(&mut self, call: &Call, at: Duration) -> Option<(usize, Duration)>;
}

/// What the command line says of a model.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Bytes of a message, or the model's own choice.
    pub(super) size: Option<u32>,
    /// Where sizes are drawn from.
    pub(super) sizes: Sizes,
    /// Calls a second of what comes by itself.
    pub(super) rate: f64,
    /// Calls under way on each channel of what waits for answers.
    pub(super) outstanding: u32,
    pub(super) channels: u32,
}

/// Declares every model: its file, its name, and what it does.
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

            /// The model, of this shape.
            pub(super) fn build(self, shape: &Shape) -> Box<dyn Model> {
                match self { $(Self::$kind => Box::new($module::Model::new(shape))),+ }
            }
        }
    };
}

models! {
    PingPong => ping_pong, "ping-pong", "one message there and back at a time";
    Bulk => bulk, "bulk", "long messages, several under way on each channel";
    ElephantsMice => elephants_mice, "elephants-mice", "long messages on one channel, short ones that come by themselves on the others";
    Incast => incast, "incast", "all channels asked for an answer at once, again when all have answered";
    RpcMix => rpc_mix, "rpc-mix", "reads and writes of drawn sizes that come by themselves";
}

/// Arrivals that know nothing of each other: a Poisson process.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    rate: f64,
    next: Duration,
}

impl Arrivals {
    fn new(rate: f64) -> Self {
        Self { rate, next: Duration::ZERO }
    }

    /// When the next one came, if that was by `at`.
    fn take(&mut self, at: Duration, rng: &mut Rng) -> Option<Duration> {
        let due = (self.next <= at).then_some(self.next)?;
        // Never the logarithm of zero.
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
    fn every_model_asks_within_bounds_and_goes_on_when_it_is_answered() {
        for &kind in Kind::ALL {
            let (mut model, mut rng) = (kind.build(&shape()), Seed(7).child("models", 0).rng());
            let (mut waiting, mut asked) = (Vec::new(), 0);
            for tick in 0..2_000 {
                let at = Duration::from_micros(100 * tick);
                while let Some(call) = model.next(at, &mut rng) {
                    assert!(call.due <= at && call.channel < 3, "{}: {call:?}", kind.name());
                    assert!(call.class < model.classes().len(), "{}: {call:?}", kind.name());
                    waiting.push(call);
                    asked += 1;
                }
                assert!(model.due().is_none_or(|due| due > at), "{}", kind.name());
                for call in waiting.drain(..) {
                    if let Some((class, took)) = model.answered(&call, at) {
                        assert!(class < model.classes().len() && took <= at, "{}", kind.name());
                    }
                }
            }
            assert!(asked >= 1_000, "{}: {asked}", kind.name());
        }
    }

    #[test]
    fn arrivals_come_at_their_rate_whenever_they_are_looked_for() {
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
