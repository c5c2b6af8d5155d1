//! Contexts on devices on a network, and the invariants that they must keep.

mod calls;
mod carriers;
mod endings;
mod flow;
mod hostile;
mod messages;
mod network;
mod no_device;
mod operations;
mod returns;
mod windows;

pub(crate) use no_device::NoDevice;
