//! The reader's choices: the view, its order, the filter, the pause. Keys change them; nothing here draws.

use std::cmp::Ordering;

use clap::ValueEnum;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;
use weft_report::{Cell, Table};

/// A table of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// A row for each path of a connection: round trip, losses
    #[default]
    Paths,
    /// A row for each pair that communicates: packets, retransmissions, waiting messages
    Pairs,
    /// A row for each queue: tenants' ports, channels, devices, links, network cards
    Queues,
    /// A row for each move of the route controller
    Moves,
}

impl View {
    pub(crate) const ALL: [Self; 4] = [Self::Paths, Self::Pairs, Self::Queues, Self::Moves];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Paths => "paths",
            Self::Pairs => "pairs",
            Self::Queues => "queues",
            Self::Moves => "moves",
        }
    }

    /// Returns the line in the place of an empty table.
    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::Paths => {
                "no path is in use: connections forget theirs after a tenth of a second of rest"
            }
            Self::Pairs => "no pair communicates over Weft here",
            Self::Queues => "no queue is known here",
            Self::Moves => "no move is in force",
        }
    }

    fn step(self, by: usize) -> Self {
        Self::ALL[(self as usize + by) % Self::ALL.len()]
    }
}

/// The number of rows that a page key moves by.
const PAGE_ROWS: usize = 10;

/// The reader's choices for a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen {
    pub(super) view: View,
    /// By view, the column that rows are sorted by; `None` for the order of the sources.
    sort: [Option<usize>; View::ALL.len()],
    /// The text that a row must contain, in any case.
    pub(super) filter: String,
    /// `true` while the filter is typed.
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    /// The index of the first row that is drawn.
    pub(super) first_row: usize,
    pub(super) is_done: bool,
    /// `true` if the reader asked to suspend the program.
    pub(super) suspends: bool,
}

impl Screen {
    /// Returns the screen that a page begins with.
    pub(crate) fn new(view: View, filter: String) -> Self {
        Self { view, filter, ..Self::default() }
    }

    /// Returns the column that a view is sorted by.
    pub(super) const fn sorted_by(&self, view: View) -> Option<usize> {
        self.sort[view as usize]
    }

    /// Handles a key. `table` is the table of the present view.
    pub(super) fn handle_key(&mut self, key: KeyEvent, table: &Table) {
        match key.code {
            KeyCode::Char('c') if is_control(key) => self.is_done = true,
            KeyCode::Char('z') if is_control(key) => self.suspends = true,
            code if self.is_typing => self.type_filter(code),
            KeyCode::Char('q') => self.is_done = true,
            KeyCode::Tab | KeyCode::Right => self.show(self.view.step(1)),
            KeyCode::BackTab | KeyCode::Left => self.show(self.view.step(View::ALL.len() - 1)),
            KeyCode::Char('s') => self.sort_by_next(table.columns().len()),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up => self.first_row = self.first_row.saturating_sub(1),
            KeyCode::Down => self.first_row += 1,
            KeyCode::PageUp => self.first_row = self.first_row.saturating_sub(PAGE_ROWS),
            KeyCode::PageDown => self.first_row += PAGE_ROWS,
            KeyCode::Home => self.first_row = 0,
            _ => {}
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.first_row = 0;
    }

    const fn show(&mut self, view: View) {
        self.view = view;
        self.first_row = 0;
    }

    fn sort_by_next(&mut self, columns: usize) {
        let column = &mut self.sort[self.view as usize];
        *column = match *column {
            None => Some(0),
            Some(last) if last + 1 >= columns => None,
            Some(column) => Some(column + 1),
        };
        self.first_row = 0;
    }

    /// Returns the rows that contain the filter's text, in the chosen order: names from a to z, numbers from the largest.
    pub(super) fn rows<'a>(&self, view: View, table: &'a Table) -> Vec<&'a Vec<Cell>> {
        let wanted = self.filter.to_lowercase();
        let has_it = |cell: &Cell| cell.text.to_lowercase().contains(&wanted);
        let mut rows: Vec<_> =
            table.rows().iter().filter(|row| wanted.is_empty() || row.iter().any(has_it)).collect();
        if let Some(column) = self.sorted_by(view) {
            rows.sort_by(|one, other| compare(&one[column].value, &other[column].value));
        }
        rows
    }
}

