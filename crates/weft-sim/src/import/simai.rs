//! Workloads of SimAI, and of the first version of ASTRA-sim, as their `Workload.cc` reads them.
//!
//! The first line has the parallelism, the second the number of layers, and each layer 12 columns: its name, a number, and
//! nanoseconds, collective and bytes of the forward pass, the input's gradient and the weights' gradient, then the time
//! of the update. All ranks run all layers: forward in order, backward in reverse. The weights' collective does not hold
//! up the layers behind it, the others do.

use std::collections::BTreeMap;

use weft_plan::collective::Collective;

use super::error::Place;
use super::format::POLICIES;
use super::source::Source;
use super::{Format, Import, ImportError, Options, Summary};
use crate::graph::{GraphBuilder, GraphError, Op, Operation, When};
use crate::time::SimSpan;

/// The columns of a layer, for errors.
const LAYER: &str = "12 columns: name, number, then ns, collective and bytes three times, then ns";
/// The most layers of a file.
const MAX_LAYERS: usize = 1 << 20;

/// Reads a workload.
///
/// # Errors
/// A line is malformed, or the policy is of a kind that is not read.
pub fn read(mut source: Source<'_>, options: &Options) -> Result<Import, ImportError> {
    let mut line = String::new();
    let mut next = |source: &mut Source<'_>| -> Result<Option<Vec<String>>, ImportError> {
        while source.next_line(&mut line)? {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            if !words.is_empty() {
                return Ok(Some(words));
            }
        }
        Ok(None)
    };
    let mut summary = Summary::new(Format::Simai);
    let header = next(&mut source)?.unwrap_or_default();
    let header = Header::parse(&header, options.ranks, &mut summary, &source)?;
    let count = next(&mut source)?.unwrap_or_default().join(" ");
    let layers = count.parse::<usize>().ok().filter(|&count| count <= MAX_LAYERS);
    let layers =
        layers.ok_or_else(|| source.line_error("a number of layers, at most 2^20", &count))?;
    let mut read = Vec::new();
    while read.len() < layers {
        let Some(words) = next(&mut source)? else {
            let found = format!("the end of the file after {}", read.len());
            return Err(source.line_error(&format!("{layers} layers"), &found));
        };
        read.push(Layer::parse(&words, &source)?);
    }
    let graph = Job::new(header, options, &mut summary).build(&read);
    let graph = graph.map_err(|error| ImportError::graph(source.file(), &error, true))?;
    Ok(Import { graph, summary })
}

/// The order of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Only the collectives of the weights' gradients, all at once.
    Micro,
    /// Data parallelism: the weights' gradient before the input's, whose collective does not exist.
    Data,
    /// Tensor, expert and data parallelism: the input's gradient first.
    Hybrid,
}

/// The first line.
#[derive(Clone, Copy, Debug)]
struct Header {
    policy: Policy,
    ranks: u32,
    tensor: u32,
    expert: u32,
    pipeline: u32,
    line: usize,
}

impl Header {
    fn parse(
        words: &[String],
        ranks: Option<u32>,
        summary: &mut Summary,
        source: &Source<'_>,
    ) -> Result<Self, ImportError> {
        let name = words.first().map_or("", String::as_str);
        let policy = match name {
            "MICRO" => Policy::Micro,
            "DATA" => Policy::Data,
            "HYBRID_TRANSFORMER" | "HYBRID_TRANSFORMER_FWD_IN_BCKWD" => Policy::Hybrid,
            _ => {
                let expected = if POLICIES.contains(&name) {
                    "MICRO, DATA, HYBRID_TRANSFORMER or HYBRID_TRANSFORMER_FWD_IN_BCKWD, as others \
                     place their collectives by dimensions of ASTRA-sim's own network"
                } else {
                    "a policy such as HYBRID_TRANSFORMER_FWD_IN_BCKWD"
                };
                return Err(source.line_error(expected, name));
            }
        };
        let value = |key: &str| -> Result<Option<u32>, ImportError> {
            let Some(at) = words.iter().position(|word| word.trim_end_matches(':') == key) else {
                return Ok(None);
            };
            let text = words.get(at + 1).map_or("", String::as_str);
            let number = text.parse().ok().filter(|&number: &u32| number > 0);
            number.map(Some).ok_or_else(|| source.line_error(&format!("a number for {key}"), text))
        };
        for (key, reason) in [
            ("checkpoints", "checkpoints (layers are not computed again)"),
            ("pp_comm", "pp_comm (stages run at the same time, without messages between them)"),
        ] {
            let at = words.iter().position(|word| word.trim_end_matches(':') == key);
            if at.and_then(|at| words.get(at + 1)).is_some_and(|value| value != "0") {
                summary.leave(reason);
            }
        }
        let ranks = value("all_gpus")?.or(ranks);
        let Some(ranks) = ranks else {
            let expected = "all_gpus: n, or the setting ranks";
            return Err(source.line_error(expected, &words.join(" ")));
        };
        let or_one = |number: Option<u32>| number.unwrap_or(1);
        let header = Self {
            policy,
            ranks,
            tensor: or_one(value("model_parallel_NPU_group")?),
            expert: or_one(value("ep")?),
            pipeline: or_one(value("pp")?),
            line: source.line(),
        };
        let product = u64::from(header.tensor) * u64::from(header.pipeline);
        let divides = u64::from(ranks).is_multiple_of(product)
            && (u64::from(ranks) / product).is_multiple_of(header.expert.into());
        if !divides {
            let expected = "ranks that are a multiple of the tensor, pipeline and expert groups";
            let found = format!(
                "{ranks} ranks, {} x {} x {}",
                header.tensor, header.pipeline, header.expert
            );
            let message = format!("expected {expected}, found {found}");
            return Err(ImportError::at(source.file(), Place::Line(header.line), message));
        }
        Ok(header)
    }
}

