//! A page on a terminal of any size; 80 columns and 24 lines are enough.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use weft_report::{Align, Cell as Value, Column};

use super::page::Page;
use super::screen::{Screen, View};

/// The largest number of lines for sources that did not answer.
const MAX_FAULTS: usize = 4;
/// The number of columns between two columns of the table.
const GAP: u16 = 1;
/// The smallest width of a column of names, to which it is narrowed before a column is left out.
const MIN_NAME: usize = 13;
/// The smallest width of a column of numbers: a column that changes its width with each sample is hard to read.
const MIN_NUMBER: usize = 6;

/// Draws a page. `None` is the time before the first sample.
pub(super) fn draw(frame: &mut Frame<'_>, page: Option<&Page>, screen: &mut Screen) {
    let faults = page.map(|page| fault_lines(&page.faults)).unwrap_or_default();
    let height = u16::try_from(faults.len()).unwrap_or(u16::MAX);
    let [head, middle, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(height),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(head_line(page, screen), head);
    let width = usize::from(middle.width);
    let faults: Vec<Line<'_>> = faults
        .iter()
        .map(|fault| Line::styled(crop(fault, width), Style::new().fg(Color::Yellow)))
        .collect();
    frame.render_widget(Paragraph::new(faults), middle);
    match page {
        Some(page) => draw_table(frame, page, screen, body),
        None => frame.render_widget(Paragraph::new("waiting for the first sample"), body),
    }
    frame.render_widget(foot_line(screen), foot);
}

/// Returns the lines of sources that did not answer; the last one counts those that have no line.
fn fault_lines(faults: &[String]) -> Vec<String> {
    if faults.len() <= MAX_FAULTS {
        return faults.to_vec();
    }
    let (shown, others) = faults.split_at(MAX_FAULTS - 1);
    let rest = format!("and {} more, which `weft top --once` prints", others.len());
    shown.iter().cloned().chain([rest]).collect()
}

/// Returns the views, each with its number of rows, and the pause.
fn head_line(page: Option<&Page>, screen: &Screen) -> Line<'static> {
    let mut spans = vec![Span::styled("weft top", Modifier::BOLD), Span::raw(" ")];
    for view in View::ALL {
        let count = page.map_or(0, |page| screen.rows(view, page.table(view)).len());
        let tab = format!(" {} {count} ", view.name());
        let style = if view == screen.view { Modifier::REVERSED } else { Modifier::empty() };
        spans.extend([Span::raw(" "), Span::styled(tab, style)]);
    }
    if screen.is_paused {
        spans.push(Span::styled("  paused", Style::new().fg(Color::Yellow)));
    }
    Line::from(spans)
}

/// Returns the keys, or the filter.
fn foot_line(screen: &Screen) -> Line<'static> {
    if screen.is_typing {
        return Line::raw(format!("/{}_  Enter keeps it, Esc removes it", screen.filter));
    }
    let filter = match &*screen.filter {
        "" => String::new(),
        filter => format!("  only /{filter} (Esc)"),
    };
    Line::raw(format!("q quit  tab view  s sort  / filter  p pause  ↑↓ rows{filter}"))
}

fn draw_table(frame: &mut Frame<'_>, page: &Page, screen: &mut Screen, area: Rect) {
    let view = screen.view;
    let table = page.table(view);
    let rows = screen.rows(view, table);
    let visible = usize::from(area.height).saturating_sub(1);
    let first = screen.first_row.min(rows.len().saturating_sub(visible));
    if rows.is_empty() {
        let hint = match table.is_empty() {
            true => view.hint().to_owned(),
            false => format!("no row contains {:?}", screen.filter),
        };
        screen.first_row = first;
        return frame.render_widget(Paragraph::new(hint), area);
    }
    let headings: Vec<String> = headings(table.columns(), screen.sorted_by(view));
    let widths = fit(&widths(table.columns(), &headings, table.rows()), area.width.into());
    let columns = || table.columns().iter().zip(&widths);
    let header = columns().zip(&headings).map(|((column, &width), heading)| {
        cell(heading, column.align, width).style(Modifier::BOLD)
    });
    let body = rows.iter().skip(first).take(visible).map(|row| {
        let cells =
            columns().zip(*row).map(|((column, &width), it)| cell(&it.text, column.align, width));
        Row::new(cells.collect::<Vec<_>>()).style(style_of(row))
    });
    let constraints =
        widths.iter().map(|&width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let drawn = Table::new(body.collect::<Vec<_>>(), constraints.collect::<Vec<_>>())
        .header(Row::new(header.collect::<Vec<_>>()))
        .column_spacing(GAP);
    frame.render_widget(drawn, area);
    screen.first_row = first;
}

/// Returns the headings, with a mark at the column that rows are sorted by.
fn headings(columns: &[Column], sorted_by: Option<usize>) -> Vec<String> {
    let marked = |(index, column): (usize, &Column)| match sorted_by == Some(index) {
        true => format!("{}▾", column.heading),
        false => column.heading.clone(),
    };
    columns.iter().enumerate().map(marked).collect()
}

/// Returns red for what is down.
fn style_of(row: &[Value]) -> Style {
    let is_down = row.iter().any(|cell| matches!(&*cell.text, "down" | "connecting"));
    if is_down { Style::new().fg(Color::Red) } else { Style::new() }
}

fn cell(text: &str, align: Align, width: usize) -> Cell<'static> {
    let alignment = match align {
        Align::Left => Alignment::Left,
        Align::Right => Alignment::Right,
    };
    Cell::from(Line::raw(crop(text, width)).alignment(alignment))
}

/// Shortens a text to `width` characters; the last one shows that it was longer.
fn crop(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).take(width).collect()
}

