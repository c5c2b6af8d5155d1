//! Execution traces of MLCommons Chakra 1.0.0 (`schema/protobuf/et_def.proto`), with the attributes as ASTRA-sim 2 reads
//! them.
//!
//! Each rank has a file, `NAME.RANK.et`: messages of protocol buffers, each behind its length; the first is the file's
//! metadata, every other a node. Nodes may come in any order and depend on nodes later in the file. Groups of ranks are
//! in `NAME.json` beside it, or in a node of the trace.
//!
//! `comm_size` is what one rank puts in: an all-gather's is its shard. Collectives of a group are matched in the order in
//! which they can start on each rank, lowest id first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::{Path, PathBuf};

use weft_plan::collective::Collective;

use super::error::Place;
use super::protobuf::Fields;
use super::source::Source;
use super::{Format, Import, ImportError, Options, Summary, file_name};
use crate::graph::{GraphBuilder, GraphError, Op, Operation, When};
use crate::time::SimSpan;

mod groups;
mod node;

use groups::Groups;
use node::Node;

/// The longest message, bytes: nodes have a few hundred, and lists of groups as many as there are ranks.
const MAX_MESSAGE: u64 = 64 << 20;
/// The most ranks of a trace.
const MAX_RANKS: u32 = 1 << 20;

/// The units of a rank that compute one thing at a time.
const CPU: u8 = 0;
const GPU: u8 = 1;

/// Reads the trace that a file belongs to: the files of all its ranks, and its groups.
///
/// # Errors
/// A rank's file is missing, a file is malformed, or a node would wait for ever.
pub fn read_ranks(file: &Path, options: &Options) -> Result<Import, ImportError> {
    let (prefix, rank, ending) = split(file).ok_or_else(|| {
        let expected = "the name of a rank's file, such as trace.0.et";
        ImportError::new(file, format!("expected {expected}"))
    })?;
    let of_rank = |rank: u32| PathBuf::from(format!("{prefix}.{rank}{ending}"));
    let ranks = (0..MAX_RANKS).take_while(|&rank| of_rank(rank).is_file()).count();
    let ranks = u32::try_from(ranks).expect("at most 2^20");
    if rank >= ranks {
        let (missing, found) = (of_rank(ranks), file_name(file));
        let message = format!("there is no such file, and there is {}", found.display());
        return Err(ImportError::new(&missing, message));
    }
    let file_of_groups = PathBuf::from(format!("{prefix}.json"));
    let known =
        if file_of_groups.is_file() { groups::read(&file_of_groups)? } else { Groups::new() };
    let mut trace = Trace::new(ranks, known, options);
    for rank in 0..ranks {
        trace.rank(rank, Source::open(&of_rank(rank))?)?;
    }
    trace.finish(file)
}

/// Reads a trace whose ranks have these contents.
///
/// # Errors
/// As [`read_ranks`].
pub fn read(
    sources: Vec<Source<'_>>,
    groups: Option<BTreeMap<String, Vec<u32>>>,
    options: &Options,
) -> Result<Import, ImportError> {
    let file = sources.first().map_or_else(PathBuf::new, |source| source.file().into());
    let ranks = u32::try_from(sources.len()).expect("fewer than 2^32 files");
    let mut trace = Trace::new(ranks, groups.unwrap_or_default(), options);
    for (rank, source) in (0..).zip(sources) {
        trace.rank(rank, source)?;
    }
    trace.finish(&file)
}

/// Returns the parts of a rank's file name: all before the rank, the rank, and what follows it.
fn split(file: &Path) -> Option<(String, u32, &'static str)> {
    let name = file.to_str()?;
    let endings = [".et.gz", ".et"];
    let ending = endings.into_iter().find(|ending| name.ends_with(ending))?;
    let (prefix, rank) = name.strip_suffix(ending)?.rsplit_once('.')?;
    Some((prefix.into(), rank.parse().ok()?, ending))
}