fn is_control(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Compares two values of a column. Those without a value are last.
fn compare(one: &Value, other: &Value) -> Ordering {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => return other.total_cmp(&one),
        (Some(_), None) => return Ordering::Less,
        (None, Some(_)) => return Ordering::Greater,
        (None, None) => {}
    }
    match (one.as_str(), other.as_str()) {
        (Some(one), Some(other)) => one.cmp(other),
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use weft_report::Column;

    use super::*;

    fn table() -> Table {
        let columns = vec![Column::text("peer", "peer"), Column::number("lost", "lost")];
        let mut table = Table::new(columns);
        table.push(vec!["10.0.0.2".into(), 7_u64.into()]);
        table.push(vec!["10.0.0.1".into(), Cell::missing()]);
        table.push(vec!["Spine".into(), 40_u64.into()]);
        table
    }

    fn press(screen: &mut Screen, keys: &str) {
        for letter in keys.chars() {
            let code = match letter {
                '\t' => KeyCode::Tab,
                '\n' => KeyCode::Enter,
                '<' => KeyCode::Left,
                '>' => KeyCode::Right,
                '^' => KeyCode::Esc,
                letter => KeyCode::Char(letter),
            };
            screen.handle_key(KeyEvent::new(code, KeyModifiers::NONE), &table());
        }
    }

    fn first_cells(screen: &Screen) -> Vec<String> {
        let table = table();
        screen.rows(screen.view, &table).iter().map(|row| row[0].text.clone()).collect()
    }

    #[test]
    fn tab_and_arrows_go_round_the_views() {
        let mut screen = Screen::default();
        press(&mut screen, "\t>");
        assert_eq!(screen.view, View::Queues);
        press(&mut screen, "<<<");
        assert_eq!(screen.view, View::Moves);
        press(&mut screen, "\t");
        assert_eq!(screen.view, View::Paths);
    }

    #[test]
    fn s_sorts_by_each_column_and_then_not_at_all() {
        let mut screen = Screen::default();
        press(&mut screen, "s");
        assert_eq!(first_cells(&screen), ["10.0.0.1", "10.0.0.2", "Spine"]);
        press(&mut screen, "s");
        assert_eq!(
            first_cells(&screen),
            ["Spine", "10.0.0.2", "10.0.0.1"],
            "most first, none last"
        );
        press(&mut screen, "s");
        assert_eq!(first_cells(&screen), ["10.0.0.2", "10.0.0.1", "Spine"]);
        press(&mut screen, "s\t");
        assert_eq!(screen.sorted_by(screen.view), None, "each view has its own order");
    }

    #[test]
    fn a_filter_is_typed_and_its_letters_are_no_commands() {
        let mut screen = Screen::default();
        press(&mut screen, "/sp");
        assert!(screen.is_typing && !screen.is_paused);
        assert_eq!(first_cells(&screen), ["Spine"]);
        press(&mut screen, "q\n");
        assert!(!screen.is_done && first_cells(&screen).is_empty());
        press(&mut screen, "^");
        assert_eq!(first_cells(&screen).len(), 3, "Esc removes it");
    }

    #[test]
    fn p_pauses_and_q_or_control_c_ends() {
        let mut screen = Screen::default();
        press(&mut screen, "p");
        assert!(screen.is_paused);
        press(&mut screen, "pq");
        assert!(!screen.is_paused && screen.is_done);
        let mut typing = Screen { is_typing: true, ..Screen::default() };
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        typing.handle_key(control_c, &table());
        assert!(typing.is_done, "also while a filter is typed");
    }
}
