//! The common part of the simulator's registries: a row's name is how it is parsed and printed.

/// Declares an enum of names from a table of rows: variant, name, one-line description.
macro_rules! named_kinds {
    ($(#[$meta:meta])* $enum:ident, $what:literal, {
        $($kind:ident, $name:literal, $about:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $enum { $(#[doc = $about] $kind),+ }

        impl $enum {
            /// All values, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns the name in scenarios and on the command line.
            pub const fn name(self) -> &'static str { match self { $(Self::$kind => $name),+ } }

            /// Returns a one-line description.
            pub const fn about(self) -> &'static str { match self { $(Self::$kind => $about),+ } }
        }

        impl std::str::FromStr for $enum {
            type Err = String;
            fn from_str(name: &str) -> Result<Self, String> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|kind| kind.name() == name)
                    .ok_or_else(|| weft_units::unknown_name($what, name, &[$($name),+]))
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.pad(self.name())
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $enum {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(from)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use named_kinds;
