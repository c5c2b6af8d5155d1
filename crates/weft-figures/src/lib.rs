//! Every figure and table of the papers' evaluations: one file each under `experiments/`, reproduced by one command,
//! compared with the paper by its claims, recorded, and written into the docs.
//!
//! `weft experiment` calls this crate. It never knows the subject of a figure: [`weft_sim::experiment`] reads the
//! files, and the simulator, or a bench that prints rows, produces the numbers.
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
