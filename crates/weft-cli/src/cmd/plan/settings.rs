//! The settings of `weft plan ports --for`: the variables of each server.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use weft_plan::Cluster;
use weft_plan::cluster::ServerId;
use weft_plan::stacks::{PortOrigin, Stack, Variable};
use weft_report::terminal::write_file;

/// The variables of a server.
#[derive(Debug, Serialize)]
pub(super) struct ServerSettings {
    server: String,
    variables: Vec<Variable>,
}

/// Returns the variables of the job's servers, in order of rank. `table` is the port table, for a stack that has no
/// settings of its own.
pub(super) fn of_servers(
    cluster: &Cluster,
    job: &[ServerId],
    stack: Stack,
    settings: &[u16],
    qps: usize,
    table: Option<&Path>,
) -> Vec<ServerSettings> {
    let row = stack.row();
    let count = row.settings().map_or(0, |settings| (settings.count)(qps));
    let table = match row.ports {
        PortOrigin::Table(name) => table.map(|path| (name, path)),
        PortOrigin::Settings(_) => None,
    };
    let of_server = |&server: &ServerId| {
        let first = server.index() * count;
        // A server without flows has no settings.
        let own = settings.get(first..first + count).unwrap_or_default();
        let mut variables = (row.variables)(own, qps);
        variables.extend(table.map(|(name, path)| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
            Variable { name, value: path.display().to_string() }
        }));
        ServerSettings { server: cluster.servers()[server.index()].name.clone(), variables }
    };
    job.iter().map(of_server).collect()
}

/// Writes a file SERVER.env for each server into a folder, which is made if need be.
pub(super) fn write(folder: &Path, servers: &[ServerSettings]) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for server in servers {
        if server.server.contains('/') {
            bail!("server {:?} cannot be the name of a file", server.server);
        }
        write_file(&folder.join(format!("{}.env", server.server)), &lines(server))?;
    }
    Ok(())
}

/// Returns what the settings need to have an effect, and the variables of these servers.
pub(super) fn text(stack: Stack, servers: &[ServerSettings]) -> String {
    let mut text = format!("\nFor {stack}: {}.\n", stack.row().conditions);
    for server in servers {
        write!(text, "\n# {}\n{}", server.server, lines(server)).expect("it is a string");
    }
    text
}

fn lines(server: &ServerSettings) -> String {
    server.variables.iter().map(|Variable { name, value }| format!("{name}={value}\n")).collect()
}
