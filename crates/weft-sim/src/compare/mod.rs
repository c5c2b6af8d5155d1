//! Comparisons: several balancers on the same arrivals, at several loads, on several networks, with several seeds.
//!
//! A [`Plan`] defines the variation; its cells are all combinations, and each is run with each seed. The traffic
//! follows from the workloads, the network and the seed alone, so that cells that differ only in the balancer carry
//! the same flows.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use weft_units::Seed;

use crate::batch::{Job, run_each};
use crate::hooks::Hooks;
use crate::run::RunError;
use crate::scenario::{Scenario, ScenarioError, Variant};

mod balancer;
mod estimate;
pub mod frames;
mod metric;
mod outcome;
mod part;

pub use balancer::{UnknownBalancer, resolve};
pub use estimate::{CONFIDENCE, Estimate};
pub use metric::{METRICS, Metric, Show, Shown};
pub use outcome::{Bin, Row, Summary};
pub use part::{MergeError, Part, Shard};

/// The plan of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The scenario every run starts from.
    pub scenario: Table,
    /// The folder that the scenario's file names are relative to.
    #[serde(skip)]
    pub folder: PathBuf,
    /// The balancers; the others are compared with the first.
    pub variants: Vec<Variant>,
    /// Loads of the workloads that have one; an empty list leaves them unchanged.
    pub loads: Vec<f64>,
    /// Networks by name; an empty list keeps the scenario's.
    pub topologies: Vec<(String, Table)>,
    /// The seeds: each cell is run once with each.
    pub seeds: Vec<u64>,
    /// `true` if results keep every flow.
    pub flows: bool,
}

/// One combination of the varied settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The network, where several are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// The load, where it is varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// The balancer.
    pub balancer: String,
}

/// The reason why a comparison cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// Loads were given, but no workload has a load.
    #[error("no workload of the scenario has a load to vary; poisson has")]
    NoLoad,
    /// A combination is not a valid scenario.
    #[error("{cell}: {error}")]
    Scenario {
        /// The combination.
        cell: String,
        /// The error.
        error: ScenarioError,
    },
    /// A combination cannot be run.
    #[error("{cell}, seed {seed}: {error}")]
    Run {
        /// The combination.
        cell: String,
        /// The seed.
        seed: u64,
        /// The error.
        error: Box<RunError>,
    },
}

impl std::fmt::Display for Cell {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.balancer)?;
        if let Some(load) = self.load {
            write!(out, " at load {load}")?;
        }
        if let Some(topology) = &self.topology {
            write!(out, " on {topology}")?;
        }
        Ok(())
    }
}

