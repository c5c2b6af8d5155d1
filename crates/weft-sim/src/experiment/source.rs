//! The source of an experiment's rows: the simulator, a bench, or none.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{Axis, Experiment, ExperimentError, Point, Row};

/// A program that measures a figure and prints its rows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bench {
    /// The command, run by a shell in the repository's root. It appends each row to the file that
    /// `WEFT_BENCH_JSON` names, as a JSON object on a line: `figure`, the axes and the measures.
    pub command: String,
    /// The environment it measures: real packets between namespaces, one host's memory, a model.
    pub on: String,
    /// The name of the figure whose rows this experiment reads; if empty, the experiment's own.
    #[serde(default)]
    pub rows: String,
    /// `true` if it creates network namespaces.
    #[serde(default)]
    pub root: bool,
}

/// A figure that cannot be measured here.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// The hardware, traces or production systems it needs.
    pub needs: String,
    /// The test, bench or page of this repository that comes nearest.
    pub stands_in: String,
}

/// A number from the paper.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PaperValue {
    /// Axis name to value of the rows beside which it is drawn.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
    /// The measure it is drawn beside.
    pub measure: String,
    /// The number, in the measure's unit.
    pub value: f64,
    /// The place in the paper.
    #[serde(default)]
    pub place: String,
}

/// The source of rows.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The simulator runs every point.
    Simulated,
    /// A program measures them.
    Bench(&'a Bench),
    /// The figure cannot be measured here.
    Missing(&'a Missing),
}

impl Experiment {
    /// Returns the source of this experiment's rows.
    pub fn source(&self) -> Source<'_> {
        match (&self.bench, &self.missing) {
            (Some(bench), _) => Source::Bench(bench),
            (_, Some(missing)) => Source::Missing(missing),
            (None, None) => Source::Simulated,
        }
    }

    /// Checks that there is exactly one source, and that the rest of the file fits it.
    pub(super) fn check(&self) -> Result<(), ExperimentError> {
        let sources = [!self.scenario.is_empty(), self.bench.is_some(), self.missing.is_some()];
        if sources.iter().filter(|&&has| has).count() != 1 {
            let text = "expected one of [scenario], [bench] and [missing]";
            return Err(ExperimentError::Source(text.into()));
        }
        let simulated = matches!(self.source(), Source::Simulated);
        if let Some(axis) = self.axes.iter().find(|axis| axis.key.is_empty() == simulated) {
            let wants = if simulated { "needs a key" } else { "of a bench has no key" };
            return Err(ExperimentError::Source(format!("axis {:?} {wants}", axis.name)));
        }
        if self.measures.is_empty() == self.missing.is_none() {
            let text = "expected measures, unless the figure is missing";
            return Err(ExperimentError::Source(text.into()));
        }
        if self.differs.is_empty() == self.missing.is_none() {
            let text = "expected `differs`, unless the figure is missing";
            return Err(ExperimentError::Source(text.into()));
        }
        self.check_in_tests()?;
        self.values.iter().try_for_each(|value| self.check_value(value))
    }

    fn check_value(&self, value: &PaperValue) -> Result<(), ExperimentError> {
        let is_measure = self.measures.iter().any(|measure| measure.name == value.measure);
        let is_axis = |name: &String| self.axes.iter().any(|axis| axis.name == *name);
        if is_measure && value.at.keys().all(is_axis) {
            return Ok(());
        }
        let text =
            format!("values: no measure {:?} with axes {:?}", value.measure, value.at.keys());
        Err(ExperimentError::Source(text))
    }

    /// Reads the measures from a bench's rows, in the order of their first appearance. Rows with the same axis values
    /// are rounds of one measurement, and are treated as seeds are. Rows with values that an axis does not list are
    /// left out; an axis without a list has all.
    ///
    /// # Errors
    /// A row lacks an axis or a measure.
    pub fn measure_rows(&self, rows: &[Value]) -> Result<Vec<Row>, ExperimentError> {
        let mut points: Vec<(Point, Vec<Value>)> = vec![];
        for row in rows {
            let at = self.axes.iter().map(|axis| axis.of_row(row));
            let at = at.collect::<Result<BTreeMap<_, _>, _>>()?;
            if !self.axes.iter().all(|axis| axis.keeps(&at[&axis.name])) {
                continue;
            }
            match points.iter_mut().find(|(point, _)| point.at == at) {
                Some((_, rounds)) => rounds.push(row.clone()),
                None => {
                    points.push((Point { at, scenario: toml::Table::new() }, vec![row.clone()]))
                }
            }
        }
        points.iter().map(|(point, rounds)| self.measure(point, rounds)).collect()
    }
}

impl Axis {
    /// Returns the axis's name and its value in a row.
    fn of_row(&self, row: &Value) -> Result<(String, String), ExperimentError> {
        let value = match row.get(&self.name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => {
                let axis = self.name.clone();
                return Err(ExperimentError::Axis { axis, row: row.to_string() });
            }
        };
        Ok((self.name.clone(), value))
    }

