//! The table of ports of a job.

use serde::Deserialize;
use weft_plan::output::{PortRow, read_port_rows};

/// The part of the output of `weft plan ports --json` and of a controller that is read here.
#[derive(Deserialize)]
struct Plan {
    queue_pairs: Vec<PortRow>,
}

/// Reads a table of ports in the format of `weft plan ports`, CSV or JSON. In CSV, the columns `source` and
/// `destination` are enough.
///
/// # Errors
/// Returns the fault and its line.
pub fn read_job_table(bytes: &[u8]) -> Result<Vec<PortRow>, String> {
    let text =
        std::str::from_utf8(bytes).map_err(|error| format!("a port table is text: {error}"))?;
    if text.trim_start().starts_with('{') {
        let plan: Plan = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Ok(plan.queue_pairs)
    } else {
        read_port_rows(text).map_err(|error| error.to_string())
    }
}
