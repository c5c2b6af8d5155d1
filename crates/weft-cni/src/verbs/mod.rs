//! The verbs of the specification, one file each.

pub(crate) mod add;
pub(crate) mod check;
pub(crate) mod del;
pub(crate) mod gc;
pub(crate) mod status;
