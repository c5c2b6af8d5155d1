//! The section `[controller]`: the route controller as shipped, in simulated time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_route::{AlarmRules, ControllerConfig};
use weft_units::Duration;

weft_units::registry! {
    /// The controller's reaction to congested links.
    #[non_exhaustive]
    pub enum ControllerMode: "controller mode" {
        Off => "off", "there is none, as without the section";
        Watch => "watch", "it counts and raises alarms, and moves nothing";
        Steer => "steer", "it moves flows off crowded links";
    }
}

/// A route controller beside the simulated switches (`weft-route`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControllerSection {
    /// The reaction to congested links.
    pub mode: ControllerMode,
    /// The interval in which marks are counted; 10 s on routers. All other times of the controller scale with it.
    pub window: Duration,
    /// The alarm threshold: marks of a port in a window.
    pub marks: u64,
    /// The sampling period of switches, packets: one packet of this number is sampled.
    pub sample: u32,
}

impl Default for ControllerSection {
    fn default() -> Self {
        Self {
            mode: ControllerMode::Steer,
            window: Duration::from_millis(1),
            marks: AlarmRules::default().marks,
            sample: 16,
        }
    }
}

/// The error of a section `[controller]` that is invalid, alone or beside the section `[forwarding]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The window is too short.
    #[error("window is {got}, expected at least {}", ControllerSection::MIN_WINDOW)]
    ShortWindow {
        /// The window.
        got: Duration,
    },
    /// The sampling period is zero.
    #[error("sample is 0, expected at least 1")]
    NoSample,
    /// The paths of packets cannot be predicted.
    #[error(
        "a route controller predicts paths of switches that choose by their hash alone: forwarding.kind = \"ecmp\""
    )]
    NotEcmp,
}

impl ControllerSection {
    /// Minimum length of a window: a few round trips, so that switches get new routes between two windows.
    const MIN_WINDOW: Duration = Duration::from_micros(10);

    /// Checks the ranges of the settings.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub(super) fn check(&self) -> Result<(), ControllerError> {
        if self.window < Self::MIN_WINDOW {
            return Err(ControllerError::ShortWindow { got: self.window });
        }
        if self.sample == 0 {
            return Err(ControllerError::NoSample);
        }
        Ok(())
    }

    /// Returns the engine's configuration: its defaults, with all times scaled to the window.
    pub fn engine(&self) -> ControllerConfig {
        let config = ControllerConfig::default();
        let default_window = config.alarm.window;
        let scaled = |span| self.scaled(span, default_window);
        ControllerConfig {
            alarm: AlarmRules {
                window: self.window,
                marks: self.marks,
                within: scaled(config.alarm.within),
                phase: scaled(config.alarm.phase),
                ..config.alarm
            },
            grace: scaled(config.grace),
            answer_within: scaled(config.answer_within),
            hold: scaled(config.hold),
            idle: scaled(config.idle),
            bar: scaled(config.bar),
            forget: scaled(config.forget),
            ..config
        }
    }

    /// Returns the time from a window's end to the switches' new routes: 3 s per 10 s of window.
    pub fn reaction(&self) -> Duration {
        self.scaled(Duration::from_secs(3), Duration::from_secs(10))
    }

    /// Returns a span that is in the same proportion to the configured window as `span` to `window`; saturates.
    fn scaled(&self, span: Duration, window: Duration) -> Duration {
        let nanos = u128::from(span.as_nanos()) * u128::from(self.window.as_nanos());
        let nanos = nanos / u128::from(window.as_nanos());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_times_keep_their_proportion_to_the_window() {
        let engine = ControllerSection::default().engine();
        assert_eq!(engine.alarm.window, Duration::from_millis(1));
        assert_eq!(engine.alarm.within, Duration::from_millis(6));
        assert_eq!(engine.grace, Duration::from_micros(200));
        assert_eq!(engine.hold, Duration::from_millis(6));
        let config = ControllerSection { window: Duration::from_secs(10), ..Default::default() };
        assert_eq!(config.engine(), ControllerConfig::default());
    }
}
