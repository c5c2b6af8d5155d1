//! `weft vpc changes`: lists the changes made by command since the configuration's file was last changed.

use std::path::Path;

use anyhow::{Result, bail};
use weft_report::terminal::Output;
use weft_report::{Column, Table};
use weft_vpc::Limit;
use weft_vswitch::config::{Network, Row};
use weft_vswitch::control::{Answer, Request, send_request};

use super::WRONG_KIND;

pub(super) fn run(control: &Path, output: Output) -> Result<()> {
    let changes = match send_request(control, &Request::Changes)? {
        Answer::Changes(changes) => changes,
        Answer::Refused(why) => bail!(why),
        _ => bail!(WRONG_KIND),
    };
    if changes.is_empty() && !output.is_json() {
        return output.raw("no changes: all is as the configuration's file says\n");
    }
    let mut table =
        Table::new(vec![Column::text("item", "item"), Column::text("change", "change")]);
    for change in &changes {
        let [item, change] = words(change);
        table.push(vec![item.as_str().into(), change.as_str().into()]);
    }
    output.table(&table)
}

/// Returns the item that a change is of, and the change.
fn words(change: &Request) -> [String; 2] {
    let rate = |limit: &Option<Limit>| {
        let rate = limit.and_then(|limit| limit.rate);
        rate.map_or_else(|| "none".to_owned(), |rate| rate.to_string())
    };
    match change {
        Request::SetNetwork { network: Network { vni, .. } } => {
            [format!("network {vni}"), "set".into()]
        }
        Request::Peer { vni, peer, remove } => [
            format!("network {vni}, peer {peer}"),
            if *remove { "removed" } else { "added" }.into(),
        ],
        Request::AddPort { port } => [format!("port {}", port.name), "added".into()],
        Request::RemovePort { name } => [format!("port {name}"), "removed".into()],
        Request::SetRoute { route } => {
            let to = match &route.row {
                Row::Machine { peer, .. } => format!("at {peer}"),
                Row::Prefix { via, .. } => format!("via {via}"),
            };
            [format!("network {}, route {}", route.vni, route.destination()), to]
        }
        Request::ForgetRoute { vni, destination } => {
            [format!("network {vni}, route {destination}"), "removed".into()]
        }
        Request::Limit { port, ingress, egress } => {
            let limits = format!("ingress {}, egress {}", rate(ingress), rate(egress));
            [format!("port {port}, limits"), limits]
        }
        Request::Acl { port, acl } => {
            let rules = acl.as_ref().map(|acl| format!("{} rules", acl.rules.len()));
            [format!("port {port}, access list"), rules.unwrap_or_else(|| "removed".into())]
        }
        other => ["daemon".into(), format!("{other:?}")],
    }
}
