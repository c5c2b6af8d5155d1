//! The functions of `libibverbs.so.1`, by what they are about. Each is the one of its manual page.

mod devices;
mod fork;
mod names;
mod queries;
mod sysfs;

pub(crate) use queries::{query_device_ex, query_port};
