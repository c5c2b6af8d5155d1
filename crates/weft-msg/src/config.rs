//! Every parameter, with its default, range and whether it may change while the context runs (X-RDMA,
//! section VI.D, table III).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weft_units::{ByteCount, Duration, unknown_name};

/// Why a parameter cannot have a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no such parameter; the nearest and all there are.
    #[error("{0}")]
    Unknown(String),
    /// The text is no value of the parameter's type.
    #[error("{name}: {got:?} is not {expected}")]
    Malformed {
        /// The parameter.
        name: &'static str,
        /// What was given.
        got: String,
        /// What it should look like.
        expected: &'static str,
    },
    /// The value is out of range.
    #[error("{name} is {got}, expected {least} to {most}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was given.
        got: String,
        /// The least it may be.
        least: String,
        /// The most it may be.
        most: String,
    },
    /// It is decided when a context is made.
    #[error("{name} cannot change while the context runs (off-line parameter)")]
    Offline {
        /// The parameter.
        name: &'static str,
    },
}

/// A type that parameters have.
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

/// One parameter, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Whether it may change while the context runs.
    pub online: bool,
    /// What it does.
    pub about: &'static str,
}

macro_rules! parameters {
    ($($(#[doc = $about:literal])+ $when:ident $name:ident: $kind:ty = $default:expr, $least:expr, $most:expr;)+) => {
        /// How a context and its channels behave.
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
            /// Every parameter with its value.
            pub fn parameters(&self) -> Vec<Parameter> {
                alloc::vec![$(Parameter {
                    name: stringify!($name),
                    value: self.$name.text(),
                    online: online!($when),
                    about: concat!($($about),+).trim_ascii_start(),
                },)+]
            }

            /// Gives a parameter a value, before a context is made.
            ///
            /// # Errors
            /// There is no such parameter, or the value is none of it.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = read(stringify!($name), value, $least, $most)?;
                    })+
                    _ => {
                        let known = [$(stringify!($name)),+];
                        return Err(ConfigError::Unknown(unknown_name("parameter", name, &known)));
                    }
                }
                Ok(())
            }

            /// Gives a parameter a value while the context runs.
            ///
            /// # Errors
            /// As [`set`](Self::set), and parameters that are decided when a context is made.
            pub fn set_online(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
                match name {
                    $(stringify!($name) if !online!($when) => {
                        Err(ConfigError::Offline { name: stringify!($name) })
                    })+
                    _ => self.set(name, value),
                }
            }

            /// Whether every parameter is in its range.
            ///
            /// # Errors
            /// The first that is not.
            pub fn check(&self) -> Result<(), ConfigError> {
                $(in_range(stringify!($name), self.$name, $least, $most)?;)+
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
    /// Frames of a channel that may be under way in a direction: the ring of algorithm 1.
    offline depth: u16 = 32, 3, 4096;
    /// Frames that are done with before an ACK frame says so (N of section V.B).
    offline ack_every: u16 = 8, 1, 2048;
    /// Bytes of the longest message that travels in its frame (S of section IV.C).
    offline small: u32 = 4096, 64, 1 << 20;
    /// Bytes of the longest message.
    offline longest: u32 = 64 << 20, 64, 1 << 30;
    /// Bytes of a large message that one READ fetches (section V.C).
    offline fragment: u32 = 64 << 10, 4096, 1 << 30;
    /// Receive requests that all channels share (table III: use_srq, srq size); 0: each has its own, and no receiver
    /// is ever unready.
    offline srq: u32 = 0, 0, 1 << 15;
    /// READs of one channel under way.
    offline reads: u8 = 8, 1, 128;
    /// Bytes of a region of the memory cache (section IV.E).
    offline memory_region: u64 = 4 << 20, 64 << 10, 1 << 30;
    /// Queue pairs kept for the next channels (section IV.E).
    online qp_cache: u32 = 1024, 0, 1 << 20;
    /// READs of the whole context under way (N of section V.C).
    online outstanding: u32 = 64, 1, 1 << 16;
    /// Messages of a channel that wait for its window.
    online backlog: u32 = 4096, 0, 1 << 24;
    /// Requests of a channel that wait for this end's answers. Beyond, the peer's window stays closed.
    online unanswered: u32 = 4096, 1, 1 << 24;
    /// Bytes of registered memory, at most.
    online memory_limit: u64 = 1 << 30, 1 << 20, 1 << 44;
    /// How long a region is empty before it is given back.
    online memory_keep: Duration = Duration::from_secs(1), Duration::ZERO, Duration::from_secs(3600);
    /// Silence after which a channel's peer is probed (section V.A).
    online keepalive: Duration = Duration::from_millis(1000), Duration::from_millis(1), Duration::from_secs(3600);
    /// How long a frame that is done with waits for a frame to be acknowledged by.
    online ack_delay: Duration = Duration::from_micros(500), Duration::ZERO, Duration::from_secs(1);
    /// How long a full window waits before a NOP asks for an ACK (section V.B).
    online deadlock_after: Duration = Duration::from_millis(10), Duration::from_micros(10), Duration::from_secs(60);
    /// How long a close waits for the peer.
    online close_timeout: Duration = Duration::from_secs(2), Duration::from_millis(1), Duration::from_secs(60);
    /// A call that takes longer is logged.
    online slow_threshold: Duration = Duration::from_millis(10), Duration::from_micros(1), Duration::from_secs(60);
    /// Time between two polls from which on it is logged.
    online polling_warn: Duration = Duration::from_millis(10), Duration::from_micros(1), Duration::from_secs(60);
    /// One call in this many is traced; 0 none.
    online trace_every: u32 = 0, 0, u32::MAX;
}

fn read<T: Value>(name: &'static str, text: &str, least: T, most: T) -> Result<T, ConfigError> {
    let malformed = || ConfigError::Malformed { name, got: text.into(), expected: T::EXPECTED };
    let value = T::read(text).ok_or_else(malformed)?;
    in_range(name, value, least, most)?;
    Ok(value)
}

fn in_range<T: Value>(name: &'static str, value: T, least: T, most: T) -> Result<(), ConfigError> {
    if value < least || value > most {
        let (got, least, most) = (value.text(), least.text(), most.text());
        return Err(ConfigError::OutOfRange { name, got, least, most });
    }
    Ok(())
}

impl Config {
    /// ACK frames that a peer may send beyond its window: each tells of `ack_every` frames, or was due
    /// by time while the peer's last frames knew of the one before.
    pub(crate) fn ack_frames(&self) -> u16 {
        self.depth.div_ceil(self.ack_every) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range_and_every_parameter_takes_its_own_text() {
        let mut config = Config::default();
        config.check().unwrap();
        for parameter in Config::default().parameters() {
            config.set(parameter.name, &parameter.value).unwrap();
        }
        assert_eq!(config, Config::default());
    }

    #[test]
    fn what_cannot_be_is_named() {
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
