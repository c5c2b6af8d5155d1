//! Reads the inputs of other simulators, and traces of real jobs.
//!
//! A reader streams its file into a [`Graph`], which the `graph` workload runs. It counts what it takes and what it leaves
//! out, with the reason, so that nothing is lost without a word. An error names the file, the line, byte or node, and the
//! expected content. Input may be compressed by gzip; the memory that a graph needs is estimated while it is read, and
//! a graph that does not fit is refused then. Nothing here knows of the simulated network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::Graph;

pub mod chakra;
mod error;
mod format;
pub mod goal;
mod goal_binary;
pub mod htsim;
mod protobuf;
pub mod simai;
mod source;

pub use error::ImportError;
pub use format::{Format, Kind, recognise};
pub use source::Source;

/// The settings of readers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The unit of `start` in a connection matrix of htsim.
    pub start_unit: StartUnit,
    /// The GPU whose times replace the recorded ones of a Chakra trace.
    pub roofline: Option<Roofline>,
    /// Number of ranks, for a workload of SimAI or ASTRA-sim that does not say it.
    pub ranks: Option<u32>,
    /// The memory that a graph may use, bytes.
    pub memory: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { start_unit: StartUnit::default(), roofline: None, ranks: None, memory: u64::MAX }
    }
}

/// The unit of `start` in a connection matrix. Its programs differ: `htsim_uec`, EQDS and RoCE multiply the number by a
/// microsecond, NDP takes it as picoseconds, which is what the generators' comments say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StartUnit {
    /// Microseconds.
    #[default]
    #[serde(rename = "us")]
    Microseconds,
    /// Picoseconds.
    #[serde(rename = "ps")]
    Picoseconds,
}

/// A GPU that computes as fast as its arithmetic or its memory allows (Williams et al., Roofline, CACM 2009).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Roofline {
    /// The arithmetic, 10^12 operations per second.
    pub tflops: f64,
    /// The bandwidth of its memory, 10^9 bytes per second.
    pub memory_gbps: f64,
}

impl Roofline {
    /// Checks that both numbers are above zero; returns the key and the value of one that is not.
    ///
    /// # Errors
    /// As above.
    pub fn check(&self) -> Result<(), (&'static str, f64)> {
        let values = [("tflops", self.tflops), ("memory_gbps", self.memory_gbps)];
        let wrong = values.into_iter().find(|(_, value)| !(1e-9..=1e12).contains(value));
        wrong.map_or(Ok(()), Err)
    }

    /// Returns the time of a computation, seconds.
    pub fn seconds(&self, operations: f64, bytes: f64) -> f64 {
        (operations / (self.tflops * 1e12)).max(bytes / (self.memory_gbps * 1e9))
    }
}

/// An account of a file: the parts that its reader took, and those that it left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The format.
    pub format: Format,
    /// The numbers of things taken, by kind.
    pub taken: BTreeMap<String, u64>,
    /// The numbers of things left out, by kind with the reason.
    pub left: BTreeMap<String, u64>,
    /// Remarks on how the file was understood.
    pub notes: Vec<String>,
}

impl Summary {
    /// Returns the summary of an empty file.
    pub const fn new(format: Format) -> Self {
        Self { format, taken: BTreeMap::new(), left: BTreeMap::new(), notes: Vec::new() }
    }

    /// Counts a thing that is taken.
    pub(crate) fn take(&mut self, kind: &str) {
        count(&mut self.taken, kind);
    }

    /// Counts a thing that is left out.
    pub(crate) fn leave(&mut self, kind: &str) {
        count(&mut self.left, kind);
    }
}

/// Number of kinds that a summary tells apart; a damaged file could have as many as it has bytes.
const MAX_KINDS: usize = 64;

fn count(counts: &mut BTreeMap<String, u64>, kind: &str) {
    if let Some(count) = counts.get_mut(kind) {
        *count += 1;
    } else {
        let kind = if counts.len() < MAX_KINDS { kind } else { "others" };
        *counts.entry(kind.into()).or_default() += 1;
    }
}

/// A graph with the account of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The graph.
    pub graph: Graph,
    /// The account.
    pub summary: Summary,
}

/// Reads a file into a graph; `format` is recognised if it is `None`. Of a Chakra trace, reads the files of all ranks.
///
/// # Errors
/// The file cannot be read, its format is unknown or has no graph, or it is malformed.
pub fn graph(
    file: &Path,
    format: Option<Format>,
    options: &Options,
) -> Result<Import, ImportError> {
    let format = match format {
        Some(format) => format,
        None => match recognise(file)? {
            Kind::Graph(format) => format,
            other => {
                let message = format!("it is {}, not a graph", other.name());
                return Err(ImportError::new(file, message));
            }
        },
    };
    if format == Format::Chakra {
        return chakra::read_ranks(file, options);
    }
    let source = Source::open(file)?;
    parse(source, format, options)
}

/// Reads a single file's content into a graph. A Chakra trace is one of a single rank.
///
/// # Errors
/// The content is malformed.
pub fn parse(source: Source<'_>, format: Format, options: &Options) -> Result<Import, ImportError> {
    match format {
        Format::Htsim => htsim::read(source, options),
        Format::Goal => goal::read(source, options),
        Format::GoalBinary => goal_binary::read(source, options),
        Format::Simai => simai::read(source, options),
        Format::Chakra => chakra::read(vec![source], None, options),
    }
}

/// Returns the rest of a path after its folder, for texts.
fn file_name(file: &Path) -> PathBuf {
    file.file_name().map_or_else(|| file.into(), PathBuf::from)
}
