//! The table of ports that comes with a job.

use serde::Deserialize;
use weft_plan::output::{PortRow, read_port_rows};

/// What `weft plan ports --json` and a controller print, as far as it counts here.
#[derive(Deserialize)]
struct Plan {
    queue_pairs: Vec<PortRow>,
}

/// Reads a table of ports as `weft plan ports` writes it, CSV or JSON; of CSV, the columns `source` and `destination` are
/// enough.
///
/// # Errors
/// What is wrong with it, with its line.
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