/// The ranks that take part in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Tensor = 0,
    Data = 1,
    Expert = 2,
    DataOfExperts = 3,
}

/// One pass of a layer.
#[derive(Clone, Copy, Debug)]
struct Pass {
    span: SimSpan,
    collective: Option<(Collective, Group, u64)>,
}

/// A layer, with its line.
#[derive(Clone, Copy, Debug)]
struct Layer {
    line: u32,
    forward: Pass,
    input: Pass,
    weights: Pass,
    update: SimSpan,
}

impl Layer {
    fn parse(words: &[String], source: &Source<'_>) -> Result<Self, ImportError> {
        if words.len() < 12 {
            return Err(source.line_error(LAYER, &words.join(" ")));
        }
        let pass = |at: usize, default: Group| -> Result<Pass, ImportError> {
            let span = span(&words[at], source)?;
            let bytes: Option<u64> = words[at + 2].parse().ok();
            let bytes =
                bytes.ok_or_else(|| source.line_error("a number of bytes", &words[at + 2]))?;
            let collective = collective(&words[at + 1], default, source)?;
            let collective = collective.filter(|_| bytes > 0);
            Ok(Pass { span, collective: collective.map(|(kind, group)| (kind, group, bytes)) })
        };
        Ok(Self {
            line: u32::try_from(source.line()).unwrap_or(u32::MAX),
            forward: pass(2, Group::Tensor)?,
            input: pass(5, Group::Tensor)?,
            weights: pass(8, Group::Data)?,
            update: span(&words[11], source)?,
        })
    }
}

/// Returns a time. Generators write 1 where they know none.
fn span(text: &str, source: &Source<'_>) -> Result<SimSpan, ImportError> {
    let nanos: Option<u64> = text.parse().ok();
    let picos = nanos.and_then(|nanos| if nanos <= 1 { Some(0) } else { nanos.checked_mul(1000) });
    picos.map(SimSpan::from_picos).ok_or_else(|| source.line_error("a time in nanoseconds", text))
}

/// Returns a collective and its group.
fn collective(
    text: &str,
    default: Group,
    source: &Source<'_>,
) -> Result<Option<(Collective, Group)>, ImportError> {
    let (name, group) = if let Some(name) = text.strip_suffix("_DP_EP") {
        (name, Group::DataOfExperts)
    } else if let Some(name) = text.strip_suffix("_EP") {
        (name, Group::Expert)
    } else {
        (text, default)
    };
    let kind = match name {
        "NONE" => return Ok(None),
        "ALLREDUCE" => Collective::AllReduce,
        "ALLGATHER" => Collective::AllGather,
        "REDUCESCATTER" => Collective::ReduceScatter,
        "ALLTOALL" => Collective::AllToAll,
        _ => {
            let expected =
                "NONE, ALLREDUCE, ALLGATHER, REDUCESCATTER or ALLTOALL, with _EP or _DP_EP";
            return Err(source.line_error(expected, text));
        }
    };
    Ok(Some((kind, group)))
}

/// The graph in the making.
struct Job<'a> {
    header: Header,
    builder: GraphBuilder,
    summary: &'a mut Summary,
    /// The groups that are made, by kind and first rank.
    groups: BTreeMap<(u8, u32), u32>,
}

impl<'a> Job<'a> {
    fn new(header: Header, options: &Options, summary: &'a mut Summary) -> Self {
        let builder = GraphBuilder::new(header.ranks, options.memory);
        Self { header, builder, summary, groups: BTreeMap::new() }
    }

