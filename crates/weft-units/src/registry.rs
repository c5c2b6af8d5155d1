//! Registries: enums whose variants are the rows of a table, parsed, printed and stored by name.

use alloc::string::String;
use core::fmt;

use crate::unknown_name;

/// The error for a name that no row of a registry has. Its message has the nearest name, if the given one may be a typo
/// of it, and all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    kind: &'static str,
    name: String,
    known: &'static [&'static str],
}

impl UnknownName {
    /// Returns the error for `name`. `kind` is the noun for a row in the message, `known` are the names of all rows.
    pub fn new(kind: &'static str, name: &str, known: &'static [&'static str]) -> Self {
        Self { kind, name: name.into(), known }
    }

    /// Returns the names of all rows.
    pub const fn known(&self) -> &'static [&'static str] {
        self.known
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&unknown_name(self.kind, &self.name, self.known))
    }
}

impl core::error::Error for UnknownName {}

/// Declares a registry: an enum with the noun that error messages use for its variants, and a table with one row for
/// each variant.
///
/// A row is either a variant, its name and a description of one line, which begins its documentation, or a variant with
/// its documentation and its name. A variant may have a number. The enum has `ALL`, `NAMES`, `name`,
/// [`FromStr`](core::str::FromStr), `Display` and, with the features `serde` and `schema` of this crate, the traits of
/// serde and `JsonSchema`; with the first kind of table it also has `about`.
///
/// ```
/// weft_units::registry! {
///     /// A way to queue.
///     pub enum Queue: "queue" {
///         Fifo => "fifo", "first in, first out";
///         Fair => "fair", "every flow in turn";
///     }
/// }
///
/// assert_eq!("fair".parse(), Ok(Queue::Fair));
/// assert_eq!(Queue::Fifo.about(), "first in, first out");
/// let error = "fairr".parse::<Queue>().unwrap_err();
/// assert_eq!(error.to_string(), "no queue \"fairr\", did you mean \"fair\"? (known: fifo, fair)");
/// ```
#[macro_export]
macro_rules! registry {
    ($(#[$meta:meta])* $vis:vis enum $kind:ident: $noun:literal {
        $($(#[doc = $doc:literal])* $row:ident $(= $number:literal)? => $name:literal, $about:literal;)+
    }) => {
        $crate::registry! {
            $(#[$meta])*
            $vis enum $kind: $noun {
                $(#[doc = $about] $(#[doc = $doc])* $row $(= $number)? => $name;)+
            }
        }

        impl $kind {
            /// Returns the description of the row, one line.
            $vis const fn about(self) -> &'static str { match self { $(Self::$row => $about),+ } }
        }
    };
    ($(#[$meta:meta])* $vis:vis enum $kind:ident: $noun:literal {
        $($(#[doc = $doc:literal])+ $row:ident $(= $number:literal)? => $name:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $kind { $($(#[doc = $doc])+ $row $(= $number)?),+ }

        impl $kind {
            /// All rows, in the order of the table.
            $vis const ALL: &'static [Self] = &[$(Self::$row),+];
            /// The names of all rows, in the order of the table.
            $vis const NAMES: &'static [&'static str] = &[$($name),+];
            /// Returns the name of the row in files, on the command line and in reports.
            $vis const fn name(self) -> &'static str { match self { $(Self::$row => $name),+ } }
        }

        impl core::str::FromStr for $kind {
            type Err = $crate::UnknownName;
            fn from_str(name: &str) -> Result<Self, $crate::UnknownName> {
                match name {
                    $($name => Ok(Self::$row),)+
                    _ => Err($crate::UnknownName::new($noun, name, Self::NAMES)),
                }
            }
        }

        impl core::fmt::Display for $kind {
            fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                out.pad(self.name())
            }
        }

        $crate::serde_by_name!($kind);
        $crate::schema_by_name!($kind);
    };
}

/// Implements serde's traits for a registry's enum, whose values are stored by name.
#[cfg(feature = "serde")]
#[doc(hidden)]
#[macro_export]
macro_rules! serde_by_name {
    ($kind:ident) => {
        impl $crate::for_macros::Serialize for $kind {
            fn serialize<S: $crate::for_macros::Serializer>(
                &self,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de> $crate::for_macros::Deserialize<'de> for $kind {
            fn deserialize<D: $crate::for_macros::Deserializer<'de>>(
                from: D,
            ) -> Result<Self, D::Error> {
                let name =
                    <$crate::for_macros::String as $crate::for_macros::Deserialize>::deserialize(
                        from,
                    )?;
                name.parse().map_err(<D::Error as $crate::for_macros::Error>::custom)
            }
        }
    };
}

/// Implements nothing, because the feature `serde` is off.
#[cfg(not(feature = "serde"))]
#[doc(hidden)]
#[macro_export]
macro_rules! serde_by_name {
    ($kind:ident) => {};
}

/// Implements the schema of a registry's enum: one of the names.
#[cfg(feature = "schema")]
#[doc(hidden)]
#[macro_export]
macro_rules! schema_by_name {
    ($kind:ident) => {
        impl $crate::for_macros::JsonSchema for $kind {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> $crate::for_macros::Cow<'static, str> {
                stringify!($kind).into()
            }

            fn json_schema(
                _: &mut $crate::for_macros::SchemaGenerator,
            ) -> $crate::for_macros::Schema {
                $crate::for_macros::json_schema!({ "type": "string", "enum": Self::NAMES })
            }
        }
    };
}

/// Implements nothing, because the feature `schema` is off.
#[cfg(not(feature = "schema"))]
#[doc(hidden)]
#[macro_export]
macro_rules! schema_by_name {
    ($kind:ident) => {};
}

/// Implements the schema of types that are read from a text: for each type its name, a description and the regular
/// expression (ECMA-262) of its texts.
#[cfg(feature = "schema")]
#[macro_export]
macro_rules! text_schema {
    ($($kind:ty: $name:literal, $about:literal, $pattern:literal;)+) => {$(
        impl $crate::for_macros::JsonSchema for $kind {
            fn schema_name() -> $crate::for_macros::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(
                _: &mut $crate::for_macros::SchemaGenerator,
            ) -> $crate::for_macros::Schema {
                $crate::for_macros::json_schema!({
                    "type": "string",
                    "description": $about,
                    "pattern": $pattern,
                })
            }
        }
    )+};
}

/// The names that expansions of [`registry!`] use: crates that use it need not depend on serde.
#[cfg(feature = "serde")]
#[doc(hidden)]
pub mod for_macros {
    #[cfg(feature = "schema")]
    pub use alloc::borrow::Cow;
    pub use alloc::string::String;
    #[cfg(feature = "schema")]
    pub use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
    pub use serde::de::Error;
    pub use serde::{Deserialize, Deserializer, Serialize, Serializer};
}

#[cfg(test)]
mod tests {
    registry! {
        /// Documented, with numbers.
        enum Level: "level" {
            /// The lower one.
            Low = 3 => "low";
            /// The higher one.
            High = 7 => "high";
        }
    }

    #[test]
    fn rows_keep_their_order_names_and_numbers() {
        assert_eq!(Level::ALL, [Level::Low, Level::High]);
        assert_eq!(Level::NAMES, ["low", "high"]);
        assert_eq!(Level::High as u8, 7);
        assert_eq!(format!("{:>5}", Level::Low), "  low");
        for level in Level::ALL {
            assert_eq!(level.name().parse(), Ok(*level));
        }
    }
}
