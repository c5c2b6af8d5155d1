//! Executes a graph without time, to find out whether it ends.

use std::collections::{BTreeMap, VecDeque};

use super::{Graph, GraphError, Matching, Op, When};

/// Checks that a graph ends.
///
/// # Errors
/// `Stuck`, with the first node that would wait for ever.
pub(super) fn check(graph: &Graph) -> Result<(), GraphError> {
    let mut run = DryRun {
        waits: graph.dependency_counts(),
        matching: graph.matching(),
        joined: vec![0; graph.operations().len()],
        members: vec![Vec::new(); graph.operations().len()],
        relayed: BTreeMap::new(),
        ready: VecDeque::new(),
        left: graph.nodes().len(),
        done: vec![false; graph.nodes().len()],
        graph,
    };
    let roots = (0u32..).zip(&run.waits).filter(|&(_, &waits)| waits == 0);
    run.ready = roots.map(|(node, _)| node).collect();
    while let Some(node) = run.ready.pop_front() {
        run.start(node);
    }
    if run.left == 0 { Ok(()) } else { Err(run.stuck()) }
}

/// The state of the execution.
struct DryRun<'a> {
    graph: &'a Graph,
    /// Number of events each node waits for.
    waits: Vec<u32>,
    matching: Vec<Matching>,
    /// Number of ranks that have joined each collective, and their nodes.
    joined: Vec<u32>,
    members: Vec<Vec<u32>>,
    /// Number of dependents that each relay has started.
    relayed: BTreeMap<u32, usize>,
    ready: VecDeque<u32>,
    left: usize,
    done: Vec<bool>,
}

impl DryRun<'_> {
    fn start(&mut self, node: u32) {
        let graph = self.graph;
        let rank = graph.nodes()[node as usize].rank;
        self.notify(node, When::Started);
        match graph.nodes()[node as usize].op {
            Op::Join | Op::Relay | Op::Delay(_) | Op::Compute { .. } => self.finish(node),
            Op::Send { to, tag, .. } => {
                self.notify(node, When::Delivered);
                self.finish(node);
                let receiver = self.matching.get_mut(to as usize);
                if let Some(receive) = receiver.and_then(|rank_of| rank_of.arrive(rank, tag)) {
                    self.finish(receive);
                }
            }
            Op::Receive { from, tag } => {
                if self.matching[rank as usize].post(node, from, tag) {
                    self.finish(node);
                }
            }
            Op::Collective(number) => {
                let operation = graph.operations()[number as usize];
                let ranks = graph.groups()[operation.group as usize].len();
                let members = &mut self.members[number as usize];
                members.push(node);
                self.joined[number as usize] += 1;
                if members.len() == ranks {
                    std::mem::take(members).into_iter().for_each(|member| self.finish(member));
                }
            }
        }
    }

    fn finish(&mut self, node: u32) {
        self.left -= 1;
        self.done[node as usize] = true;
        self.notify(node, When::Done);
    }

    /// Notifies the dependents of a node of an event.
    fn notify(&mut self, node: u32, event: When) {
        let graph = self.graph;
        if event == When::Done && graph.nodes()[node as usize].op == Op::Relay {
            return; // Its dependents were started one by one.
        }
        for (dependent, when) in graph.dependents(node) {
            if when == event {
                self.release(dependent);
            }
        }
    }

    /// Counts an event that a node waited for.
    fn release(&mut self, node: u32) {
        let waits = &mut self.waits[node as usize];
        *waits -= 1;
        let last = *waits == 0;
        if self.graph.nodes()[node as usize].op == Op::Relay {
            let number = self.relayed.entry(node).or_default();
            let next = self.graph.dependent(node, *number);
            *number += 1;
            if let Some(dependent) = next {
                self.release(dependent);
            }
        }
        if last {
            self.ready.push_back(node);
        }
    }

    /// Returns the error for the first node that is not done: one that has started, if there is any, as its reason is
    /// at its end of the chain.
    fn stuck(&self) -> GraphError {
        let nodes =
            || (0u32..).zip(self.graph.nodes()).filter(|&(index, _)| !self.done[index as usize]);
        let started = nodes().find(|&(index, _)| self.waits[index as usize] == 0);
        let (index, node) = started.or_else(|| nodes().next()).expect("some are left");
        let reason = match node.op {
            _ if self.waits[index as usize] > 0 => {
                let waits = self.waits[index as usize];
                format!("{waits} of its dependencies depend on it (a cycle) or never happen")
            }
            Op::Receive { from, tag } => {
                let any = |value: u32, of: &str| match value {
                    super::ANY => format!("any {of}"),
                    value => format!("{of} {value}"),
                };
                format!("no message from {} with {} is left", any(from, "rank"), any(tag, "tag"))
            }
            Op::Collective(number) => {
                let operation = self.graph.operations()[number as usize];
                let ranks = self.graph.groups()[operation.group as usize].len();
                let joined = self.joined[number as usize];
                format!("only {joined} of {ranks} ranks take part in its {}", operation.kind)
            }
            _ => "a node of its rank never ends".into(),
        };
        GraphError::Stuck { rank: node.rank, label: node.label, reason }
    }
}

