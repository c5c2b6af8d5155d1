//! Connection matrices of htsim (`.cm`) as uet-htsim's `ConnectionMatrix::load` reads them.
//!
//! ```text
//! Nodes 16
//! Connections 240
//! Triggers 224
//! 2->11 id 1 start 0 size 2000000 send_done_trigger 1
//! 2->4 id 2 trigger 1 size 2000000
//! trigger id 1 oneshot
//! ```
//!
//! A flow starts at its time or when its trigger fires. A `oneshot` trigger fires all its flows, a `barrier` does so at
//! its last activation, and a `multishot` one flow for each activation. A flow activates a trigger when its sender
//! (`send_done_trigger`) or its receiver (`recv_done_trigger`) has all of it.

use std::collections::BTreeMap;

use super::error::Place;
use super::source::Source;
use super::{Format, Import, ImportError, Options, StartUnit, Summary};
use crate::graph::{GraphBuilder, GraphError, Op, When};
use crate::time::SimSpan;

/// The form of a flow's line, for errors.
const FLOW: &str = "src->dst [id k] [msg m] start x | trigger t, size bytes [prio p] \
                    [send_done_trigger t] [recv_done_trigger t]";
/// The form of a trigger's line, for errors.
const TRIGGER: &str = "trigger id t oneshot | multishot | barrier count n";

/// Reads a connection matrix.
///
/// # Errors
/// A line is malformed, or a flow would never start.
pub fn read(mut source: Source<'_>, options: &Options) -> Result<Import, ImportError> {
    let mut matrix = Matrix::new(options);
    let mut line = String::new();
    while source.next_line(&mut line)? {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            [word, ..] if word.starts_with('#') => {}
            [key @ ("Nodes" | "Connections" | "Triggers" | "Failures"), count] => {
                matrix.header(key, count, &source)?;
            }
            ["trigger", fields @ ..] => matrix.trigger(fields, &source)?,
            ["failure", ..] => {
                matrix.failures += 1;
                matrix.summary.leave(
                    "failures (they name links of htsim's fat tree; write each as a [[fault]])",
                );
            }
            [pair, fields @ ..] => matrix.flow(pair, fields, &source)?,
        }
    }
    matrix.finish(&source)
}

/// A trigger with the flows around it.
#[derive(Debug, Default)]
struct Trigger {
    kind: Option<Firing>,
    line: u32,
    /// The flows that activate it.
    before: Vec<(u32, When)>,
    /// The flows that it starts, in order of the file.
    after: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Firing {
    OneShot,
    MultiShot,
    Barrier(usize),
}

/// The matrix so far.
struct Matrix {
    unit: StartUnit,
    memory: u64,
    builder: Option<GraphBuilder>,
    triggers: BTreeMap<u32, Trigger>,
    announced: BTreeMap<&'static str, (usize, u64)>,
    flows: u64,
    failures: u64,
    /// The last start, picoseconds.
    last_start: u64,
    summary: Summary,
}

/// The fields of a flow.
#[derive(Default)]
struct Flow {
    /// The start, picoseconds.
    start: Option<u64>,
    trigger: Option<u32>,
    bytes: Option<u64>,
    activates: Vec<(u32, When)>,
}

impl Matrix {
    fn new(options: &Options) -> Self {
        Self {
            unit: options.start_unit,
            memory: options.memory,
            builder: None,
            triggers: BTreeMap::new(),
            announced: BTreeMap::new(),
            flows: 0,
            failures: 0,
            last_start: 0,
            summary: Summary::new(Format::Htsim),
        }
    }

    fn header(&mut self, key: &str, count: &str, source: &Source<'_>) -> Result<(), ImportError> {
        let number: Option<u64> = count.parse().ok();
        let number = number.ok_or_else(|| source.line_error("a number", count))?;
        if key == "Nodes" {
            if self.builder.is_some() {
                return Err(source.line_error("\"Nodes n\" once", count));
            }
            let nodes = u32::try_from(number).ok().filter(|&nodes| nodes > 0);
            let nodes = nodes.ok_or_else(|| source.line_error("a number of nodes", count))?;
            self.builder = Some(GraphBuilder::new(nodes, self.memory));
            return Ok(());
        }
        let keys = ["Connections", "Triggers", "Failures"];
        let key = keys.into_iter().find(|known| *known == key).expect("one of the header's");
        self.announced.insert(key, (source.line(), number));
        Ok(())
    }

