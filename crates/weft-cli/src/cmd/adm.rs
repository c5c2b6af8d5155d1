//! `weft adm`: parameters of running programs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::json;
use weft_guard::Token;
use weft_report::{Cell, Column, Table};
use weft_stat::Request;

use crate::http::{ClientOptions, Server, block_on};
use crate::monitor::{Order, Outcome, Which, carry_out};
use weft_report::terminal::{Output, render};

/// Read and change parameters of running programs, one or all, on this host or on others
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft adm list                                     every parameter of every program of this user
  weft adm get keepalive                            one parameter of all programs
  weft adm set trace_every 100 --node kv_server     trace one call in a hundred of that program
  weft adm set keepalive 200ms --all
  weft adm set keepalive 200ms --all --hosts 10.0.0.1:7475,10.0.0.2:7475 --token-file token
  weft adm list --hosts https://10.0.0.1:7475 --ca ca.pem --certificate me.pem --key me.key
  weft adm token token                              a new token, in a file that only this user reads

A program applies a change when it next polls its sockets: at once when it sleeps, within a millisecond when it polls. Off-line \
parameters are fixed when a program starts. Other hosts are reached through their `weft monitor agent`, which must \
have been given the same token, or the authority of this client's certificate."
)]
pub(crate) struct Args {
    /// The folder in which programs publish their state
    #[arg(long, global = true, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Agents of other hosts to ask, instead of this host's programs
    #[arg(long, global = true, value_name = "HOST:PORT", value_delimiter = ',')]
    hosts: Vec<String>,
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List parameters, their values, and whether they may change while a program runs
    #[command(after_help = "\
Examples:
  weft adm list
  weft adm list kv_server
  weft adm list 4711 --json")]
    List {
        /// Programs, by name or process number [default: all]
        node: Vec<String>,
    },
    /// Show one parameter of all programs
    #[command(after_help = "\
Example:
  weft adm get slow_threshold")]
    Get {
        /// The parameter
        name: String,
        /// Programs, by name or process number [default: all]
        #[arg(long)]
        node: Vec<String>,
    },
    /// Change a parameter while programs run
    #[command(after_help = "\
Examples:
  weft adm set slow_threshold 1ms --node kv_server
  weft adm set memory_limit 256MiB --node 4711 --node 4712
  weft adm set keepalive 200ms --all")]
    Set {
        /// The parameter
        name: String,
        /// Its new value
        value: String,
        /// Programs, by name or process number
        #[arg(long, required_unless_present = "all")]
        node: Vec<String>,
        /// All programs
        #[arg(long, conflicts_with = "node")]
        all: bool,
    },
    /// Make a token for daemons and jobs, in a new file
    #[command(after_help = "\
Examples:
  weft adm token token; weft monitor agent --listen 10.0.0.1:7475 --token-file token
  weft adm token job-token; WEFT_JOB_TOKEN_FILE=job-token weft coll perf --rank 0 --of 2 --at 10.0.0.1:47000

The file's mode is 0600; a file that other users may read or write is not taken for a token. Copy it to other hosts by \
a way that others cannot read.")]
    Token {
        /// The file, which must not be there yet
        file: PathBuf,
    },
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let Args { folder, hosts, client, verb } = arguments;
    let called = |nodes: Vec<String>| {
        if nodes.is_empty() { Which::All } else { Which::Called(nodes) }
    };
    let (which, ask, only) = match verb {
        Verb::Token { file } => {
            Token::create(&file)?;
            let made = file.display().to_string();
            output.value(&json!({ "token_file": made }), || format!("a new token is in {made}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::List { node } => (called(node), Request::List, None),
        Verb::Get { name, node } => (called(node), Request::List, Some(name)),
        Verb::Set { name, value, node, all: _ } => {
            (called(node), Request::Set { name, value }, None)
        }
    };
    let order = Order { which, ask };
    if hosts.is_empty() && !client.is_empty() {
        bail!("a token or a certificate is for other hosts' agents: name them with --hosts");
    }
    let mut outcomes = if hosts.is_empty() {
        carry_out(folder.as_deref(), &order)?
    } else {
        from_agents(&hosts, &client, &order)?
    };
    if outcomes.is_empty() {
        bail!(
            "no program {}writes statistics there: `weft stat nodes` lists those that do",
            match &order.which {
                Which::All => String::new(),
                Which::Called(names) => format!("called {} ", names.join(" or ")),
            }
        );
    }
    if let Some(name) = &only {
        keep(&mut outcomes, name)?;
    }
    output.value(&outcomes, || table(&outcomes))?;
    let refused = outcomes.iter().filter_map(|outcome| Some((outcome, outcome.error.as_ref()?)));
    let refused: Vec<String> = refused
        .map(|(outcome, why)| format!("{} ({}): {why}", outcome.program, outcome.pid))
        .collect();
    if refused.is_empty() { Ok(ExitCode::SUCCESS) } else { bail!("{}", refused.join("; ")) }
}

/// Sends the order to the agents of other hosts, which carry it out.
fn from_agents(hosts: &[String], client: &ClientOptions, order: &Order) -> Result<Vec<Outcome>> {
    let credentials = client.read()?;
    let body = serde_json::to_vec(order).context("an order has a form")?;
    let mut outcomes = Vec::new();
    for host in hosts {
        let asked = Server::agent(host).fetch("/v1/orders", Some(body.clone()), &credentials);
        let answer = block_on(asked)?.with_context(|| format!("asking the agent of {host}"))?;
        let answered: Vec<Outcome> = serde_json::from_slice(&answer)
            .with_context(|| format!("{host} is no agent of `weft monitor`"))?;
        let named = answered.into_iter().map(|it| Outcome { host: Some(host.clone()), ..it });
        outcomes.extend(named);
    }
    Ok(outcomes)
}

/// Keeps one parameter of each outcome.
fn keep(outcomes: &mut [Outcome], name: &str) -> Result<()> {
    let names: Vec<String> =
        outcomes.iter().flat_map(|it| &it.settings).map(|setting| setting.name.clone()).collect();
    if !names.is_empty() && !names.iter().any(|known| known == name) {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        bail!("{}", weft_units::unknown_name("parameter", name, &known));
    }
    outcomes.iter_mut().for_each(|it| it.settings.retain(|setting| setting.name == name));
    Ok(())
}

fn table(outcomes: &[Outcome]) -> String {
    let remote = outcomes.iter().any(|it| it.host.is_some());
    let mut columns = vec![
        Column::text("program", "program"),
        Column::number("pid", "pid"),
        Column::text("parameter", "name"),
        Column::text("value", "value"),
        Column::text("", "online"),
        Column::text("", "about"),
    ];
    if remote {
        columns.insert(0, Column::text("host", "host"));
    }
    let mut table = Table::new(columns);
    let text = |text: &str| Cell::new(text, text);
    for outcome in outcomes {
        for setting in &outcome.settings {
            let mut row = vec![
                text(&outcome.program),
                Cell::new(outcome.pid.to_string(), outcome.pid),
                text(&setting.name),
                text(&setting.value),
                text(if setting.online { "on-line" } else { "off-line" }),
                text(&setting.about),
            ];
            if remote {
                row.insert(0, text(outcome.host.as_deref().unwrap_or_default()));
            }
            table.push(row);
        }
    }
    if table.is_empty() { String::new() } else { render(&table) }
}
