//! The common part of all registry tables: a row is parsed, printed and stored by its name.

/// Implements `FromStr`, `Display` and the serde traits for a registry's `Kind`, by name.
macro_rules! named {
    ($kind:ident, $what:literal) => {
        impl core::str::FromStr for $kind {
            type Err = alloc::string::String;
            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
                    let known: alloc::vec::Vec<_> = Self::ALL.iter().map(|k| k.name()).collect();
                    weft_units::unknown_name($what, name, &known)
                })
            }
        }

        impl core::fmt::Display for $kind {
            fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                out.pad(self.name())
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let name = <alloc::string::String as serde::Deserialize>::deserialize(from)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use named;
