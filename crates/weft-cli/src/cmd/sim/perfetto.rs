//! `weft sim run --perfetto`: the trace's options, and the file.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use weft_report::Unit;
use weft_report::terminal::StreamedFile;
use weft_sim::fault::{LinkSelector, Place};
use weft_sim::perfetto::{MESSAGE_BYTES, Trace, Written};
use weft_sim::timeline::Timeline;
use weft_sim::{Scenario, SimSpan};
use weft_topo::{LinkId, Topology};
use weft_units::{ByteCount, Duration, Seed};

/// Options of the trace.
#[derive(Debug, clap::Args)]
pub(super) struct PerfettoArgs {
    /// Write a trace for ui.perfetto.dev: messages, faults, losses, pauses, queues and rates
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub(super) perfetto: Option<PathBuf>,
    /// Links whose queues and rates are in the trace: a number of the busiest switch ports, or
    /// all, uplinks, host-links, 3-128 (a cable between two nodes) or 3>128 (one direction)
    #[arg(long, value_name = "COUNT|LINKS", default_value = "32", requires = "perfetto")]
    pub(super) perfetto_links: Links,
    /// Size from which on messages are left out, about; a message takes 90 bytes
    #[arg(long, value_name = "SIZE", default_value = "256MB", requires = "perfetto")]
    pub(super) perfetto_size: ByteCount,
    /// First time between two values of a queue or a rate, in the trace and in the page; it
    /// doubles whenever there are 1024 values (fewer where there are more than 1024 links)
    #[arg(long, value_name = "TIME", default_value = "1us")]
    pub(super) interval: Duration,
}

/// A choice of links.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Links {
    Busiest(usize),
    Selected(LinkSelector),
}

impl FromStr for Links {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(count) = text.parse() {
            return Ok(Self::Busiest(count));
        }
        match text.parse::<LinkSelector>() {
            Ok(LinkSelector::RandomUplink | LinkSelector::BusiestUplink) | Err(_) => {
                Err("expected a number of links, all, uplinks, host-links, 3-128 or 3>128".into())
            }
            Ok(selector) => Ok(Self::Selected(selector)),
        }
    }
}

impl Links {
    /// Returns the links of a finished run.
    fn choose(&self, timeline: &Timeline, topology: &Topology) -> Result<Vec<LinkId>> {
        let selector = match self {
            Self::Busiest(count) => return Ok(timeline.busiest(topology, *count)),
            Self::Selected(selector) => selector,
        };
        let places = selector.select(topology, &mut Seed(0).rng()).context("--perfetto-links")?;
        let links = places.into_iter().filter_map(|place| match place {
            Place::Link(link) => Some(link),
            Place::Busiest { .. } => None,
        });
        Ok(links.collect())
    }
}

/// The trace of a run, while it is written.
#[derive(Debug)]
pub(super) struct TraceFile {
    pub(super) trace: Trace<BufWriter<File>>,
    file: StreamedFile,
}

impl PerfettoArgs {
    /// Opens the trace, if one is wanted.
    pub(super) fn open(
        &self,
        scenario: &Scenario,
        topology: &Topology,
    ) -> Result<Option<TraceFile>> {
        let Some(path) = &self.perfetto else { return Ok(None) };
        if let Links::Selected(selector) = &self.perfetto_links {
            selector.select(topology, &mut Seed(0).rng()).context("--perfetto-links")?;
        }
        let (file, out) = StreamedFile::open(path)?;
        let kinds = scenario.workloads.iter().map(|workload| workload.kind().name().to_owned());
        let trace = Trace::new(BufWriter::new(out), self.perfetto_size.0, kinds.collect());
        Ok(Some(TraceFile { trace, file }))
    }

    /// Writes the rest of the trace; returns what it has, in a line.
    pub(super) fn finish(
        &self,
        file: TraceFile,
        timeline: &Timeline,
        topology: &Topology,
    ) -> Result<String> {
        let links = self.perfetto_links.choose(timeline, topology)?;
        let TraceFile { trace, file } = file;
        let name = file.path().display().to_string();
        let cannot = || format!("cannot write {name}");
        let (_, written) = trace.finish(timeline, topology, &links).with_context(cannot)?;
        file.finish()?;
        Ok(self.describe(&name, written, links.len(), timeline.interval()))
    }

    fn describe(&self, name: &str, written: Written, links: usize, interval: SimSpan) -> String {
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let bytes = |bytes: u64| Unit::Bytes.format(bytes as f64);
        let which = match self.perfetto_links {
            Links::Busiest(_) => "busiest switch ports",
            Links::Selected(_) => "links",
        };
        let Written { bytes: size, messages, left_out } = written;
        let mut text = format!(
            "{name}: {}, {messages} messages, the {links} {which} every {}; open it at ui.perfetto.dev",
            bytes(size),
            Unit::Seconds.format(interval.as_secs_f64()),
        );
        if left_out > 0 {
            text += &format!(
                "\nweft: {left_out} events found no room in it: --perfetto-size {}",
                bytes(self.perfetto_size.0 + left_out * MESSAGE_BYTES).replace(' ', "")
            );
        }
        text
    }
}
