mod failures;
mod memory;
mod network;
mod operations;
mod sharing;
mod values;