/// The trace so far.
struct Trace {
    options: Options,
    builder: GraphBuilder,
    groups: Groups,
    /// The number of each group by its name and ranks.
    numbers: BTreeMap<(String, Vec<u32>), u32>,
    summary: Summary,
    /// Number of computations that have no time.
    without_time: u64,
}

impl Trace {
    fn new(ranks: u32, groups: Groups, options: &Options) -> Self {
        Self {
            options: *options,
            builder: GraphBuilder::new(ranks, options.memory),
            groups,
            numbers: BTreeMap::new(),
            summary: Summary::new(Format::Chakra),
            without_time: 0,
        }
    }

    /// Reads a rank's file.
    fn rank(&mut self, rank: u32, mut source: Source<'_>) -> Result<(), ImportError> {
        let nodes = self.nodes(rank, &mut source)?;
        let file = source.file().to_owned();
        let of_rank = OfRank { rank, file: &file, nodes: &nodes };
        let order = of_rank.order(&mut self.summary)?;
        let mut groups = Groups::new();
        for node in &nodes {
            if node.kind == 1 {
                groups.extend(groups::of_inputs(&node.inputs, self.builder.ranks()));
            }
        }
        let mut indexes = vec![0u32; nodes.len()];
        let mut by_id = BTreeMap::new();
        for (at, node) in nodes.iter().enumerate() {
            by_id.insert(node.id, at);
        }
        for at in order {
            let node = &nodes[at];
            let wrong = |error: String| ImportError::at(&file, Place::Node(node.id), error);
            let index = self.add(rank, node, &groups).map_err(wrong)?;
            indexes[at] = index;
            for before in node.before.iter().filter_map(|id| by_id.get(id)) {
                let added = self.builder.depend(index, indexes[*before], When::Done);
                added.map_err(|error| wrong(error.to_string()))?;
            }
        }
        let done = f64::from(rank + 1) / f64::from(self.builder.ranks());
        let fits = self.builder.check_memory(done);
        fits.map_err(|error| ImportError::graph(&file, &error, false))
    }

    /// Reads all nodes of a file.
    fn nodes(&mut self, rank: u32, source: &mut Source<'_>) -> Result<Vec<Node>, ImportError> {
        let (mut nodes, mut message) = (Vec::new(), Vec::new());
        let (mut is_first, mut bytes) = (true, 0u64);
        while let Some(length) = length(source)? {
            if length > MAX_MESSAGE {
                let text = format!("a message of {length} bytes, expected at most {MAX_MESSAGE}");
                return Err(source.byte_error(text));
            }
            let start = source.offset();
            source.read_into(&mut message, usize::try_from(length).expect("at most 2^26"))?;
            if std::mem::take(&mut is_first) {
                self.metadata(rank, &message);
                continue;
            }
            let node = Node::parse(&message, &mut self.summary).map_err(|_| {
                let text = format!("message {} from byte {start} is not a node", nodes.len() + 1);
                ImportError::new(source.file(), text)
            })?;
            // A rank's nodes are held until all are read, as they may depend on later ones.
            bytes += (size_of::<Node>() + 8 * node.before.len() + node.inputs.len()) as u64;
            if bytes > self.options.memory {
                let text = format!("its nodes need more than {bytes} bytes of memory");
                return Err(ImportError::new(source.file(), text));
            }
            nodes.push(node);
        }
        if is_first {
            return Err(ImportError::new(
                source.file(),
                "the file is empty, expected metadata and nodes",
            ));
        }
        Ok(nodes)
    }

    /// Notes the version, once.
    fn metadata(&mut self, rank: u32, message: &[u8]) {
        let mut fields = Fields::of(message);
        if let (0, Ok(Some((1, super::protobuf::Value::Bytes(version))))) = (rank, fields.next()) {
            let version: String = String::from_utf8_lossy(version).chars().take(40).collect();
            self.summary.notes.push(format!("schema version {version}"));
        }
    }

