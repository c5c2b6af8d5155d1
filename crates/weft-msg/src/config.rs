//! The parameters of a context, each with its default, its range, and whether it may change while the context
//! runs (X-RDMA, section VI.D, table III).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weft_units::{ByteCount, Duration, unknown_name};

use crate::carrier::Carrier;
use crate::filter::RuleError;
use crate::flow::Bounds;

/// An error that refuses a parameter's value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no such parameter; the message has the most similar name and all names.
    #[error("{0}")]
    Unknown(String),
    /// The text does not parse as the parameter's type.
    #[error("{name}: {got:?} is not {expected}")]
    Malformed {
        /// The parameter.
        name: &'static str,
        /// The given text.
        got: String,
        /// A description of the expected text.
        expected: &'static str,
    },
    /// The value is out of range.
    #[error("{name} is {got}, expected {min} to {max}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// The given value.
        got: String,
        /// The minimum.
        min: String,
        /// The maximum.
        max: String,
    },
    /// The text is no list of filter rules.
    #[error("filter: {0}")]
    Filter(#[from] RuleError),
    /// The parameter is fixed when a context is created.
    #[error("{name} cannot change while the context runs (off-line parameter)")]
    Offline {
        /// The parameter.
        name: &'static str,
    },
}

/// A type of parameter values.
trait Value: Copy + PartialOrd {
    const EXPECTED: &'static str;
    fn read(text: &str) -> Option<Self>;
    fn text(self) -> String;
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Value for $number {
            const EXPECTED: &'static str = "a number, or bytes as in 64KiB";
            fn read(text: &str) -> Option<Self> {
                text.parse().ok().or_else(|| {
                    text.parse::<ByteCount>().ok().and_then(|bytes| bytes.0.try_into().ok())
                })
            }
            fn text(self) -> String {
                self.to_string()
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64);

impl Value for Duration {
    const EXPECTED: &'static str = "a time, as in 10ms";
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn text(self) -> String {
        self.to_string()
    }
}

impl Value for Carrier {
    const EXPECTED: &'static str = "rdma or tcp";
    fn read(text: &str) -> Option<Self> {
        Self::from_name(text)
    }
    fn text(self) -> String {
        self.name().into()
    }
}

/// One parameter, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The least value, as text.
    pub min: String,
    /// The greatest value, as text.
    pub max: String,
    /// `true` if it may change while the context runs.
    pub online: bool,
    /// A description of its effect.
    pub about: &'static str,
}

macro_rules! parameters {
    ($($(#[doc = $about:literal])+ $when:ident $name:ident: $kind:ty = $default:expr, $min:expr, $max:expr;)+) => {
        /// The parameters of a context and its channels.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $($(#[doc = $about])+ pub $name: $kind,)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Config {
            /// Returns every parameter with its value.
            pub fn parameters(&self) -> Vec<Parameter> {
                alloc::vec![$(Parameter {
                    name: stringify!($name),
                    value: self.$name.text(),
                    min: <$kind as Value>::text($min),
                    max: <$kind as Value>::text($max),
                    online: online!($when),
                    about: concat!($($about),+).trim_ascii_start(),
                },)+]
            }

            /// Sets a parameter before a context is created.
            ///
            /// # Errors
            /// There is no such parameter, or the value is invalid.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = read(stringify!($name), value, $min, $max)?;
                    })+
                    _ => {
                        let known = [$(stringify!($name)),+];
                        return Err(ConfigError::Unknown(unknown_name("parameter", name, &known)));
                    }
                }
                Ok(())
            }

            /// Sets a parameter while the context runs.
            ///
            /// # Errors
            /// The errors of [`set`](Self::set), and `Offline` for a parameter that is fixed when a context is created.
            pub fn set_online(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
                match name {
                    $(stringify!($name) if !online!($when) => {
                        Err(ConfigError::Offline { name: stringify!($name) })
                    })+
                    _ => self.set(name, value),
                }
            }

            /// Checks that every parameter is in its range.
            ///
            /// # Errors
            /// The first parameter that is out of range.
            pub fn check(&self) -> Result<(), ConfigError> {
                $(in_range(stringify!($name), self.$name, $min, $max)?;)+
                Ok(())
            }
        }
    };
}

macro_rules! online {
    (online) => {
        true
    };
    (offline) => {
        false
    };
}

