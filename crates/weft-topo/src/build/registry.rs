//! The table of topologies. A new shape needs a file and a row.

use super::{BuildError, FatTree, Hpn, LeafSpine, Rail};
use crate::graph::Topology;

/// Declares every topology once: parameters, name in files and on the command line, description.
macro_rules! topologies {
    ($($kind:ident, $name:literal, $about:literal;)+) => {
        weft_units::registry! {
            /// A shape of network.
            #[non_exhaustive]
            pub enum TopologyKind: "topology" { $($kind => $name, $about;)+ }
        }

        impl TopologyKind {
            /// Returns the parameters of the published network of this shape.
            pub fn config(self) -> TopologyConfig {
                match self { $(Self::$kind => TopologyConfig::$kind(<$kind>::default())),+ }
            }
        }

        /// A shape with its parameters. In a file, `kind` names the shape and the other keys are
        /// its parameters; omitted keys have the published values.
        #[derive(Clone, Debug, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "serde", serde(tag = "kind"))]
        #[non_exhaustive]
        pub enum TopologyConfig {
            $(#[doc = $about] #[cfg_attr(feature = "serde", serde(rename = $name))] $kind($kind)),+
        }

        impl TopologyConfig {
            /// Returns the shape.
            pub const fn kind(&self) -> TopologyKind {
                match self { $(Self::$kind(_) => TopologyKind::$kind),+ }
            }

            /// Builds the network that these parameters describe.
            ///
            /// # Errors
            /// Returns the error of the shape's own `build`.
            pub fn build(&self) -> Result<Topology, BuildError> {
                match self { $(Self::$kind(parameters) => parameters.build()),+ }
            }
        }
    };
}

topologies! {
    LeafSpine, "leaf-spine", "two tiers, every leaf to every spine (Hopper: 128 servers, 8 leaves, 8 spines)";
    FatTree, "fat-tree", "k-ary fat tree of two or three tiers, sized by its hosts";
    Hpn, "hpn", "HPN 7.0: dual-plane, rail-optimised segments below 60 aggregation switches a plane (STELLAR)";
    Rail, "rail", "multi-rail blocks of 32 servers with 8 dual-port NICs, one leaf a rail (Astral)";
}
