//! The table of what fast-forward skipped.

use weft_report::{Cell, Column, Table};

use super::Report;

impl Report {
    /// Returns the skips by grain, the refusals by reason, and the errors against the exact run if there is one.
    pub(super) fn fast_forward_table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::text("fast-forward", "fast_forward"),
            Column::number("count", "count"),
            Column::number("us", "us"),
            Column::number("%", "percent"),
        ]);
        let Some(summary) = &self.fast_forward else { return table };
        let decimal = |value: f64| Cell::new(format!("{value:.3}"), value);
        let mut row = |name: String, count: Cell, micros: Cell, percent: Cell| {
            table.push(vec![name.into(), count, micros, percent]);
        };
        let of_run =
            |micros: f64| decimal(100.0 * micros / self.simulated_us.max(f64::MIN_POSITIVE));
        for (grain, count) in &summary.skips {
            let (name, micros) = (format!("skipped, unit {grain}"), count.skipped_us);
            row(name, count.skips.into(), decimal(micros), of_run(micros));
        }
        let micros = summary.uncertainty_us;
        row("spread of the measured units".into(), Cell::from(""), decimal(micros), of_run(micros));
        for (reason, &count) in &summary.refused {
            row(format!("refused: {reason}"), count.into(), Cell::from(""), Cell::from(""));
        }
        if let Some(errors) = &self.comparison {
            let percent = |share: f64| decimal(100.0 * share);
            let mut error = |name: &str, count: Cell, share: f64| {
                row(format!("error of {name}"), count, Cell::from(""), percent(share));
            };
            error("the end of the run", Cell::from(""), errors.end);
            for (name, of) in [("iterations", errors.iterations), ("flows", errors.flows)] {
                if of.compared > 0 {
                    error(&format!("{name}, mean"), of.compared.into(), of.mean);
                    error(&format!("{name}, maximum"), of.compared.into(), of.max);
                }
            }
            let name = "packet-hops of the exact run for each of this one";
            row(name.into(), decimal(errors.packet_hops), Cell::from(""), Cell::from(""));
        }
        table
    }
}