    /// Returns `true` if the axis lists this value, or none.
    fn keeps(&self, value: &str) -> bool {
        self.values.is_empty() || self.labels().iter().any(|label| label == value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BENCH: &str = r#"
        title = "t"
        source = "s"
        paper = "p"
        differs = "d"
        bench = { command = "true", on = "a model" }
        axes = [{ name = "way" }, { name = "servers" }]
        measures = [{ name = "rate", value = "rate" }]
        values = [{ at = { way = "a" }, measure = "rate", value = 3.0, place = "figure 1" }]
        here = "{rate; way = a} beside {rate; way = b}, {rate; way = c}, {rate}"
    "#;

    fn rows() -> Vec<Value> {
        let row = |way: &str, rate: f64| json!({ "way": way, "servers": 8, "rate": rate });
        vec![row("a", 1.0), row("b", 200.0), row("a", 2.0)]
    }

    #[test]
    fn a_benchs_rows_with_equal_axis_values_are_rounds() {
        let experiment = Experiment::parse(BENCH).unwrap();
        let rows = experiment.measure_rows(&rows()).unwrap();
        let got: Vec<_> = rows.iter().map(|row| (&*row.at["way"], row.measured["rate"])).collect();
        assert_eq!(got, [("a", 1.5), ("b", 200.0)]);
        assert_eq!(rows[0].at["servers"], "8");
        assert!(rows[0].spread.contains_key("rate") && !rows[1].spread.contains_key("rate"));
        let error = experiment.measure_rows(&[json!({ "way": "a", "rate": 1 })]).unwrap_err();
        assert!(error.to_string().starts_with("axis \"servers\": a row of the bench has none"));
        let error = experiment.measure_rows(&[json!({ "way": "a", "servers": 8 })]).unwrap_err();
        assert!(error.to_string().starts_with("measure \"rate\""), "{error}");
    }

    #[test]
    fn an_axis_of_a_bench_keeps_the_values_that_it_lists() {
        let listed = BENCH.replace("{ name = \"way\" }", "{ name = \"way\", values = [\"b\"] }");
        let experiment = Experiment::parse(&listed).unwrap();
        let rows = experiment.measure_rows(&rows()).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((&*rows[0].at["way"], rows[0].measured["rate"]), ("b", 200.0));
    }

    #[test]
    fn a_row_may_lack_only_an_optional_measure() {
        let optional = BENCH.replace(
            "value = \"rate\" }]",
            "value = \"rate\" }, { name = \"of a\", value = \"delay\", optional = true, over = { way = \"a\" } }]",
        );
        let experiment = Experiment::parse(&optional).unwrap();
        let row =
            |way: &str, delay: f64| json!({ "way": way, "servers": 8, "rate": 1, "delay": delay });
        let without = json!({ "way": "c", "servers": 8, "rate": 1 });
        let rows = experiment.measure_rows(&[row("a", 2.0), row("b", 3.0), without]).unwrap();
        let rows = experiment.evaluate(rows).unwrap().rows;
        let got: Vec<_> = rows.iter().map(|row| row.measured.get("of a").copied()).collect();
        assert_eq!(got, [Some(1.0), Some(1.5), None]);
        let error = experiment.evaluate(rows[1..].to_vec()).unwrap_err().to_string();
        assert!(error.contains("a run with way = a"), "{error}");
    }

    #[test]
    fn a_sentence_has_its_numbers_from_the_rows() {
        let experiment = Experiment::parse(BENCH).unwrap();
        let rows = experiment.measure_rows(&rows()).unwrap();
        let error = experiment.summary(&rows).unwrap_err().to_string();
        assert!(error.contains("{rate; way = c}"), "{error}");
        let here = experiment.here.replace(", {rate; way = c}, {rate}", "");
        let experiment = Experiment { here, ..experiment };
        assert_eq!(experiment.summary(&rows).unwrap(), "1.5 beside 200");

        let here = r#"{rate; way = "a, b", "servers" = 8}"#.to_owned();
        let rows = experiment.measure_rows(&[json!({ "way": "a, b", "servers": 8, "rate": 7 })]);
        let experiment = Experiment { here, ..experiment };
        assert_eq!(experiment.summary(&rows.unwrap()).unwrap(), "7");
    }

    #[test]
    fn a_file_has_one_source_and_settings_that_fit_it() {
        let error = |text: &str| Experiment::parse(text).unwrap_err().to_string();
        let two = BENCH.replace("title", "scenario.name = \"n\"\n title");
        assert_eq!(error(&two), "expected one of [scenario], [bench] and [missing]");
        let key = BENCH.replace("name = \"way\"", "name = \"way\", key = \"x\"");
        assert_eq!(error(&key), "axis \"way\" of a bench has no key");
        let unknown = BENCH.replace("at = { way", "at = { lay");
        assert!(error(&unknown).starts_with("values: no measure \"rate\" with axes"));
        let missing = r#"
            title = "t"
            source = "s"
            paper = "p"
            missing = { needs = "a GPU", stands_in = "a model" }
        "#;
        let missing = Experiment::parse(missing).unwrap();
        assert!(matches!(missing.source(), Source::Missing(_)));
    }
}
