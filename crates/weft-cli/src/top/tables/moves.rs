//! Moves of the route controller: those in force or in progress, and those that it does not try again for a while.

use weft_report::{Cell, Column, Table};
use weft_steer::View;

use super::super::sample::{Sample, Source};
use super::cells::time;
use crate::stat::duration;

/// Returns a row for each move, the newest first, then one for each barred move.
pub(crate) fn moves(now: &Sample) -> Table {
    let mut table = Table::new(vec![
        Column::text("router", "router"),
        Column::text("destination", "destination"),
        Column::text("from", "from"),
        Column::text("to", "to"),
        Column::number("flows", "flows"),
        Column::text("stage", "stage"),
        Column::number("age", "age_ns"),
        Column::text("reason", "reason"),
    ]);
    if let Some(view) = now.controller.as_ref().and_then(Source::value) {
        of_controller(view, &mut table);
    }
    table
}

fn of_controller(view: &View, table: &mut Table) {
    let mut moves: Vec<_> = view.moves.iter().collect();
    moves.sort_by_key(|it| std::cmp::Reverse(it.decided));
    for it in moves {
        table.push(vec![
            it.router.clone().into(),
            it.destination.clone().into(),
            it.from.clone().into(),
            it.to.join(", ").into(),
            it.flows.into(),
            it.stage.clone().into(),
            time(Some(view.at.saturating_sub(it.decided))),
            it.reason.clone().into(),
        ]);
    }
    for it in &view.barred {
        let left = duration(it.until.saturating_sub(view.at));
        table.push(vec![
            it.router.clone().into(),
            it.destination.clone().into(),
            "–".into(),
            it.to.join(", ").into(),
            Cell::missing(),
            "barred".into(),
            Cell::missing(),
            format!("not tried again for {left}").into(),
        ]);
    }
}
