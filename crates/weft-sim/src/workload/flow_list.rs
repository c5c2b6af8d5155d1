//! Replays a file of flows: a connection matrix of htsim (`.cm`) or a flow file of the ns-3 RDMA simulators, plain or
//! compressed by gzip.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_topo::NodeId;
use weft_units::Duration;

use super::{Connections, Flow, Flows, Setting, Workload, WorkloadBuilder, WorkloadError};
use crate::time::SimTime;

mod built_in;

/// The settings of the `flow-list` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file, relative to the scenario's folder; or a list that is part of the program, such as
    /// `built-in:permutation-128-2MB.cm.gz`.
    pub file: PathBuf,
    /// The flows that share a connection.
    #[serde(default)]
    pub connections: Connections,
    /// Flows that start at this time in the file, or later, are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
}

impl WorkloadBuilder for Config {
    fn build(&self, setting: &Setting<'_>) -> Result<Box<dyn Workload>, WorkloadError> {
        let hosts = setting.topology.hosts();
        let mut flows = match built_in::name(&self.file) {
            Some(name) => built_in::read(name, hosts)?,
            None => read_flow_list(&setting.folder.join(&self.file), hosts)?,
        };
        if let Some(until) = self.until {
            flows.retain(|flow| flow.start.engine_clock().as_nanos() < until.as_nanos());
        }
        Ok(Box::new(Flows::over(self.connections, flows)))
    }
}

/// Reads a file of flows among `hosts` hosts. In ns-3's format, whose traffic begins at an arbitrary second, starts
/// are relative to the first flow's.
///
/// # Errors
/// The file cannot be read, or a line is malformed.
pub fn read_flow_list(file: &Path, hosts: u32) -> Result<Vec<Flow>, WorkloadError> {
    let unreadable = |error: std::io::Error| WorkloadError::Unreadable {
        file: file.into(),
        reason: error.to_string(),
    };
    read(File::open(file).map_err(unreadable)?, file, hosts)
}

/// Reads a list whose name, `file`, tells whether it is compressed.
fn read(raw: impl Read, file: &Path, hosts: u32) -> Result<Vec<Flow>, WorkloadError> {
    let compressed = file.extension().is_some_and(|extension| extension == "gz");
    if compressed {
        parse_flow_list(BufReader::new(flate2::read::GzDecoder::new(raw)), file, hosts)
    } else {
        parse_flow_list(BufReader::new(raw), file, hosts)
    }
}

/// Parses a list of flows among `hosts` hosts; errors name the list `file`.
///
/// # Errors
/// The list cannot be read, or a line is malformed.
pub fn parse_flow_list(
    list: impl BufRead,
    file: &Path,
    hosts: u32,
) -> Result<Vec<Flow>, WorkloadError> {
    let mut lines = Vec::new();
    for (line, text) in (1..).zip(list.lines()) {
        lines.push(text.map_err(|error| {
            let reason = format!("line {line}: {error}");
            WorkloadError::Unreadable { file: file.into(), reason }
        })?);
    }
    let list = Lines { file, lines: &lines, hosts };
    let first = list.content().next().map(|(_, text)| text);
    if first.is_some_and(|text| text.starts_with("Nodes")) {
        list.connection_matrix()
    } else {
        list.ns3()
    }
}

/// The lines of a file of flows.
struct Lines<'a> {
    file: &'a Path,
    lines: &'a [String],
    hosts: u32,
}

