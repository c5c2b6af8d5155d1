//! The formats, and how they are recognised.

use std::path::Path;

use super::error::ImportError;
use super::source::Source;

weft_units::registry! {
    /// A format of graphs.
    pub enum Format: "format" {
        /// A connection matrix of htsim.
        Htsim => "htsim", "a connection matrix of htsim (.cm), with start times and triggers";
        /// Execution traces of MLCommons Chakra, a file for each rank.
        Chakra => "chakra", "execution traces of MLCommons Chakra (NAME.RANK.et), one file for each rank";
        /// A schedule in GOAL, as text.
        Goal => "goal", "a schedule in GOAL, as text";
        /// A schedule in GOAL, in the binary form of LogGOPSim.
        GoalBinary => "goal-binary", "a schedule in GOAL, in the binary form of LogGOPSim";
        /// A workload of SimAI or of the first version of ASTRA-sim.
        Simai => "simai", "a workload of SimAI, or of the first version of ASTRA-sim, as text";
    }
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A graph.
    Graph(Format),
    /// A list of flows of the ns-3 RDMA simulators.
    Flows,
    /// A topology of the ns-3 RDMA simulators, or SimAI's variant of it.
    Topology,
}

impl Kind {
    /// Returns the name of the kind, for texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Graph(format) => format.name(),
            Self::Flows => "a list of flows of ns-3",
            Self::Topology => "a topology of ns-3",
        }
    }
}

/// The first number of a GOAL schedule in binary form.
pub(super) const GOAL_MAGIC: u64 = 4223;
/// The policies with which workloads of SimAI and ASTRA-sim begin.
pub(super) const POLICIES: [&str; 10] = [
    "DATA",
    "MODEL",
    "MICRO",
    "TRANSFORMER",
    "HYBRID_TRANSFORMER",
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
    "HYBRID_DLRM",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_CUSTOMIZED",
];

/// Returns the kind of a file, from its content, or its name for a Chakra trace.
///
/// # Errors
/// The file cannot be read, or is of no known kind.
pub fn recognise(file: &Path) -> Result<Kind, ImportError> {
    let name = file.to_string_lossy();
    if name.ends_with(".et") || name.ends_with(".et.gz") {
        return Ok(Kind::Graph(Format::Chakra));
    }
    let mut head = [0; 8];
    if Source::open(file)?.read(&mut head).unwrap_or(false)
        && u64::from_le_bytes(head) == GOAL_MAGIC
    {
        return Ok(Kind::Graph(Format::GoalBinary));
    }
    let mut source = Source::open(file)?;
    let (mut line, mut content) = (String::new(), Vec::new());
    while content.len() < 2 && source.line() < 1000 && source.next_line(&mut line)? {
        let text = line.trim();
        if !text.is_empty() && !text.starts_with('#') && !text.starts_with("//") {
            content.push(text.to_owned());
        }
    }
    of_lines(&content).ok_or_else(|| {
        let known: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        let message = format!(
            "its format is not recognised; name it if it is one of these: {}",
            known.join(", ")
        );
        ImportError::new(file, message)
    })
}

/// Returns the kind of a text with these first lines.
fn of_lines(content: &[String]) -> Option<Kind> {
    let words: Vec<&str> = content.first()?.split_whitespace().collect();
    let numbers = words.iter().filter(|word| word.parse::<u64>().is_ok()).count();
    let second = content.get(1).map_or(0, |line| line.split_whitespace().count());
    match words.as_slice() {
        ["Nodes", _] => Some(Kind::Graph(Format::Htsim)),
        ["num_ranks", ..] => Some(Kind::Graph(Format::Goal)),
        [first, ..] if POLICIES.contains(first) => Some(Kind::Graph(Format::Simai)),
        [_, _, _] if numbers == 3 => Some(Kind::Topology),
        [_, _, _, _, _, _] if numbers == 5 => Some(Kind::Topology),
        [_] if numbers == 1 && second == 5 => Some(Kind::Flows),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_recognised_by_their_first_lines() {
        for (lines, want) in [
            (&["Nodes 16", "Connections 3"][..], Some(Kind::Graph(Format::Htsim))),
            (&["num_ranks 2"], Some(Kind::Graph(Format::Goal))),
            (&["MICRO", "1"], Some(Kind::Graph(Format::Simai))),
            (&["144 16 192", "128 129"], Some(Kind::Topology)),
            (&["20 8 2 2 24 A100", "16 17"], Some(Kind::Topology)),
            (&["2", "0 1 3 2000 2.0"], Some(Kind::Flows)),
            (&["hello", "world"], None),
            (&[], None),
        ] {
            let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
            assert_eq!(of_lines(&lines), want, "{lines:?}");
        }
    }
}
