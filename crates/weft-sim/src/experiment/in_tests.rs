//! The part of a figure that every run of the tests repeats.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Axis, Experiment, ExperimentError, Row};

/// The extent of a figure that the tests repeat.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum InTests {
    /// All of the figure, or nothing.
    Whole(bool),
    /// The runs at these values of axes; axes that are not named have all of theirs.
    Part(BTreeMap<String, Vec<String>>),
}

impl Default for InTests {
    fn default() -> Self {
        Self::Whole(false)
    }
}

impl Experiment {
    /// Returns the experiment that tests run in place of this one: the runs of `in_tests`, with all seeds, and the
    /// claims that name no other run. Returns `None` if tests run nothing of it.
    pub fn in_tests(&self) -> Option<Self> {
        let InTests::Part(kept) = &self.in_tests else {
            return (self.in_tests == InTests::Whole(true)).then(|| self.clone());
        };
        let axes = self.axes.iter().map(|axis| match kept.get(&axis.name) {
            Some(labels) => axis.only(labels),
            None => axis.clone(),
        });
        let claims = self.claims.iter().filter(|claim| claim.is_within(kept));
        let (axes, claims) = (axes.collect(), claims.cloned().collect());
        Some(Self { axes, claims, ..self.clone() })
    }

    /// Returns the rows that tests repeat.
    pub fn rows_in_tests(&self, rows: &[Row]) -> Vec<Row> {
        let kept = match &self.in_tests {
            InTests::Whole(true) => &BTreeMap::new(),
            InTests::Whole(false) => return vec![],
            InTests::Part(kept) => kept,
        };
        let is_kept = |row: &&Row| {
            kept.iter().all(|(axis, labels)| row.at.get(axis).is_some_and(|at| labels.contains(at)))
        };
        rows.iter().filter(is_kept).cloned().collect()
    }

    /// Checks that the runs that tests repeat exist, and that a claim is about them.
    pub(super) fn check_in_tests(&self) -> Result<(), ExperimentError> {
        let InTests::Part(kept) = &self.in_tests else { return Ok(()) };
        for (name, labels) in kept {
            let axis = self.axes.iter().find(|axis| axis.name == *name);
            let known = axis.map(Axis::labels).unwrap_or_default();
            if labels.is_empty() || labels.iter().any(|label| !known.contains(label)) {
                let text = format!(
                    "in_tests: expected some of axis {name:?}: {known:?}, found {labels:?}"
                );
                return Err(ExperimentError::Source(text));
            }
        }
        if !self.claims.iter().any(|claim| claim.is_within(kept)) {
            let text = "in_tests: no claim is about these runs alone";
            return Err(ExperimentError::Source(text.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        title = "t"
        source = "s"
        paper = "p"
        differs = "d"
        scenario.transport.paths = 1
        axes = [
            { name = "policy", key = "transport.policy", values = ["single", "oblivious"] },
            { name = "paths", key = "transport.paths", values = [4, 16, 128], labels = ["few", "some", "many"] },
        ]
        measures = [{ name = "queue", value = "queues.0.mean" }]
        [in_tests]
        paths = ["few", "many"]
        [[claims]]
        text = "more paths, shorter queues"
        left = { at = { policy = "oblivious", paths = "many" }, measure = "queue" }
        is = "<"
        right = { at = { policy = "oblivious", paths = "few" }, measure = "queue" }
        [[claims]]
        text = "some are enough"
        left = { at = { policy = "oblivious", paths = "some" }, measure = "queue" }
        is = "<"
        right = 2
        [[claims]]
        text = "than few"
        left = { at = { policy = "oblivious", paths = "many" }, over = { paths = "some" }, measure = "queue" }
        is = "<"
        right = 2
        [[claims]]
        text = "never long"
        left = { measure = "queue", of = "max" }
        is = "<"
        right = 2
    "#;

    #[test]
    fn tests_run_a_part_with_the_claims_that_are_about_it() {
        let whole = Experiment::parse(TEXT).unwrap();
        let part = whole.in_tests().unwrap();
        let at = |point: &super::super::Point| {
            let paths = point.scenario["transport"]["paths"].as_integer();
            (point.at["policy"].clone(), point.at["paths"].clone(), paths)
        };
        let points: Vec<_> = part.points().unwrap().iter().map(at).collect();
        let expected = [("single", "few", 4), ("single", "many", 128)];
        let (first, rest) = points.split_at(2);
        for (got, (policy, paths, count)) in first.iter().zip(expected) {
            assert_eq!(*got, (policy.into(), paths.into(), Some(count)));
        }
        assert_eq!(rest.len(), 2);
        let claims: Vec<_> = part.claims.iter().map(|claim| claim.text.as_str()).collect();
        // The last claim names no run, so it is about the runs that remain.
        assert_eq!(claims, ["more paths, shorter queues", "never long"]);
    }

    #[test]
    fn the_published_rows_of_a_part_are_those_at_its_values() {
        let whole = Experiment::parse(TEXT).unwrap();
        let points = whole.points().unwrap();
        let rows: Vec<_> =
            points.into_iter().map(|point| Row { at: point.at, ..Row::default() }).collect();
        let at: Vec<_> =
            whole.rows_in_tests(&rows).into_iter().map(|row| row.at["paths"].clone()).collect();
        assert_eq!(at, ["few", "many", "few", "many"]);
        let all = Experiment { in_tests: InTests::Whole(true), ..whole.clone() };
        assert_eq!(all.rows_in_tests(&rows).len(), 6);
        assert_eq!(all.in_tests().unwrap().claims.len(), 4);
        let none = Experiment { in_tests: InTests::Whole(false), ..whole };
        assert!(none.rows_in_tests(&rows).is_empty() && none.in_tests().is_none());
    }

    #[test]
    fn a_part_without_runs_or_claims_is_refused() {
        let error = |from: &str, to: &str| {
            Experiment::parse(&TEXT.replace(from, to)).unwrap_err().to_string()
        };
        let unknown = error("paths = [\"few\", \"many\"]", "paths = [\"four\"]");
        assert!(
            unknown.starts_with("in_tests: expected some of axis \"paths\": [\"few\", \"some\"")
        );
        assert!(
            error("paths = [\"few\", \"many\"]", "path = [\"few\"]").contains("axis \"path\": []")
        );
        let alone = TEXT.replace("left = { measure", "left = { at = { paths = \"some\" }, measure");
        let alone = alone.replace("paths = [\"few\", \"many\"]", "paths = [\"many\"]");
        let error = Experiment::parse(&alone).unwrap_err().to_string();
        assert_eq!(error, "in_tests: no claim is about these runs alone");
    }
}