parameters! {
    /// Frames of a channel that may be in flight in one direction: the ring of algorithm 1.
    offline depth: u16 = 32, 3, 4096;
    /// Finished frames after which the receiver sends an ACK frame (N of section V.B).
    offline ack_every: u16 = 8, 1, 2048;
    /// Bytes of the longest message that is sent inside its frame (S of section IV.C).
    offline small: u32 = 4096, 64, 1 << 20;
    /// Bytes of the longest message.
    offline longest: u32 = 64 << 20, 64, 1 << 30;
    /// Bytes of a large message that one READ fetches (section V.C).
    offline fragment: u32 = 64 << 10, 4096, 1 << 30;
    /// Receive requests that all channels share (table III: use_srq, srq size); 0: each channel has its own,
    /// and a receiver is always ready.
    offline srq: u32 = 0, 0, 1 << 15;
    /// READs of one channel in flight.
    offline reads: u8 = 8, 1, 128;
    /// Bytes of a region of the memory cache (section IV.E).
    offline memory_region: u64 = 4 << 20, 64 << 10, 1 << 30;
    /// Queue pairs cached for later channels (section IV.E).
    online qp_cache: u32 = 1024, 0, 1 << 20;
    /// Bytes of the whole context in flight, of SENDs and of READs each, at most (N of section V.C). Below it, N follows
    /// the measured bandwidth-delay product. SENDs without a completion may be a quarter more.
    online outstanding: u64 = 4 << 20, 1, 1 << 44;
    /// Bytes to which N is reduced at least; from `outstanding` on, N is constant.
    online outstanding_min: u64 = 16 << 10, 1, 1 << 44;
    /// Messages of a channel that wait for its window.
    online backlog: u32 = 4096, 0, 1 << 24;
    /// Requests of a channel that wait for this end's responses. Above this number the peer's window stays closed.
    online unanswered: u32 = 4096, 1, 1 << 24;
    /// Bytes of registered memory, at most.
    online memory_limit: u64 = 1 << 30, 1 << 20, 1 << 44;
    /// Time after which an empty region is freed.
    online memory_keep: Duration = Duration::from_secs(1), Duration::ZERO, Duration::from_secs(3600);
    /// Silence after which a channel's peer is probed (section V.A).
    online keepalive: Duration = Duration::from_millis(1000), Duration::from_millis(1), Duration::from_secs(3600);
    /// Time that a probed peer may take to answer, where its whole host is silent; then the channel ends or moves to its
    /// stream, unless the device has given up before. 0: only the device gives up.
    online keepalive_timeout: Duration = Duration::from_secs(3), Duration::ZERO, Duration::from_secs(3600);
    /// Time that a finished frame waits for an outgoing frame to acknowledge it.
    online ack_delay: Duration = Duration::from_micros(500), Duration::ZERO, Duration::from_secs(1);
    /// Time that a window stays full before a NOP requests an ACK (section V.B).
    online deadlock_after: Duration = Duration::from_millis(10), Duration::from_micros(10), Duration::from_secs(60);
    /// Time that a close waits for the peer.
    online close_timeout: Duration = Duration::from_secs(2), Duration::from_millis(1), Duration::from_secs(60);
    /// Duration above which a call is logged.
    online slow_threshold: Duration = Duration::from_millis(10), Duration::from_micros(1), Duration::from_secs(60);
    /// Interval between two polls above which it is logged.
    online polling_warn: Duration = Duration::from_millis(10), Duration::from_micros(1), Duration::from_secs(60);
    /// Carrier of the channels that have a TCP stream. A change moves the open ones there; the other end follows.
    online carrier: Carrier = Carrier::Rdma, Carrier::Rdma, Carrier::Stream;
    /// Time from a queue pair's failure until a channel on TCP tries RDMA again, doubled after each failure; 0: never.
    online rdma_retry: Duration = Duration::from_secs(1), Duration::ZERO, Duration::from_secs(3600);
    /// Smoothed round trip on RDMA above which a channel with a TCP stream moves there, until it is below half of it; 0: never.
    online congested_rtt: Duration = Duration::ZERO, Duration::ZERO, Duration::from_secs(60);
    /// Time that the round trip must be above `congested_rtt` before a channel moves; below half of it for four times as long, it returns.
    online congested_for: Duration = Duration::from_millis(100), Duration::from_millis(1), Duration::from_secs(60);
    /// Interval of traced calls: one in this many; 0: none.
    online trace_every: u32 = 0, 0, u32::MAX;
}

fn read<T: Value>(name: &'static str, text: &str, min: T, max: T) -> Result<T, ConfigError> {
    let malformed = || ConfigError::Malformed { name, got: text.into(), expected: T::EXPECTED };
    let value = T::read(text).ok_or_else(malformed)?;
    in_range(name, value, min, max)?;
    Ok(value)
}

fn in_range<T: Value>(name: &'static str, value: T, min: T, max: T) -> Result<(), ConfigError> {
    if value < min || value > max {
        let (got, min, max) = (value.text(), min.text(), max.text());
        return Err(ConfigError::OutOfRange { name, got, min, max });
    }
    Ok(())
}

impl Config {
    /// Returns the bounds of N.
    pub(crate) const fn flow_bounds(&self) -> Bounds {
        Bounds { min: self.outstanding_min, max: self.outstanding }
    }

    /// Returns the number of ACK frames that may be in flight beyond the window: one for each `ack_every` frames of a
    /// window, and one more for an ACK that is due by time.
    pub(crate) fn ack_frames(&self) -> u16 {
        self.depth.div_ceil(self.ack_every) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range_and_every_parameter_parses_its_own_text() {
        let mut config = Config::default();
        config.check().unwrap();
        for parameter in Config::default().parameters() {
            config.set(parameter.name, &parameter.value).unwrap();
        }
        assert_eq!(config, Config::default());
    }

    #[test]
    fn invalid_values_and_names_are_reported() {
        let mut config = Config::default();
        for (name, value, want) in [
            ("depth", "2", "depth is 2, expected 3 to 4096"),
            ("keepalive", "soon", "keepalive: \"soon\" is not a time, as in 10ms"),
            ("small", "many", "small: \"many\" is not a number, or bytes as in 64KiB"),
        ] {
            assert_eq!(config.set(name, value).unwrap_err().to_string(), want);
        }
        let error = config.set("keepalife", "1s").unwrap_err().to_string();
        assert!(error.contains("keepalive"), "{error}");
        let error = config.set_online("depth", "64").unwrap_err();
        assert_eq!(error, ConfigError::Offline { name: "depth" });
        config.set_online("memory_limit", "64MiB").unwrap();
        assert_eq!(config.memory_limit, 64 << 20);
    }
}
