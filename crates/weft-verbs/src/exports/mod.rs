//! The functions of `libibverbs.so.1`, one module for each object. Each has its manual page's behaviour.

mod devices;
mod fork;
mod names;
mod planned;
mod queries;
mod sysfs;
mod tables;
