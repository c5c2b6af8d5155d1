//! Rows as nccl-tests prints them, and as JSON.

use serde::Serialize;

/// A result of one collective at one size.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) collective: &'static str,
    pub(super) size: usize,
    pub(super) count: usize,
    #[serde(rename = "type")]
    pub(super) data_type: &'static str,
    pub(super) redop: &'static str,
    pub(super) root: i64,
    pub(super) iterations: u64,
    /// The mean time of a call over ranks and iterations, in microseconds.
    pub(super) time_us: f64,
    /// The size over the mean time, in gigabytes (10^9 bytes) per second.
    pub(super) algbw: f64,
    /// `algbw` times the collective's bus factor, in gigabytes per second.
    pub(super) busbw: f64,
    /// Number of wrong elements over all ranks; `None` if results were not checked.
    pub(super) wrong: Option<u64>,
    /// The share of blocks that went over the network, 0 to 1, if there are two channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) over_network: Option<f64>,
}

/// All results of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) ranks: usize,
    pub(super) channels: &'static str,
    /// The ranks of each server.
    pub(super) servers: Vec<Vec<usize>>,
    pub(super) lanes: usize,
    pub(super) algorithm: String,
    pub(super) rows: Vec<Row>,
    pub(super) average_busbw: f64,
    pub(super) wrong: u64,
}

impl Report {
    pub(super) fn head(&self) -> String {
        let Self { ranks, channels, servers, lanes, algorithm, .. } = self;
        let channels = match servers.len() {
            // No rank shares memory.
            all if all == *ranks => format!("channels {channels}"),
            _ => format!("channels {channels}, servers {servers:?}"),
        };
        format!("# ranks {ranks}, {channels}, lanes {lanes}, algorithm {algorithm}\n")
    }

    pub(super) fn tail(&self) -> String {
        format!(
            "# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.4}\n",
            self.wrong,
            if self.wrong == 0 { "OK" } else { "FAILED" },
            self.average_busbw
        )
    }
}

/// Returns the heading above a collective's rows.
pub(super) fn heading(collective: &str, shared: bool) -> String {
    let (over, share) = if shared { (" network", "     (%)") } else { ("", "") };
    format!(
        "#\n# {collective}, in place\n\
         #{:>12}{:>14}{:>10}{:>8}{:>8}{:>12}{:>9}{:>9}{:>8}{over}\n\
         #{:>12}{:>14}{:>10}{:>8}{:>8}{:>12}{:>9}{:>9}{:>8}{share}\n",
        "size",
        "count",
        "type",
        "redop",
        "root",
        "time",
        "algbw",
        "busbw",
        "#wrong",
        "(B)",
        "(elements)",
        "",
        "",
        "",
        "(us)",
        "(GB/s)",
        "(GB/s)",
        "",
    )
}

impl Row {
    pub(super) fn text(&self) -> String {
        let Self { size, count, data_type, redop, root, time_us, algbw, busbw, .. } = self;
        let wrong = self.wrong.map_or_else(|| "N/A".into(), |wrong| wrong.to_string());
        let share =
            self.over_network.map_or_else(String::new, |share| format!("{:>8.1}", 100.0 * share));
        format!(
            " {size:>12}{count:>14}{data_type:>10}{redop:>8}{root:>8}{time_us:>12.1}{algbw:>9.4}{busbw:>9.4}{wrong:>8}{share}\n"
        )
    }
}
