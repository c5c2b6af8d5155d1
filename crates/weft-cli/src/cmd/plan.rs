//! `weft plan`: plans orders of servers, paths inside them and source ports, for collectives.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use weft_report::terminal::Output;

mod cluster_file;
mod ports;
mod ring;
mod settings;
mod show;

pub(super) use self::ports::Protocol;

/// Plan a cluster's collectives: the order of servers, their NICs and their source ports
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft plan show plans/astral.toml                        the contents of the file: servers, blocks, rails, switches
  weft plan ring plans/astral.toml --shuffle 1            a ring in rank order and a planned one
  weft plan ring cluster.toml --hostfile hosts --rankfile ranks --graph graph.xml
  weft plan ports plans/astral.toml --csv ports.csv       a source port for every queue pair

A cluster is a TOML file (docs/planning.md), or NCCL's topology XML for the inside of one server."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show a cluster as its file describes it
    #[command(after_help = "\
Examples:
  weft plan show plans/astral.toml
  weft plan show topo.xml                  what NCCL_TOPO_DUMP_FILE wrote
  weft plan show cluster.toml --json | jq '.servers[] | {name, block}'")]
    Show(show::ShowArgs),
    /// Plan the order of servers, and the rings through their GPUs and NICs
    #[command(after_help = "\
Examples:
  weft plan ring plans/by-name.toml                       the order, and the transfers that it saves
  weft plan ring plans/astral.toml --servers 140 --shuffle 7
  weft plan ring cluster.toml --hostfile hosts --rankfile ranks     for mpirun --rankfile ranks
  weft plan ring cluster.toml --graph graph.xml           for NCCL_GRAPH_FILE=graph.xml on every server
  weft plan ring cluster.toml --tuner tuner.csv           for WEFT_NCCL_TUNER=tuner.csv, NCCL_TUNER_PLUGIN=libnccl-tuner-weft.so
  weft plan ring topo.xml --graph graph.xml               the inside of one server only

NCCL follows the graph inside of servers; the order of servers it takes from the ranks, so use both files.
`as NCCL is described` enters a server by one NIC and leaves it by the one before (Astral, section 3.2); with
NCCL_CROSS_NIC=0 NCCL itself stays on a rail, which is the second row.")]
    Ring(ring::RingArgs),
    /// Plan source ports for all queue pairs of a collective, so that their flows share no links
    #[command(after_help = "\
Examples:
  weft plan ports plans/astral.toml --csv ports.csv       rings over all servers, four queue pairs a connection
  weft plan ports plans/by-name.toml --traffic all-to-all --json
  weft plan ports cluster.toml --hostfile hosts --down 'leaf-a0/spine-1'    around a failed link
  weft plan ports cluster.toml --protocol tcp --to-port 5201
  weft plan ports cluster.toml --total 16777216           look longer where hashes cannot be solved
  weft plan ports cluster.toml --for mooncake --settings env      a file with variables for each server

The table gives for each queue pair the UDP source port (mlx5dv_modify_qp_udp_sport) and the flow label with
which kernel drivers send from it. The bound is the least load of the busiest link, for any choice of ports.
Programs with one list of ports for all peers (`weft list settings`) seldom reach it: --for plans what they can set.")]
    Ports(ports::PortsArgs),
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb {
        Verb::Show(arguments) => show::run(&arguments, output),
        Verb::Ring(arguments) => ring::run(&arguments, output),
        Verb::Ports(arguments) => ports::run(&arguments, output),
    }?;
    Ok(ExitCode::SUCCESS)
}