    /// Adds a node; returns its index.
    fn add(&mut self, rank: u32, node: &Node, groups: &Groups) -> Result<u32, String> {
        let label = u32::try_from(node.id).unwrap_or(u32::MAX);
        let of = &node.attributes;
        let need = |value: Option<u64>, name: &str| {
            value.ok_or_else(|| format!("expected the attribute {name}"))
        };
        let tag = of.tag.unwrap_or(0) & 0x7fff_ffff;
        let tag = u32::try_from(tag).expect("31 bits");
        let peer = |builder: &GraphBuilder, value: Option<u64>, name: &str| {
            let known = builder.rank(need(value, name)?);
            known.map_err(|error: GraphError| format!("{name}: {error}"))
        };
        let op = match node.kind {
            0 => {
                self.summary.leave("nodes of type 0 (invalid)");
                Op::Join
            }
            1 => {
                self.summary.take("metadata");
                Op::Join
            }
            2 | 3 => {
                self.summary.take(if node.kind == 2 { "memory loads" } else { "memory stores" });
                self.timed(node)
            }
            4 => {
                self.summary.take("computations");
                self.computation(node)
            }
            5 => {
                self.summary.take("sends");
                let to = peer(&self.builder, of.destination, "comm_dst")?;
                Op::Send { to, bytes: need(of.bytes, "comm_size")?, tag }
            }
            6 => {
                self.summary.take("receives");
                Op::Receive { from: peer(&self.builder, of.source, "comm_src")?, tag }
            }
            7 => return self.collective(rank, label, node, groups),
            kind => {
                self.summary.leave(&format!(
                    "the work of nodes of type {kind} (only their recorded duration is kept)"
                ));
                self.timed(node)
            }
        };
        self.builder.add(rank, label, op).map_err(|error| error.to_string())
    }

    /// Returns the operation of a node that takes its recorded time, on no unit.
    fn timed(&mut self, node: &Node) -> Op {
        match micros(node.duration_us) {
            SimSpan::ZERO => {
                self.without_time += 1;
                Op::Join
            }
            span => Op::Delay(span),
        }
    }

    /// Returns the operation of a computation: the roofline's time on a GPU if there is one, or else the recorded time.
    fn computation(&mut self, node: &Node) -> Op {
        let of = &node.attributes;
        let modelled = self.options.roofline.filter(|_| !of.is_cpu).zip(of.operations);
        let span = match (modelled, of.tensor_bytes) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "a model of a time"
            )]
            (Some((roofline, operations)), Some(bytes)) => {
                let seconds = roofline.seconds(operations as f64, bytes as f64);
                SimSpan::from_picos((seconds * 1e12) as u64)
            }
            _ => micros(node.duration_us),
        };
        if span == SimSpan::ZERO {
            self.without_time += 1;
        }
        Op::Compute { span, unit: if of.is_cpu { CPU } else { GPU } }
    }

    fn collective(
        &mut self,
        rank: u32,
        label: u32,
        node: &Node,
        groups: &Groups,
    ) -> Result<u32, String> {
        let of = &node.attributes;
        let kind = of.collective.ok_or("expected the attribute comm_type")?;
        let kind =
            collective(kind).ok_or_else(|| format!("comm_type is {kind}, expected 0 to 9"))?;
        let ranks = self.ranks_of(&of.group, groups)?;
        let count = ranks.len() as u64;
        let bytes = match kind {
            Collective::Barrier => 0,
            _ => of.bytes.ok_or("expected the attribute comm_size")?,
        };
        let bytes = match kind {
            Collective::AllGather | Collective::Gather => bytes.saturating_mul(count),
            _ => bytes,
        };
        let root =
            of.root.map_or(Some(0), |root| ranks.iter().position(|&rank| u64::from(rank) == root));
        let root = root.ok_or_else(|| format!("the root is not in the group {:?}", of.group))?;
        let root = if kind.has_root() { u32::try_from(root).unwrap_or(0) } else { 0 };
        let wrong = |error: GraphError| error.to_string();
        let key = (of.group.clone(), ranks);
        let group = match self.numbers.get(&key) {
            Some(&group) => group,
            None => {
                let group = self.builder.group(key.1.clone()).map_err(wrong)?;
                self.numbers.insert(key, group);
                group
            }
        };
        self.summary.take(&format!("{kind} (parts of ranks)"));
        let operation = Operation { kind, group, bytes, root };
        self.builder.collective(rank, label, operation).map_err(wrong)
    }

    /// Returns the ranks of a group, of which `groups` are those that the rank itself names.
    fn ranks_of(&self, name: &str, groups: &Groups) -> Result<Vec<u32>, String> {
        match groups.get(name).or_else(|| self.groups.get(name)) {
            Some(ranks) => Ok(ranks.clone()),
            None if name.is_empty() || name == "0" => Ok((0..self.builder.ranks()).collect()),
            None => Err(format!(
                "no group {name:?}: expected it in a file NAME.json beside NAME.0.et, \
                 or in a node of the trace"
            )),
        }
    }

    fn finish(mut self, file: &Path) -> Result<Import, ImportError> {
        if self.without_time > 0 {
            self.summary.notes.push(format!(
                "{} computations and accesses have no duration and take no time; \
                 roofline = {{ tflops = ..., memory_gbps = ... }} computes that of GPUs",
                self.without_time
            ));
        }
        let graph = self.builder.build();
        let graph = graph.map_err(|error| ImportError::graph(file, &error, false))?;
        Ok(Import { graph, summary: self.summary })
    }
}