#[cfg(test)]
mod tests {
    use weft_plan::collective::Collective;

    use super::super::{ANY, GraphBuilder, Operation};
    use super::*;

    fn error(builder: GraphBuilder) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn a_cycle_is_named() {
        let mut builder = GraphBuilder::new(1, u64::MAX);
        let nodes = [7, 8].map(|label| builder.add(0, label, Op::Join).unwrap());
        builder.depend(nodes[0], nodes[1], When::Done).unwrap();
        builder.depend(nodes[1], nodes[0], When::Done).unwrap();
        let want = "rank 0, node 7: it would wait for ever: 1 of its dependencies depend on it";
        assert!(error(builder).starts_with(want));
    }

    #[test]
    fn a_missing_message_is_named_rather_than_the_nodes_behind_it() {
        let mut builder = GraphBuilder::new(2, u64::MAX);
        let after = builder.add(0, 1, Op::Join).unwrap();
        let receive = builder.add(0, 2, Op::Receive { from: 1, tag: ANY }).unwrap();
        builder.depend(after, receive, When::Done).unwrap();
        builder.add(1, 3, Op::Send { to: 1, bytes: 1, tag: 0 }).unwrap();
        let want = "rank 0, node 2: it would wait for ever: no message from rank 1 with any tag";
        assert!(error(builder).starts_with(want));
    }

    #[test]
    fn a_collective_needs_all_its_ranks_in_the_same_order() {
        let mut builder = GraphBuilder::new(3, u64::MAX);
        let group = builder.group(vec![0, 2]).unwrap();
        let reduce = Operation::new(Collective::AllReduce, group, 8);
        builder.collective(0, 5, reduce).unwrap();
        let outside = builder.collective(1, 6, reduce).unwrap_err().to_string();
        assert!(outside.starts_with("rank 1 is not in the group"), "{outside}");
        let other = Operation { bytes: 9, ..reduce };
        let different = builder.collective(2, 6, other).unwrap_err().to_string();
        let want = "operation 1 of the group of ranks 0, 2 is all_reduce of 9 bytes on rank 2, \
                    and all_reduce of 8 bytes on others";
        assert_eq!(different, want);
        let want = "rank 0, node 5: it would wait for ever: only 1 of 2 ranks";
        assert!(error(builder).starts_with(want));
    }

    #[test]
    fn a_relay_starts_as_many_as_are_done_before_it() {
        let graph = |shots: u32, targets: u32| {
            let mut builder = GraphBuilder::new(1, u64::MAX);
            let relay = builder.add(0, 0, Op::Relay).unwrap();
            for _ in 0..shots {
                let shot = builder.add(0, 1, Op::Join).unwrap();
                builder.depend(relay, shot, When::Done).unwrap();
            }
            for label in 0..targets {
                let target = builder.add(0, 10 + label, Op::Join).unwrap();
                builder.depend(target, relay, When::Done).unwrap();
            }
            builder.build()
        };
        assert!(graph(3, 3).is_ok() && graph(3, 2).is_ok());
        let error = graph(2, 3).unwrap_err().to_string();
        assert!(error.starts_with("rank 0, node 12: it would wait for ever"), "{error}");
    }
}