    fn trigger(&mut self, fields: &[&str], source: &Source<'_>) -> Result<(), ImportError> {
        let wrong = || source.line_error(TRIGGER, &fields.join(" "));
        let ["id", id, kind, rest @ ..] = fields else { return Err(wrong()) };
        let id = number(id).filter(|&id| id > 0).ok_or_else(wrong)?;
        let kind = match (*kind, rest) {
            ("oneshot", []) => Firing::OneShot,
            ("multishot", []) => Firing::MultiShot,
            ("barrier", ["count", count]) => Firing::Barrier(count.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        let trigger = self.triggers.entry(id).or_default();
        if trigger.kind.is_some() {
            return Err(source.line_error("each trigger once", &format!("trigger id {id}")));
        }
        trigger.kind = Some(kind);
        trigger.line = line_of(source);
        Ok(())
    }

    fn flow(
        &mut self,
        pair: &str,
        fields: &[&str],
        source: &Source<'_>,
    ) -> Result<(), ImportError> {
        let flow = self.fields(fields, source)?;
        let line = line_of(source);
        let Some(builder) = &mut self.builder else {
            return Err(source.line_error("\"Nodes n\" before the flows", pair));
        };
        let wrong = |error: GraphError| ImportError::graph(source.file(), &error, true);
        let hosts = pair.split_once("->");
        let hosts = hosts.and_then(|(from, to)| Some((number(from)?, number(to)?)));
        let (from, to) = hosts.ok_or_else(|| source.line_error(FLOW, pair))?;
        if from == to || from.max(to) >= builder.ranks() {
            let expected = format!("two different hosts below {}", builder.ranks());
            return Err(source.line_error(&expected, pair));
        }
        let Some(bytes) = flow.bytes.filter(|&bytes| bytes > 0) else {
            return Err(source.line_error("a size of at least 1 byte", &fields.join(" ")));
        };
        let send = builder.add(from, line, Op::Send { to, bytes, tag: 0 }).map_err(wrong)?;
        match (flow.start, flow.trigger) {
            (Some(0), None) => {}
            (Some(start), None) => {
                self.last_start = self.last_start.max(start);
                let delay = Op::Delay(SimSpan::from_picos(start));
                let delay = builder.add(from, line, delay).map_err(wrong)?;
                builder.depend(send, delay, When::Done).map_err(wrong)?;
            }
            (None, Some(trigger)) => self.triggers.entry(trigger).or_default().after.push(send),
            _ => {
                let expected = "either a start or a trigger";
                return Err(source.line_error(expected, &fields.join(" ")));
            }
        }
        for (trigger, when) in flow.activates {
            self.triggers.entry(trigger).or_default().before.push((send, when));
        }
        if self.flows.is_multiple_of(1024) {
            builder.check_memory(source.share()).map_err(wrong)?;
        }
        self.flows += 1;
        self.summary.take("flows");
        Ok(())
    }

    fn fields(&mut self, fields: &[&str], source: &Source<'_>) -> Result<Flow, ImportError> {
        let (mut flow, mut words) = (Flow::default(), fields.iter().copied().peekable());
        while let Some(key) = words.next() {
            if key == "msg" {
                // Its number may be missing.
                words.next_if(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
                self.summary.leave("msg (each line is a flow with a connection of its own)");
                continue;
            }
            let wrong = || source.line_error(FLOW, &fields.join(" "));
            let value = words.next().ok_or_else(wrong)?;
            let trigger = || number(value).filter(|&id| id > 0).ok_or_else(wrong);
            match key {
                "start" => flow.start = Some(picos(value, self.unit).ok_or_else(wrong)?),
                "trigger" => flow.trigger = Some(trigger()?),
                "send_done_trigger" => flow.activates.push((trigger()?, When::Done)),
                "recv_done_trigger" => flow.activates.push((trigger()?, When::Delivered)),
                "size" => flow.bytes = Some(value.parse().map_err(|_| wrong())?),
                "id" => {}
                "prio" => self.summary.leave("prio (flows have no priorities)"),
                _ => return Err(wrong()),
            }
        }
        Ok(flow)
    }

    /// Joins flows by their triggers.
    fn finish(mut self, source: &Source<'_>) -> Result<Import, ImportError> {
        let found = [
            ("Connections", self.flows),
            ("Triggers", self.triggers.len() as u64),
            ("Failures", self.failures),
        ];
        for (key, found) in found {
            if let Some(&(line, announced)) = self.announced.get(key).filter(|(_, n)| *n != found) {
                let message = format!("it announces {announced} {key}, and the file has {found}");
                return Err(ImportError::at(source.file(), Place::Line(line), message));
            }
        }
        let Some(mut builder) = self.builder else {
            return Err(ImportError::new(source.file(), "expected \"Nodes n\", found nothing"));
        };
        for (id, trigger) in &self.triggers {
            let name = join(&mut builder, trigger, &mut self.summary).map_err(|reason| {
                let line = trigger.line as usize;
                let place = if line > 0 { Place::Line(line) } else { Place::File };
                ImportError::at(source.file(), place, format!("trigger {id}: {reason}"))
            })?;
            self.summary.take(name);
        }
        if self.last_start > 0 {
            let (unit, other) = match self.unit {
                StartUnit::Microseconds => ("microseconds, as htsim_uec, EQDS and RoCE do", "ps"),
                StartUnit::Picoseconds => ("picoseconds, as NDP does", "us"),
            };
            #[expect(clippy::cast_precision_loss, reason = "a time of a text")]
            let last = self.last_start as f64 / 1e6;
            self.summary.notes.push(format!(
                "start is read in {unit}: the last flow starts at {last} us; \
                 start_unit = {other:?} reads it otherwise"
            ));
        }
        let graph = builder.build();
        let graph = graph.map_err(|error| ImportError::graph(source.file(), &error, true))?;
        Ok(Import { graph, summary: self.summary })
    }
}

/// Makes a trigger's flows wait; returns its kind for the summary, or the reason why it cannot fire.
fn join(
    builder: &mut GraphBuilder,
    trigger: &Trigger,
    summary: &mut Summary,
) -> Result<&'static str, String> {
    let (before, after) = (trigger.before.len(), trigger.after.len());
    let Some(kind) = trigger.kind else {
        return Err("it has no line \"trigger id ...\"".into());
    };
    let Some(&first) = trigger.after.first() else {
        summary.leave("triggers that start no flow");
        return Ok("triggers");
    };
    let rank = builder.node(first).rank;
    let wrong = |error: GraphError| error.to_string();
    match kind {
        Firing::OneShot if before != 1 => {
            Err(format!("{before} flows activate it, expected one, as it fires once"))
        }
        Firing::Barrier(count) if before != count || count == 0 => {
            Err(format!("{before} flows activate it, expected its count, {count}"))
        }
        Firing::MultiShot if before < after => {
            Err(format!("{before} flows activate it, too few for its {after} flows"))
        }
        Firing::OneShot => {
            let (flow, when) = trigger.before[0];
            for &target in &trigger.after {
                builder.depend(target, flow, when).map_err(wrong)?;
            }
            Ok("triggers (oneshot)")
        }
        Firing::MultiShot | Firing::Barrier(_) => {
            let is_barrier = matches!(kind, Firing::Barrier(_));
            let op = if is_barrier { Op::Join } else { Op::Relay };
            let node = builder.add(rank, trigger.line, op).map_err(wrong)?;
            for &(flow, when) in &trigger.before {
                builder.depend(node, flow, when).map_err(wrong)?;
            }
            for &target in &trigger.after {
                builder.depend(target, node, When::Done).map_err(wrong)?;
            }
            Ok(if is_barrier { "triggers (barrier)" } else { "triggers (multishot)" })
        }
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

/// Returns the line that was read last, for a node's label.
fn line_of(source: &Source<'_>) -> u32 {
    u32::try_from(source.line()).unwrap_or(u32::MAX)
}

/// Returns a start in picoseconds. htsim reads a decimal number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be in range"
)]
fn picos(text: &str, unit: StartUnit) -> Option<u64> {
    let factor = match unit {
        StartUnit::Microseconds => 1_000_000,
        StartUnit::Picoseconds => 1,
    };
    if let Ok(whole) = text.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value: f64 = text.parse().ok()?;
    let picos = value * f64::from(u32::try_from(factor).ok()?);
    (0.0..1e19).contains(&picos).then_some(picos as u64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn import(text: &str) -> Result<Import, String> {
        let source = Source::of(text.as_bytes(), Path::new("m.cm")).unwrap();
        read(source, &Options::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn triggers_become_dependencies() {
        let import = import(
            "Nodes 4\nConnections 6\nTriggers 3\n\
             0->1 id 1 start 0 size 10 send_done_trigger 1\n\
             0->2 id 2 trigger 1 size 20 recv_done_trigger 2\n\
             0->3 id 3 trigger 1 size 30 send_done_trigger 2 prio 1\n\
             1->2 id 4 trigger 2 size 40 send_done_trigger 3\n\
             # a comment\n\
             1->3 id 5 trigger 3 size 50\n\
             2->3 start 40 size 60\n\
             trigger id 1 oneshot\ntrigger id 2 barrier count 2\ntrigger id 3 multishot\n",
        )
        .unwrap();
        let graph = &import.graph;
        // Six flows, a start, a barrier and a multishot trigger.
        assert_eq!((graph.ranks(), graph.nodes().len(), graph.bytes()), (4, 9, 210));
        let after = |node: u32| graph.dependents(node).collect::<Vec<_>>();
        assert_eq!(after(0), [(1, When::Done), (2, When::Done)]);
        let barrier = after(1)[0].0;
        assert_eq!(after(1), [(barrier, When::Delivered)]);
        assert_eq!(
            (after(2), after(barrier)),
            (vec![(barrier, When::Done)], vec![(3, When::Done)])
        );
        assert_eq!(graph.nodes()[6].op, Op::Delay(SimSpan::from_picos(40_000_000)));
        let want = "start is read in microseconds, as htsim_uec, EQDS and RoCE do: the last flow \
                    starts at 40 us; start_unit = \"ps\" reads it otherwise";
        assert_eq!(import.summary.notes, [want]);
        let left: Vec<_> = import.summary.left.iter().collect();
        assert_eq!(left, [(&"prio (flows have no priorities)".to_owned(), &1)]);
    }

    #[test]
    fn messages_may_have_no_number() {
        let import =
            import("Nodes 2\n0->1 id 1 msg start 0 size 7\n0->1 id 1 msg 3 start 0 size 8\n");
        let import = import.unwrap();
        assert_eq!((import.graph.bytes(), import.summary.left.values().sum::<u64>()), (15, 2));
    }

    #[test]
    fn what_htsim_would_not_run_is_refused_with_its_line() {
        for (text, want) in [
            ("0->1 start 0 size 1\n", "m.cm:1: expected \"Nodes n\" before the flows"),
            ("Nodes 2\nConnections 2\n0->1 start 0 size 1\n", "m.cm:2: it announces 2 Connections"),
            ("Nodes 2\n0->1 start 0 size 1\nNodes 2\n", "m.cm:3: expected \"Nodes n\" once"),
            ("Nodes 2\n0->2 start 0 size 1\n", "m.cm:2: expected two different hosts below 2"),
            ("Nodes 2\n0->1 size 1\n", "m.cm:2: expected either a start or a trigger"),
            ("Nodes 2\n0->1 start 0 trigger 1 size 1\n", "m.cm:2: expected either a start or"),
            ("Nodes 2\n0->1 start 0 size -1\n", "m.cm:2: expected src->dst [id k] [msg m]"),
            ("Nodes 2\n0->1 start nan size 1\n", "m.cm:2: expected src->dst [id k] [msg m]"),
            ("Nodes 2\n0->1 trigger 1 size 1\n", "m.cm: trigger 1: it has no line"),
            (
                "Nodes 2\n0->1 trigger 1 size 1\ntrigger id 1 oneshot\n",
                "m.cm:3: trigger 1: 0 flows",
            ),
            (
                "Nodes 2\n0->1 trigger 1 size 1 send_done_trigger 1\ntrigger id 1 oneshot\n",
                "m.cm:2: this node of rank 0 would wait for ever",
            ),
            (
                "Nodes 2\n0->1 trigger 1 size 1\ntrigger id 1 barrier count 4294967296\n",
                "m.cm:3: trigger 1: 0 flows activate it, expected its count, 4294967296",
            ),
            ("Nodes 2\ntrigger id 1 twice\n", "m.cm:2: expected trigger id t oneshot"),
        ] {
            let error = import(text).unwrap_err();
            assert!(error.starts_with(want), "{text:?}: {error}");
        }
    }
}