/// The nodes of a rank.
struct OfRank<'a> {
    rank: u32,
    file: &'a Path,
    nodes: &'a [Node],
}

impl OfRank<'_> {
    /// Returns the nodes in an order in which each is behind those that it depends on, and otherwise by their ids.
    fn order(&self, summary: &mut Summary) -> Result<Vec<usize>, ImportError> {
        let mut by_id = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if by_id.insert(node.id, at).is_some() {
                let message = format!("there are two nodes of this number on rank {}", self.rank);
                return Err(ImportError::at(self.file, Place::Node(node.id), message));
            }
        }
        let mut waits = vec![0usize; self.nodes.len()];
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            for id in &node.before {
                match by_id.get(id) {
                    Some(&before) => {
                        after[before].push(at);
                        waits[at] += 1;
                    }
                    None => summary.leave("dependencies on nodes that are not in the file"),
                }
            }
        }
        let free = (0..waits.len()).filter(|&at| waits[at] == 0);
        let mut ready: BinaryHeap<_> = free.map(|at| Reverse((self.nodes[at].id, at))).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(Reverse((_, at))) = ready.pop() {
            order.push(at);
            for &next in &after[at] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(Reverse((self.nodes[next].id, next)));
                }
            }
        }
        let stuck = (0..waits.len()).find(|&at| waits[at] > 0);
        stuck.map_or(Ok(order), |at| {
            let message = "it depends on itself, through others (a cycle)";
            Err(ImportError::at(self.file, Place::Node(self.nodes[at].id), message))
        })
    }
}

fn micros(micros: u64) -> SimSpan {
    SimSpan::from_picos(micros.saturating_mul(1_000_000))
}

/// Returns the collective of a number of the schema.
const fn collective(number: u64) -> Option<Collective> {
    Some(match number {
        0 => Collective::AllReduce,
        1 => Collective::Reduce,
        2 => Collective::AllGather,
        3 => Collective::Gather,
        4 => Collective::Scatter,
        5 => Collective::Broadcast,
        6 => Collective::AllToAll,
        7 | 8 => Collective::ReduceScatter,
        9 => Collective::Barrier,
        _ => return None,
    })
}

/// Reads a message's length; `None` at the end of the file.
fn length(source: &mut Source<'_>) -> Result<Option<u64>, ImportError> {
    let mut length = 0u64;
    for shift in (0..35).step_by(7) {
        let mut byte = [0];
        if !source.read(&mut byte)? {
            return match shift {
                0 => Ok(None),
                _ => Err(source.byte_error("the file ends here, in the length of a message")),
            };
        }
        length |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            return Ok(Some(length));
        }
    }
    Err(source.byte_error("expected the length of a message, at most 5 bytes"))
}

#[cfg(test)]
mod tests;