impl Lines<'_> {
    /// Returns the lines that are neither empty nor comments, with their numbers.
    fn content(&self) -> impl Iterator<Item = (usize, &str)> {
        let trimmed = self.lines.iter().map(|line| line.trim());
        (1..).zip(trimmed).filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
    }

    /// Returns the error for a line.
    fn error(&self, line: usize, expected: impl Into<String>, found: &str) -> WorkloadError {
        let (file, expected, found) = (self.file.into(), expected.into(), found.into());
        WorkloadError::Line { file, line, expected, found }
    }

    /// Checks that the announced number of flows equals the number found: a truncated file is not a workload.
    fn check_announced(
        &self,
        line: usize,
        announced: usize,
        flows: Vec<Flow>,
    ) -> Result<Vec<Flow>, WorkloadError> {
        if announced == flows.len() {
            return Ok(flows);
        }
        let expected = format!("as many flows as announced: {announced}");
        Err(self.error(line, expected, &format!("{} flows", flows.len())))
    }

    /// Parses a host's number.
    fn host(&self, line: usize, text: &str) -> Result<NodeId, WorkloadError> {
        let host = text.parse().ok().filter(|&host| host < self.hosts);
        let expected = || format!("a host, 0 to {}", self.hosts.saturating_sub(1));
        host.map(NodeId).ok_or_else(|| self.error(line, expected(), text))
    }

    /// Parses a flow's length.
    fn size(&self, line: usize, text: &str) -> Result<u32, WorkloadError> {
        let size = text.parse().ok().filter(|&size| size > 0);
        size.ok_or_else(|| self.error(line, format!("a size, 1 to {} bytes", u32::MAX), text))
    }

    /// Returns the flow if its hosts differ.
    fn flow(&self, line: usize, flow: Flow) -> Result<Flow, WorkloadError> {
        if flow.source == flow.destination {
            let found = format!("{0} to {0}", flow.source.0);
            return Err(self.error(line, "two different hosts", &found));
        }
        Ok(flow)
    }

    /// Parses `Nodes n`, `Connections c`, then `src->dst [id k] start <ps> size <bytes>`.
    fn connection_matrix(&self) -> Result<Vec<Flow>, WorkloadError> {
        let mut flows = Vec::new();
        let mut announced = None;
        for (line, text) in self.content() {
            let words: Vec<_> = text.split_whitespace().collect();
            match words.as_slice() {
                ["Nodes", nodes] => {
                    let fits = nodes.parse::<u32>().is_ok_and(|nodes| nodes <= self.hosts);
                    if !fits {
                        let expected = format!("at most the topology's {} hosts", self.hosts);
                        return Err(self.error(line, expected, nodes));
                    }
                }
                ["Connections", count] => {
                    let count = count.parse::<usize>();
                    let count = count.map_err(|_| self.error(line, "a number of flows", text))?;
                    announced = Some((line, count));
                }
                ["Triggers" | "Failures", "0"] => {}
                [pair, fields @ ..] => flows.push(self.connection(line, pair, fields)?),
                [] => {}
            }
        }
        match announced {
            Some((line, count)) => self.check_announced(line, count, flows),
            None => Ok(flows),
        }
    }

    /// Parses a flow of a connection matrix.
    fn connection(&self, line: usize, pair: &str, fields: &[&str]) -> Result<Flow, WorkloadError> {
        let form = "src->dst [id k] start <picoseconds> size <bytes>";
        let (source, destination) =
            pair.split_once("->").ok_or_else(|| self.error(line, form, pair))?;
        let (mut start, mut length) = (None, None);
        for field in fields.chunks(2) {
            match field {
                ["start", picos] => {
                    let picos: Option<u64> = picos.parse().ok();
                    start = Some(picos.ok_or_else(|| {
                        self.error(line, "a start in whole picoseconds", &field.join(" "))
                    })?);
                }
                ["size", bytes] => length = Some(self.size(line, bytes)?),
                ["id" | "prio", _] => {}
                other => return Err(self.error(line, form, &other.join(" "))),
            }
        }
        let (Some(start), Some(length)) = (start, length) else {
            return Err(self.error(line, form, &fields.join(" ")));
        };
        let flow = Flow {
            source: self.host(line, source)?,
            destination: self.host(line, destination)?,
            length,
            start: SimTime::from_picos(start),
        };
        self.flow(line, flow)
    }

    /// Parses the number of flows, then `src dst priority bytes start_seconds`.
    fn ns3(&self) -> Result<Vec<Flow>, WorkloadError> {
        let mut content = self.content();
        let Some((first, text)) = content.next() else {
            return Err(self.error(1, "a number of flows, or \"Nodes n\"", ""));
        };
        let announced = text.parse::<usize>();
        let announced =
            announced.map_err(|_| self.error(first, "a number of flows, or \"Nodes n\"", text))?;
        let mut flows = Vec::new();
        for (line, text) in content {
            let words: Vec<_> = text.split_whitespace().collect();
            let [source, destination, _, bytes, start] = words.as_slice() else {
                return Err(self.error(line, "src dst priority bytes start_seconds", text));
            };
            let start = picoseconds(start)
                .ok_or_else(|| self.error(line, "a start in seconds such as 2.000000027", start))?;
            let flow = Flow {
                source: self.host(line, source)?,
                destination: self.host(line, destination)?,
                length: self.size(line, bytes)?,
                start: SimTime::from_picos(start),
            };
            flows.push(self.flow(line, flow)?);
        }
        let origin = flows.iter().map(|flow| flow.start).min().unwrap_or_default();
        for flow in &mut flows {
            flow.start = SimTime::from_picos(flow.start.since(origin).as_picos());
        }
        self.check_announced(first, announced, flows)
    }
}

/// Returns seconds with up to twelve decimal places as an exact number of picoseconds.
fn picoseconds(seconds: &str) -> Option<u64> {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    if fraction.len() > 12 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let picos: u64 = format!("{fraction:0<12}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000_000)?.checked_add(picos)
}

#[cfg(test)]
mod tests;
