//! A part of a comparison: the runs of one shard, as a file that another machine writes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{METRICS, Plan, Summary};
use crate::measure::Distribution;
use crate::report::FlowLine;

/// The version that the parts of one comparison must have in common.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One of equal shares of a comparison's runs, such as `2/4`: every fourth run, from the second on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    /// The shard's number, from one.
    pub number: usize,
    /// The number of shards.
    pub of: usize,
}

impl Shard {
    /// The shard that has all runs.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Returns `true` if the run at `index` belongs to the shard.
    pub fn has(self, index: usize) -> bool {
        index % self.of == self.number - 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').map(|(number, of)| (number.parse(), of.parse()));
        match parts {
            Some((Ok(number), Ok(of))) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err(format!("{text:?} is no shard, expected NUMBER/OF such as 2/4")),
        }
    }
}

/// The runs of one shard, with the whole plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    version: String,
    shard: Shard,
    plan: Plan,
    runs: Vec<SavedRun>,
}

/// The reason why parts do not make a comparison. Each names the part's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// The part is of another version, whose simulator may give other results.
    #[error("{file}: made by version {version}, expected {VERSION}")]
    Version {
        /// The part's file.
        file: String,
        /// Its version.
        version: String,
    },
    /// The part is of another comparison.
    #[error("{file}: its {what} is not that of {first}")]
    Other {
        /// The part's file.
        file: String,
        /// The field that differs.
        what: &'static str,
        /// The first part's file.
        first: String,
    },
    /// Two files have one shard.
    #[error("{file}: shard {shard} is also in {other}")]
    Duplicate {
        /// The part's file.
        file: String,
        /// Its shard.
        shard: Shard,
        /// The other file.
        other: String,
    },
    /// Shards are in no file.
    #[error("missing: shard {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Missing(Vec<Shard>),
    /// A part does not have the runs of its shard.
    #[error("{file}: not the runs of shard {shard}; it is damaged")]
    Runs {
        /// The part's file.
        file: String,
        /// Its shard.
        shard: Shard,
    },
}

/// A run's summary with its place among all runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedRun {
    index: usize,
    seed: u64,
    metrics: BTreeMap<String, f64>,
    bins: Vec<Distribution>,
    quantiles: Vec<f64>,
    flows: Vec<FlowLine>,
}

impl SavedRun {
    fn new(index: usize, run: Summary) -> Self {
        let Summary { seed, metrics, bins, quantiles, flows } = run;
        let metrics = metrics.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Self { index, seed, metrics, bins, quantiles, flows }
    }

    fn into_summary(self) -> Summary {
        let Self { seed, metrics, bins, quantiles, flows, .. } = self;
        let known = |metric: &super::Metric| Some((metric.key, *metrics.get(metric.key)?));
        let metrics = METRICS.iter().filter_map(known).collect();
        Summary { seed, metrics, bins, quantiles, flows }
    }
}

impl Part {
    /// Returns the part of a plan whose `runs` are those of `shard`, in order.
    pub fn new(plan: Plan, shard: Shard, runs: Vec<Summary>) -> Self {
        let indexes = (0..plan.runs()).filter(|&index| shard.has(index));
        let runs = indexes.zip(runs).map(|(index, run)| SavedRun::new(index, run)).collect();
        Self { version: VERSION.to_owned(), shard, plan, runs }
    }

    /// Returns the plan and all runs of the comparison whose parts these are, each with its file's name.
    ///
    /// # Errors
    /// A part is missing, there twice or damaged, or of another comparison or version.
    pub fn merge(parts: Vec<(String, Self)>) -> Result<(Plan, Vec<Summary>), MergeError> {
        let Some((first, start)) = parts.first().cloned() else {
            return Err(MergeError::Missing(vec![Shard::WHOLE]));
        };
        let mut files: BTreeMap<Shard, String> = BTreeMap::new();
        let mut runs = BTreeMap::new();
        for (file, part) in parts {
            part.check(&file, &start, &first)?;
            let shard = part.shard;
            if let Some(other) = files.insert(shard, file.clone()) {
                return Err(MergeError::Duplicate { file, shard, other });
            }
            runs.extend(part.runs.into_iter().map(|run| (run.index, run)));
        }
        let of = start.shard.of;
        let all = (1..=of).map(|number| Shard { number, of });
        let missing: Vec<Shard> = all.filter(|shard| !files.contains_key(shard)).collect();
        if !missing.is_empty() {
            return Err(MergeError::Missing(missing));
        }
        Ok((start.plan, runs.into_values().map(SavedRun::into_summary).collect()))
    }

