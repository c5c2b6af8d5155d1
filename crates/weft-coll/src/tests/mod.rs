mod failures;
mod memory;
mod network;
mod operations;
mod rounds;
mod servers;
mod sharing;
mod values;
