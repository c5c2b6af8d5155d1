//! Every figure and table of the papers' evaluations, and the topics of Weft's own performance: one file each under
//! `experiments/`, reproduced by one command, compared with the paper or with targets by its claims, recorded, and
//! written into the docs.
//!
//! `weft experiment` calls this crate. It does not depend on the subject of a figure: [`weft_sim::experiment`] reads
//! the files, and the simulator, or a bench that prints rows, produces the numbers.
//!
//! ```
//! use std::path::Path;
//! use weft_figures::{Figure, PAPERS, entries, select};
//!
//! let files = select(&["stellar-fig9".into()])?;
//! let figure = Figure::read(&files[0])?;
//! assert_eq!(figure.paper().map(|paper| paper.title), Some("STELLAR"));
//! assert!(!figure.experiment.claims.is_empty());
//! // The repository has the recorded result of its last run.
//! let root = Path::new("../..");
//! let entry = entries(root)?.into_iter().find(|entry| entry.figure.name == figure.name);
//! assert!(entry.is_some_and(|entry| entry.recorded.is_some()));
//! # assert_eq!(PAPERS.len(), 5);
//! # Ok::<(), anyhow::Error>(())
//! ```
#![forbid(unsafe_code)]

mod inventory;
pub mod library;
mod machine;
mod markdown;
mod page;
mod performance;
mod plot;
mod results;
mod run;
mod tables;
mod tally;

pub use inventory::{
    Figure, PAPERS, Paper, TOPICS, Topic, figure_files, files, find_folder, folder, select, stem,
};
pub use markdown::pages;
pub use page::{page, text};
pub use results::{Entry, Provenance, RESULTS, Recorded, Results, entries};
pub use run::Runner;
pub use tables::{claims, rows};
pub use tally::Tally;
