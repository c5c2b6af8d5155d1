mod failures;
mod memory;
mod network;
mod operations;
mod rounds;
mod sharing;
mod values;
