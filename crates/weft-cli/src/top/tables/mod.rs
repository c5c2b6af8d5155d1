//! The tables of a page, each from two samples.

mod cells;
mod moves;
mod pairs;
mod paths;
mod queues;

pub(super) use moves::moves;
pub(super) use pairs::pairs;
pub(super) use paths::paths;
pub(super) use queues::queues;