/// A column's width in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Width {
    natural: usize,
    /// `true` if the column may be narrowed.
    is_name: bool,
}

/// Returns the widths that all rows need.
fn widths(columns: &[Column], headings: &[String], rows: &[Vec<Value>]) -> Vec<Width> {
    let length = |text: &str| text.chars().count();
    let width = |(index, column): (usize, &Column)| {
        let is_name = column.align == Align::Left;
        let texts = rows.iter().map(|row| length(&row[index].text));
        let natural = texts.chain([length(&headings[index])]).max().unwrap_or(0);
        Width { natural: if is_name { natural } else { natural.max(MIN_NUMBER) }, is_name }
    };
    columns.iter().enumerate().map(width).collect()
}

/// Returns the widths of the columns that fit into `total` characters: the widest names are narrowed first, then the last
/// columns are left out.
fn fit(wanted: &[Width], total: usize) -> Vec<usize> {
    let gap = usize::from(GAP);
    let mut widths: Vec<Width> = wanted.to_vec();
    while widths.len() > 1 {
        let sum: usize = widths.iter().map(|width| width.natural + gap).sum::<usize>() - gap;
        let Some(surplus) = sum.checked_sub(total).filter(|surplus| *surplus > 0) else { break };
        let names = widths.iter_mut().filter(|width| width.is_name && width.natural > MIN_NAME);
        match names.max_by_key(|width| width.natural) {
            // One at a time, so that names of the same width are narrowed alike.
            Some(widest) => widest.natural -= 1,
            None => {
                let last = widths.pop();
                // What the column frees is given back to the names.
                let free = last.map_or(0, |width| width.natural + gap).saturating_sub(surplus);
                widen(&mut widths, wanted, free);
            }
        }
    }
    widths.iter().map(|width| width.natural.min(total)).collect()
}

/// Widens narrowed names by `free` characters together.
fn widen(widths: &mut [Width], wanted: &[Width], mut free: usize) {
    while free > 0 {
        let mut widened = false;
        for (width, wanted) in widths.iter_mut().zip(wanted) {
            if free > 0 && width.natural < wanted.natural {
                width.natural += 1;
                free -= 1;
                widened = true;
            }
        }
        if !widened {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::super::samples;
    use super::*;

    /// Returns the characters of a terminal of this size.
    fn drawn(page: Option<&Page>, screen: &mut Screen, (columns, lines): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| draw(frame, page, screen)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| -> String { (0..columns).map(|x| buffer[(x, y)].symbol()).collect() };
        (0..lines).map(|y| format!("{}\n", line(y).trim_end())).collect()
    }

    /// Compares with a file beside this one; `BLESS=1` rewrites the file.
    fn assert_golden(name: &str, got: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/golden");
        let file = folder.join(name);
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, got).unwrap();
        }
        let want = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(want, got, "{name}: BLESS=1 accepts the change");
    }

    fn page() -> Page {
        Page::of(Some(&samples::before()), &samples::now())
    }

    #[test]
    fn every_view_fits_a_terminal_of_80_by_24() {
        for view in View::ALL {
            let mut screen = Screen::new(view, String::new());
            assert_golden(
                &format!("{}.txt", view.name()),
                &drawn(Some(&page()), &mut screen, (80, 24)),
            );
        }
    }

    #[test]
    fn a_wide_terminal_has_all_columns_and_a_small_one_no_panic() {
        let mut screen = Screen::new(View::Pairs, String::new());
        assert_golden("pairs-wide.txt", &drawn(Some(&page()), &mut screen, (132, 12)));
        for size in [(1, 1), (5, 3), (20, 2), (40, 8)] {
            drawn(Some(&page()), &mut screen, size);
        }
    }

    #[test]
    fn daemons_that_do_not_answer_are_named_with_their_fix() {
        let mut screen = Screen::default();
        let page = Page::of(None, &samples::nobody(2));
        assert_golden("nobody.txt", &drawn(Some(&page), &mut screen, (80, 10)));
        let page = Page::of(None, &samples::nobody(9));
        let text = drawn(Some(&page), &mut screen, (80, 10));
        assert!(text.contains("and 8 more, which `weft top --once` prints"), "{text}");
        assert!(drawn(None, &mut screen, (80, 10)).contains("waiting for the first sample"));
    }

    #[test]
    fn sorted_filtered_and_paused_pages_say_so() {
        let mut screen = Screen::new(View::Paths, "10.0.0.2".into());
        let page = page();
        for code in "sssssp/".chars().map(KeyCode::Char) {
            let key = KeyEvent::new(code, KeyModifiers::NONE);
            screen.handle_key(key, page.table(View::Paths));
        }
        assert_golden("sorted.txt", &drawn(Some(&page), &mut screen, (80, 8)));
    }

    #[test]
    fn rows_scroll_to_the_last_one_and_no_further() {
        let page = page();
        let mut screen = Screen::new(View::Paths, String::new());
        screen.first_row = 1_000;
        let text = drawn(Some(&page), &mut screen, (80, 5));
        let rows = page.table(View::Paths).rows().len();
        assert_eq!(screen.first_row, rows - 2, "two rows are visible\n{text}");
    }

    #[test]
    fn names_are_narrowed_alike_before_columns_are_left_out() {
        let name = |natural| Width { natural, is_name: true };
        let number = |natural| Width { natural, is_name: false };
        assert_eq!(fit(&[name(20), number(6)], 27), [20, 6]);
        assert_eq!(fit(&[name(20), name(20), number(6)], 37), [15, 14, 6]);
        assert_eq!(fit(&[name(20), number(6), number(9)], 22), [15, 6], "the last one is left out");
        assert_eq!(fit(&[number(30)], 20), [20]);
    }
}