    fn build(mut self, layers: &[Layer]) -> Result<crate::graph::Graph, GraphError> {
        self.builder.check_memory(1.0)?;
        for rank in 0..self.header.ranks {
            let mut last = None;
            match self.header.policy {
                Policy::Micro => {
                    for layer in layers {
                        self.collective(rank, layer.line, layer.weights, None)?;
                    }
                }
                Policy::Data | Policy::Hybrid => self.iteration(rank, layers, &mut last)?,
            }
            let share = f64::from(rank + 1) / f64::from(self.header.ranks);
            self.builder.check_memory(share)?;
        }
        self.account(layers);
        self.builder.build()
    }

    /// Adds a rank's forward and backward passes.
    fn iteration(
        &mut self,
        rank: u32,
        layers: &[Layer],
        last: &mut Option<u32>,
    ) -> Result<(), GraphError> {
        for layer in layers {
            self.pass(rank, layer.line, layer.forward, last)?;
        }
        for layer in layers.iter().rev() {
            if self.header.policy == Policy::Hybrid {
                self.pass(rank, layer.line, layer.input, last)?;
            }
            self.compute(rank, layer.line, layer.weights.span, last)?;
            // Only the update waits for it.
            let mut behind = self.collective(rank, layer.line, layer.weights, *last)?;
            if layer.weights.collective.is_some() {
                self.compute(rank, layer.line, layer.update, &mut behind)?;
            }
            if self.header.policy == Policy::Data {
                self.compute(rank, layer.line, layer.input.span, last)?;
            }
        }
        Ok(())
    }

    /// Adds a computation and the collective behind it, for which the next one waits.
    fn pass(
        &mut self,
        rank: u32,
        line: u32,
        pass: Pass,
        last: &mut Option<u32>,
    ) -> Result<(), GraphError> {
        self.compute(rank, line, pass.span, last)?;
        *last = self.collective(rank, line, pass, *last)?;
        Ok(())
    }

    fn compute(
        &mut self,
        rank: u32,
        line: u32,
        span: SimSpan,
        last: &mut Option<u32>,
    ) -> Result<(), GraphError> {
        if span > SimSpan::ZERO {
            let node = self.builder.add(rank, line, Op::Compute { span, unit: 0 })?;
            self.after(node, *last)?;
            *last = Some(node);
        }
        Ok(())
    }

    fn after(&mut self, node: u32, before: Option<u32>) -> Result<(), GraphError> {
        before.map_or(Ok(()), |before| self.builder.depend(node, before, When::Done))
    }

    /// Adds a collective; returns the last node, which is the one before if its group has one rank.
    fn collective(
        &mut self,
        rank: u32,
        line: u32,
        pass: Pass,
        before: Option<u32>,
    ) -> Result<Option<u32>, GraphError> {
        let Some((kind, group, bytes)) = pass.collective else { return Ok(before) };
        let (first, size) = self.extent(rank, group);
        if size < 2 {
            return Ok(before);
        }
        let key = (group as u8, first);
        let group = match self.groups.get(&key) {
            Some(&known) => known,
            None => {
                let number = self.builder.group(self.members(rank, group))?;
                self.groups.insert(key, number);
                number
            }
        };
        let node = self.builder.collective(rank, line, Operation::new(kind, group, bytes))?;
        self.after(node, before)?;
        Ok(Some(node))
    }

    /// Returns the first rank of a rank's group, and the number of ranks.
    fn extent(&self, rank: u32, group: Group) -> (u32, u32) {
        let Header { ranks, tensor, expert, pipeline, .. } = self.header;
        let stage = ranks / pipeline;
        let (start, place) = (rank - rank % stage, rank % stage);
        let (replica, column) = (place / tensor, place % tensor);
        let of = |replica: u32| start + replica * tensor + column;
        match group {
            Group::Tensor => (rank - rank % tensor, tensor),
            Group::Data => (of(0), stage / tensor),
            Group::Expert => (of(replica - replica % expert), expert),
            Group::DataOfExperts => (of(replica % expert), stage / tensor / expert),
        }
    }

    /// Returns the ranks of a rank's group: as Megatron numbers them, tensor ranks are consecutive, then replicas, of
    /// which consecutive ones share experts, then stages.
    fn members(&self, rank: u32, group: Group) -> Vec<u32> {
        let (first, size) = self.extent(rank, group);
        let distance = match group {
            Group::Tensor => 1,
            Group::Data | Group::Expert => self.header.tensor,
            Group::DataOfExperts => self.header.tensor * self.header.expert,
        };
        (0..size).map(|place| first + place * distance).collect()
    }

