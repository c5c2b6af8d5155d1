//! A page: the tables of two samples, as text, as JSON, or for the terminal.

use serde_json::{Map, Value, json};
use weft_report::{Cell, Table};

use super::sample::Sample;
use super::screen::{Screen, View};
use super::tables;

/// The tables of two samples, and the sources that did not answer.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// A line for each source that did not answer.
    pub(super) faults: Vec<String>,
    tables: [Table; View::ALL.len()],
}

impl Page {
    /// Returns the page of a sample; rates are since the sample before.
    pub(crate) fn of(before: Option<&Sample>, now: &Sample) -> Self {
        let tables = View::ALL.map(|view| match view {
            View::Paths => tables::paths(before, now),
            View::Pairs => tables::pairs(before, now),
            View::Queues => tables::queues(before, now),
            View::Moves => tables::moves(now),
        });
        Self { faults: now.faults(), tables }
    }

    /// Returns the table of a view.
    pub(super) fn table(&self, view: View) -> &Table {
        &self.tables[view as usize]
    }

    /// Returns the tables of these views as text, in the rows and the order that the reader chose.
    pub(crate) fn to_text(&self, views: &[View], screen: &Screen) -> String {
        let mut text = String::new();
        for fault in &self.faults {
            text += &format!("{fault}\n");
        }
        for &view in views {
            let table = self.chosen(view, screen);
            let body =
                if table.is_empty() { format!("{}\n", view.hint()) } else { table.to_string() };
            let gap = if text.is_empty() { "" } else { "\n" };
            text += &format!("{gap}{}\n{body}", view.name());
        }
        text
    }

    /// Returns the tables of these views and the faults.
    pub(crate) fn to_json(&self, views: &[View], screen: &Screen) -> Value {
        let tables =
            views.iter().map(|&view| (view.name().to_owned(), self.chosen(view, screen).to_json()));
        let faults = ("faults".to_owned(), json!(self.faults));
        Value::Object(std::iter::once(faults).chain(tables).collect::<Map<_, _>>())
    }

    fn chosen(&self, view: View, screen: &Screen) -> Table {
        let table = self.table(view);
        let mut chosen = Table::new(table.columns().to_vec());
        let rows: Vec<Vec<Cell>> = screen.rows(view, table).into_iter().cloned().collect();
        rows.into_iter().for_each(|row| chosen.push(row));
        chosen
    }
}
