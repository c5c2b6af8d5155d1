//! Every figure and table of the papers' evaluations: one file each under `experiments/`, made again by one
//! command, held against the paper by its claims, recorded, and written into the docs.
//!
//! `weft experiment` calls it. It never knows what a figure is about: [`weft_sim::experiment`] reads the files,
//! and the simulator, or a bench that prints rows, makes the numbers.
#![forbid(unsafe_code)]

mod inventory;
mod machine;
mod markdown;
mod page;
mod plot;
mod results;
mod run;
mod tables;
mod tally;

pub use inventory::{Figure, PAPERS, Paper, files, find_folder, select, stem};
pub use markdown::pages;
pub use page::{page, text};
pub use results::{Entry, Made, RESULTS, Recorded, Results, entries};
pub use run::Runner;
pub use tables::{claims, rows};
pub use tally::Tally;