impl Plan {
    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        let (loads, topologies) = (self.loads.len().max(1), self.topologies.len().max(1));
        self.variants.len() * loads * topologies * self.seeds.len()
    }

    /// Executes every run on up to `workers` threads; `progress` is called with the number of completed runs. Returns
    /// one row for each cell: networks, in them loads, in them balancers.
    ///
    /// # Errors
    /// A combination is not valid or cannot be run.
    pub fn run(
        &self,
        workers: usize,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<Row>, CompareError> {
        self.rows(self.run_shard(Shard::WHOLE, workers, &Hooks::default(), progress)?)
    }

    /// Executes the runs of one shard, with their owner's additions, and returns their summaries in order.
    ///
    /// # Errors
    /// A combination is not valid or cannot be run, or the owner cancelled the runs.
    pub fn run_shard(
        &self,
        shard: Shard,
        workers: usize,
        hooks: &Hooks,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<Summary>, CompareError> {
        let cells = self.cells()?;
        let runs = cells.iter().flat_map(|cell| self.seeds.iter().map(move |&seed| (cell, seed)));
        let runs = runs.enumerate().filter(|(index, _)| shard.has(*index));
        let runs: Vec<(&Cell, Job)> = runs
            .map(|(_, ((cell, scenario), seed))| {
                (cell, Job { scenario: scenario.clone(), seed: Seed(seed) })
            })
            .collect();
        let (cells, jobs): (Vec<&Cell>, Vec<Job>) = runs.into_iter().unzip();
        let keep = |index: usize, report| Summary::new(&jobs[index].scenario, report, self.flows);
        let results = run_each(&jobs, workers, hooks, progress, keep).into_iter();
        let named = results.zip(&jobs).zip(cells).map(|((result, job), cell)| {
            result.map_err(|error| CompareError::Run {
                cell: cell.to_string(),
                seed: job.seed.0,
                error: Box::new(error),
            })
        });
        named.collect()
    }

    /// Returns one row for each cell from the summaries of all runs, in order.
    ///
    /// # Errors
    /// A combination is not valid.
    pub fn rows(&self, runs: Vec<Summary>) -> Result<Vec<Row>, CompareError> {
        let cells = self.cells()?;
        let mut runs = runs.into_iter();
        let mut rows: Vec<Row> = Vec::with_capacity(cells.len());
        for (index, (cell, scenario)) in cells.into_iter().enumerate() {
            let of_cell = runs.by_ref().take(self.seeds.len()).collect();
            let first = (index / self.variants.len()) * self.variants.len();
            let against = rows.get(first).map(|row| row.runs.as_slice());
            rows.push(Row::new(cell, &scenario, of_cell, against));
        }
        Ok(rows)
    }

    /// Returns the whole comparison, whose rows are `rows`, except the flows.
    pub fn to_json(&self, rows: &[Row]) -> serde_json::Value {
        serde_json::json!({
            "scenario": self.scenario.to_string(),
            "seeds": self.seeds,
            "confidence": CONFIDENCE,
            "balancers": self.variants,
            "rows": rows,
        })
    }

    /// Returns every combination, balancers varying fastest.
    fn cells(&self) -> Result<Vec<(Cell, Scenario)>, CompareError> {
        let unchanged = [None];
        let topologies = self.topologies.iter().map(Some);
        let topologies: Vec<_> =
            if self.topologies.is_empty() { unchanged.to_vec() } else { topologies.collect() };
        let loads: Vec<Option<f64>> = self.loads.iter().copied().map(Some).collect();
        let loads = if loads.is_empty() { vec![None] } else { loads };
        let mut cells = Vec::new();
        for topology in &topologies {
            for &load in &loads {
                for variant in &self.variants {
                    let name = topology.map(|(name, _)| name.clone());
                    let cell = Cell { topology: name, load, balancer: variant.name.clone() };
                    let mut table = variant.apply(&self.scenario);
                    if let Some((_, topology)) = topology {
                        table.insert("topology".into(), Value::Table(topology.clone()));
                    }
                    if let Some(load) = load {
                        set_load(&mut table, load)?;
                    }
                    let scenario = scenario(table, &self.folder, &cell)?;
                    cells.push((cell, scenario));
                }
            }
        }
        Ok(cells)
    }
}

fn scenario(table: Table, folder: &Path, cell: &Cell) -> Result<Scenario, CompareError> {
    let scenario = Scenario::from_table(table, folder);
    let wrong = |error| CompareError::Scenario { cell: cell.to_string(), error };
    let mut scenario = scenario.map_err(wrong)?;
    // Slowdowns of all workloads together are computed from the flows.
    scenario.measure.flows = true;
    Ok(scenario)
}

/// Sets the load of every workload that has one.
fn set_load(scenario: &mut Table, load: f64) -> Result<(), CompareError> {
    let workloads = scenario.get_mut("workload").and_then(Value::as_array_mut);
    let tables = workloads.into_iter().flatten().filter_map(Value::as_table_mut);
    let mut loaded = false;
    for workload in tables {
        let is_poisson = workload.get("kind").and_then(Value::as_str) == Some("poisson");
        if is_poisson || workload.contains_key("load") {
            workload.insert("load".into(), load.into());
            loaded = true;
        }
    }
    if loaded { Ok(()) } else { Err(CompareError::NoLoad) }
}

#[cfg(test)]
mod tests;
