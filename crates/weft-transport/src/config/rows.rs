//! The settings that rows of registries have: each is a table of the configuration, under the row's key.

use alloc::vec::Vec;

use super::Range;
use crate::congestion::Scope;

/// The settings of one row: a table of the configuration.
pub(crate) trait Settings {
    /// Returns the fields that have bounds, with the row's key before their names.
    fn ranges(&self) -> Vec<Range>;

    /// Returns the scope of a congestion control whose settings have one.
    fn scope(&self) -> Option<Scope> {
        None
    }
}

/// The table of settings in [`TransportConfig`](crate::TransportConfig) that belongs to one row of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsTable {
    /// The key.
    pub key: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// The name of the structure.
    pub structure: &'static str,
    /// The module of this crate that has it, as a path without the crate.
    pub module: &'static str,
}

/// Adds the settings of all rows to a structure, after its own fields.
macro_rules! with_settings {
    ($($structure:tt)*) => {
        crate::path::policies! { crate::congestion::controls! crate::config::rows::add_fields! { $($structure)* } }
    };
}
pub(super) use with_settings;

/// Adds the defaults of all rows' settings to the expression of such a structure.
macro_rules! with_default_settings {
    ($($value:tt)*) => {
        crate::path::policies! { crate::congestion::controls! crate::config::rows::add_defaults! { $($value)* } }
    };
}
pub(super) use with_default_settings;

macro_rules! add_fields {
    (
        { $(#[$meta:meta])* pub struct $name:ident { $($fields:tt)* } }
        {$(
            $policy:ident => $policy_module:ident, $policy_name:literal, $spread:ident, $policy_about:literal
            $(, $key:ident: $settings:ident, $doc:literal)?;
        )+}
        {$(
            $control:ident = $number:literal => $control_module:ident, $control_name:literal, $scope:ident,
            $control_about:literal $(, $control_key:ident: $control_settings:ident, $control_doc:literal)?;
        )+}
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($fields)*
            $($(#[doc = $doc] pub $key: crate::path::$settings,)?)+
            $($(#[doc = $control_doc] pub $control_key: crate::congestion::$control_settings,)?)+
        }

        impl $name {
            /// The tables of settings that belong to a path policy or a congestion control.
            pub const SETTINGS: &'static [SettingsTable] = &[
                $($(SettingsTable {
                    key: stringify!($key),
                    about: $doc,
                    structure: stringify!($settings),
                    module: concat!("path::", stringify!($policy_module)),
                },)?)+
                $($(SettingsTable {
                    key: stringify!($control_key),
                    about: $control_doc,
                    structure: stringify!($control_settings),
                    module: concat!("congestion::", stringify!($control_module)),
                },)?)+
            ];

            /// Returns the ranges of their fields.
            fn ranges_of_settings(&self) -> impl Iterator<Item = Range> {
                let tables = [
                    $($(self.$key.ranges(),)?)+
                    $($(self.$control_key.ranges(),)?)+
                ];
                tables.into_iter().flatten()
            }
        }
    };
}
pub(super) use add_fields;

macro_rules! add_defaults {
    (
        { $name:ident { $($fields:tt)* } }
        {$(
            $policy:ident => $policy_module:ident, $policy_name:literal, $spread:ident, $policy_about:literal
            $(, $key:ident: $settings:ident, $doc:literal)?;
        )+}
        {$(
            $control:ident = $number:literal => $control_module:ident, $control_name:literal, $scope:ident,
            $control_about:literal $(, $control_key:ident: $control_settings:ident, $control_doc:literal)?;
        )+}
    ) => {
        $name {
            $($fields)*
            $($($key: Default::default(),)?)+
            $($($control_key: Default::default(),)?)+
        }
    };
}
pub(super) use add_defaults;
