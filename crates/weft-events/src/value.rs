//! The types of fields.

use std::net::IpAddr;

use tracing::Value;

/// A type of fields. Numbers stay numbers in JSON; other values are text.
pub(crate) trait Loggable {
    /// Returns the value in the log's terms.
    fn to_value(&self) -> impl Value + '_;

    /// Returns a value for tests.
    #[cfg(test)]
    fn example() -> Self;
}

impl Loggable for u64 {
    fn to_value(&self) -> impl Value + '_ {
        *self
    }

    #[cfg(test)]
    fn example() -> Self {
        7
    }
}

impl Loggable for f64 {
    fn to_value(&self) -> impl Value + '_ {
        *self
    }

    #[cfg(test)]
    fn example() -> Self {
        0.5
    }
}

impl Loggable for String {
    fn to_value(&self) -> impl Value + '_ {
        self.as_str()
    }

    #[cfg(test)]
    fn example() -> Self {
        "some".into()
    }
}

impl Loggable for &'static str {
    fn to_value(&self) -> impl Value + '_ {
        *self
    }

    #[cfg(test)]
    fn example() -> Self {
        "some"
    }
}

impl Loggable for IpAddr {
    fn to_value(&self) -> impl Value + '_ {
        tracing::field::display(self)
    }

    #[cfg(test)]
    fn example() -> Self {
        Self::from([10, 0, 0, 2])
    }
}