    /// Checks a part in `file` by itself, and against the part `start` in the file `first`.
    fn check(&self, file: &str, start: &Self, first: &str) -> Result<(), MergeError> {
        let (file, first) = (file.to_owned(), first.to_owned());
        if self.version != VERSION {
            return Err(MergeError::Version { file, version: self.version.clone() });
        }
        let what = [
            ("scenario", self.plan.scenario == start.plan.scenario),
            ("list of balancers, loads, topologies or seeds", self.plan == start.plan),
            ("number of shards", self.shard.of == start.shard.of),
        ];
        if let Some((what, _)) = what.into_iter().find(|(_, same)| !same) {
            return Err(MergeError::Other { file, what, first });
        }
        let indexes = (0..self.plan.runs()).filter(|&index| self.shard.has(index));
        if !indexes.eq(self.runs.iter().map(|run| run.index)) {
            return Err(MergeError::Runs { file, shard: self.shard });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use crate::hooks::Hooks;

    fn parts(of: usize) -> Vec<(String, Part)> {
        let part = |number| {
            let shard = Shard { number, of };
            let runs = plan().run_shard(shard, 1, &Hooks::default(), &|_| {}).unwrap();
            let text = serde_json::to_string(&Part::new(plan(), shard, runs)).unwrap();
            (number.to_string(), serde_json::from_str(&text).unwrap())
        };
        (1..=of).map(part).collect()
    }

    #[test]
    fn merged_parts_are_the_whole_comparison_in_any_order() {
        let whole = serde_json::to_string(&plan().run(2, &|_| {}).unwrap()).unwrap();
        for of in [1, 3, 5] {
            let mut parts = parts(of);
            parts.reverse();
            let (merged, runs) = Part::merge(parts).unwrap();
            assert_eq!(serde_json::to_string(&merged.rows(runs).unwrap()).unwrap(), whole, "{of}");
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_named() {
        let good = parts(3);
        let error = |parts: &[(String, Part)]| Part::merge(parts.to_vec()).unwrap_err().to_string();
        assert_eq!(error(&good[1..2]), "missing: shard 1/3, 3/3");
        let twice = [good.clone(), vec![("again".into(), good[0].1.clone())]].concat();
        assert_eq!(error(&twice), "again: shard 1/3 is also in 1");
        let mut bad = good.clone();
        bad[2].1.version = "0.0.9".into();
        assert!(error(&bad).starts_with("3: made by version 0.0.9"), "{}", error(&bad));
        bad.clone_from(&good);
        bad[1].1.plan.scenario.insert("name".into(), "another".into());
        assert_eq!(error(&bad), "2: its scenario is not that of 1");
        bad.clone_from(&good);
        bad[1].1.plan.seeds.pop();
        assert!(error(&bad).starts_with("2: its list of balancers"), "{}", error(&bad));
        bad.clone_from(&good);
        bad[2].1.runs.pop();
        assert_eq!(error(&bad), "3: not the runs of shard 3/3; it is damaged");
    }

    #[test]
    fn a_shard_is_a_number_of_a_count() {
        assert_eq!("2/4".parse(), Ok(Shard { number: 2, of: 4 }));
        for wrong in ["", "0/3", "4/3", "1", "a/b", "1/0"] {
            let error = wrong.parse::<Shard>().unwrap_err();
            assert!(error.contains("expected NUMBER/OF"), "{error}");
        }
    }
}
