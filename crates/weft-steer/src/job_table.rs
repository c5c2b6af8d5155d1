//! The table of ports of a job.

use std::str::Utf8Error;

use serde::Deserialize;
use weft_plan::output::{PortRow, PortTableError, read_port_rows};

/// The part of the output of `weft plan ports --json` and of a controller that is read here.
#[derive(Deserialize)]
struct Plan {
    queue_pairs: Vec<PortRow>,
}

/// An error in a table of ports.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobTableError {
    /// The bytes are no text.
    #[error("a port table is text: {0}")]
    NoText(#[from] Utf8Error),
    /// The JSON is not that of a plan.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The CSV is no port table.
    #[error(transparent)]
    Csv(#[from] PortTableError),
}

/// Reads a table of ports in the format of `weft plan ports`, CSV or JSON. In CSV, the columns `source` and
/// `destination` are enough.
///
/// # Errors
/// Returns the fault and its line.
pub fn read_job_table(bytes: &[u8]) -> Result<Vec<PortRow>, JobTableError> {
    let text = std::str::from_utf8(bytes)?;
    if text.trim_start().starts_with('{') {
        let plan: Plan = serde_json::from_str(text)?;
        Ok(plan.queue_pairs)
    } else {
        Ok(read_port_rows(text)?)
    }
}
