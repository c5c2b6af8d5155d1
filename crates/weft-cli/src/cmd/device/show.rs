//! The device's state as tables and JSON.

use anyhow::Result;
use serde_json::{Value, json};
use weft_report::terminal::{Output, render};
use weft_report::{Cell, Column, Table};
use weft_units::ByteCount;
use weft_verbs::{Amounts, DeviceState};

/// Returns each limited resource by name.
fn amounts(of: &Amounts) -> [(&'static str, u32); 6] {
    [
        ("processes", of.processes),
        ("domains", of.domains),
        ("regions", of.regions),
        ("completion_queues", of.completion_queues),
        ("shared_receive_queues", of.shared_receive_queues),
        ("queue_pairs", of.queue_pairs),
    ]
}

/// Returns rows of name and value as one object.
pub(super) fn rows(of: &[(String, String)]) -> Value {
    of.iter().map(|(name, value)| (name.replace(' ', "_"), Value::from(value.clone()))).collect()
}

/// Returns the same rows as text, under a heading.
pub(super) fn table(heading: &'static str, of: &[(String, String)]) -> String {
    let mut table = Table::new(vec![Column::text(heading, "name"), Column::text("", "value")]);
    let cell = |text: &String| Cell::new(text.clone(), text.clone());
    of.iter().for_each(|(name, value)| table.push(vec![cell(name), cell(value)]));
    render(&table)
}

fn describe(state: &DeviceState) -> Value {
    let object = |of| {
        Value::Object(
            amounts(of).map(|(name, count)| (name.to_owned(), count.into())).into_iter().collect(),
        )
    };
    let mut limits = object(&state.limits.objects);
    limits["memory"] = state.limits.memory.into();
    limits["messages_per_second"] = state.limits.messages_per_second.into();
    let mut used = object(&state.used);
    used["memory"] = state.memory.into();
    let counters = state.counters.named().map(|(name, count)| (name.to_owned(), count.into()));
    json!({
        "name": state.name,
        "owner": state.owner,
        "limits": limits,
        "used": used,
        "counters": Value::Object(counters.into_iter().collect()),
        "processes": state.processes,
        "transport": rows(&state.transport),
        "daemon": rows(&state.daemon),
    })
}

pub(super) fn list(states: &[DeviceState], output: Output) -> Result<()> {
    let all: Vec<Value> = states.iter().map(describe).collect();
    output.value(&all, || {
        let headings =
            ["owner", "processes", "queue pairs", "of", "regions", "of", "posted", "failed"];
        let keys = [
            "owner",
            "processes",
            "queue_pairs",
            "most_queue_pairs",
            "regions",
            "most_regions",
            "requests_posted",
            "requests_failed",
        ];
        let numbers =
            headings.into_iter().zip(keys).map(|(heading, key)| Column::number(heading, key));
        let mut table =
            Table::new([Column::text("device", "name")].into_iter().chain(numbers).collect());
        for DeviceState { name, owner, limits, used, counters, .. } in states {
            let numbers = [
                *owner,
                used.processes,
                used.queue_pairs,
                limits.objects.queue_pairs,
                used.regions,
                limits.objects.regions,
            ];
            let counted = [counters.requests_posted, counters.requests_failed];
            let numbers = numbers.into_iter().map(u64::from).chain(counted);
            let numbers = numbers.map(|number| Cell::new(number.to_string(), number));
            table
                .push([Cell::new(name.clone(), name.clone())].into_iter().chain(numbers).collect());
        }
        render(&table)
    })
}

pub(super) fn one(state: &DeviceState, output: Output) -> Result<()> {
    output.value(&describe(state), || {
        let mut table = Table::new(vec![
            Column::text("", "what"),
            Column::number("has", "used"),
            Column::number("may have", "limit"),
        ]);
        for ((name, used), (_, limit)) in
            amounts(&state.used).into_iter().zip(amounts(&state.limits.objects))
        {
            let name = name.replace('_', " ");
            table.push(vec![
                Cell::new(name.clone(), name),
                Cell::new(used.to_string(), used),
                Cell::new(limit.to_string(), limit),
            ]);
        }
        let limit = state.limits.memory;
        table.push(vec![
            Cell::new("memory", "memory"),
            Cell::new(ByteCount(state.memory).to_string(), state.memory),
            Cell::new(limit.map_or_else(|| "any".into(), |it| ByteCount(it).to_string()), limit),
        ]);
        let counted = state.counters.named();
        let mut counted: Vec<(String, String)> =
            counted.map(|(name, count)| (name.replace('_', " "), count.to_string())).into();
        let rate = state.limits.messages_per_second;
        let rate = rate.map_or_else(|| "any number".into(), |rate| rate.to_string());
        counted.insert(0, ("messages per second, at most".into(), rate));
        let counted = self::table("messages", &counted);
        let processes: Vec<_> = state.processes.iter().map(u32::to_string).collect();
        let users = if processes.is_empty() { "none".into() } else { processes.join(", ") };
        let (amounts, transport) = (render(&table), self::table("transport", &state.transport));
        let daemon = self::table("daemon", &state.daemon);
        format!(
            "{} of user {}, processes: {users}\n{amounts}\n{counted}\n{transport}\n{daemon}",
            state.name, state.owner
        )
    })
}