    /// Counts what was taken and left.
    fn account(&mut self, layers: &[Layer]) {
        for layer in layers {
            self.summary.take("layers");
            for pass in [layer.forward, layer.input, layer.weights] {
                let Some((kind, group, _)) = pass.collective else { continue };
                let among = match group {
                    Group::Tensor => "tensor ranks",
                    Group::Data => "replicas",
                    Group::Expert => "ranks that share experts",
                    Group::DataOfExperts => "replicas of experts",
                };
                if self.extent(0, group).1 < 2 {
                    self.summary.leave("collectives of one rank");
                } else {
                    self.summary.take(&format!("{kind} of {among}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn import(text: &str) -> Result<Import, String> {
        let source = Source::of(text.as_bytes(), Path::new("w.txt")).unwrap();
        read(source, &Options::default()).map_err(|error| error.to_string())
    }

    const HEADER: &str = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 2 \
                          vpp: 8 ga: 1 all_gpus: 16 checkpoints: 0 checkpoint_initiates: 0";

    #[test]
    fn a_pass_goes_forward_and_back_and_does_not_wait_for_gradients() {
        let import = import(&format!(
            "{HEADER}\n2\n\
             first -1 500 ALLREDUCE 64 300 NONE 0 200 REDUCESCATTER 256 100\n\
             second -1 1 ALLTOALL_EP 32 1 NONE 0 1 ALLREDUCE_DP_EP 128 1\n"
        ))
        .unwrap();
        let graph = &import.graph;
        assert_eq!(graph.ranks(), 16);
        // A rank has three computations, an update and four collectives.
        assert_eq!(graph.nodes().len(), 16 * 8);
        let groups = |rank: u32| {
            let of = |node: &&crate::graph::Node| node.rank == rank;
            let operations = graph.nodes().iter().filter(of).filter_map(|node| match node.op {
                Op::Collective(number) => Some(graph.operations()[number as usize]),
                _ => None,
            });
            let named = |operation: Operation| {
                (operation.kind, graph.groups()[operation.group as usize].clone())
            };
            operations.map(named).collect::<Vec<_>>()
        };
        // 16 ranks: 2 stages, in each 4 replicas of 2 ranks, of which 2 share experts.
        let want = [
            (Collective::AllReduce, vec![8, 9]),
            (Collective::AllToAll, vec![9, 11]),
            (Collective::AllReduce, vec![9, 13]),
            (Collective::ReduceScatter, vec![9, 11, 13, 15]),
        ];
        assert_eq!(groups(9), want);
        // Forward 0, all-reduce 1, all-to-all 2, second's gradients 3, then the first layer's input gradient 4, which
        // waits for 2 but not for 3.
        assert_eq!(graph.dependents(0).collect::<Vec<_>>(), [(1, When::Done)]);
        let after: Vec<u32> = graph.dependents(2).map(|(node, _)| node).collect();
        assert_eq!(after, [3, 4]);
        assert_eq!(graph.dependents(3).count(), 0);
        assert_eq!(import.summary.taken["layers"], 2);
    }

    #[test]
    fn malformed_workloads_are_refused_with_their_line() {
        let layer = "a -1 1 NONE 0 1 NONE 0 1 NONE 0 1";
        for (text, want) in [
            ("HELLO\n1\n".to_owned(), "w.txt:1: expected a policy such as"),
            ("HYBRID_DLRM 3\n1\n".to_owned(), "w.txt:1: expected MICRO, DATA, HYBRID_TRANSFORMER"),
            ("MICRO\n1\n".to_owned(), "w.txt:1: expected all_gpus: n, or the setting ranks"),
            (format!("{HEADER}\nx\n"), "w.txt:2: expected a number of layers"),
            (format!("{HEADER}\n2\n{layer}\n"), "w.txt:4: expected 2 layers, found \"the end of"),
            (format!("{HEADER}\n1\na -1 1\n"), "w.txt:3: expected 12 columns"),
            (format!("{HEADER}\n1\n{}\n", layer.replace("NONE", "SUM")), "w.txt:3: expected NONE"),
            (format!("{HEADER}\n1\n{}\n", layer.replace(" 1 ", " x ")), "w.txt:3: expected a time"),
            (HEADER.replace("16", "15"), "w.txt:1: expected ranks that are a multiple"),
            (HEADER.replace("16", "0"), "w.txt:1: expected a number for all_gpus"),
        ] {
            let error = import(&text).unwrap_err();
            assert!(error.starts_with(want), "{text:?}: {error}");
        }
    }
}
