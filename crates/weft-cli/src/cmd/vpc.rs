//! `weft vpc`: the reliable multipath overlay for unmodified tenants.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::json;
use weft_vpc::{AclConfig, Action, Limit, PortPolicies};
use weft_vswitch::Status;
use weft_vswitch::config::{CONTROL, Mac, Port, Tap, VhostUser};
use weft_vswitch::control::{Answer, Request, send_request};

use weft_report::terminal::Output;

mod capture;
mod changes;
pub(crate) mod metrics;
mod reload;
mod route;
mod serve;
mod show;
mod try_out;

/// Carry tenants' networks between hosts: reliable, over every path, for unmodified VMs and containers
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  sudo weft vpc try --loss 1%                    two hosts, two tenants, a lossy fabric, a shell in one of them
  sudo weft vpc serve --config /etc/weft/vpc.toml   the daemon; one a host
  weft vpc status                                ports, pairs, paths and their health
  weft vpc port add web --vni 100 --mac 02:00:00:00:07:01 --tap eth0 --namespace web --address 192.168.7.1/24
  weft vpc peer add 100 10.0.2.2                 another host has ports of network 100
  weft vpc route add 100 10.9.0.0/16 192.168.7.9  the gateway sends packets for 10.9.0.0/16 to the machine 192.168.7.9
  weft vpc limit web --ingress 1Gbps
  weft vpc acl web 'deny ingress tcp to any port 22'

Tenants are network namespaces, containers and bare hosts (TAP), QEMU guests and DPDK programs (vhost-user). Peers \
that support only VXLAN are sent VXLAN. docs/overlay.md has the configuration."
)]
pub(crate) struct Args {
    /// The daemon's control socket
    #[arg(long, global = true, value_name = "PATH", default_value = CONTROL)]
    control: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve until interrupted
    Serve(serve::Serve),
    /// Show ports, pairs of interfaces, their paths and health
    #[command(after_help = "\
Examples:
  weft vpc status
  weft vpc status --json | jq '.pairs[].paths[] | select(.up | not)'")]
    Status,
    /// Add, list and remove tenants' interfaces
    #[command(subcommand)]
    Port(PortVerb),
    /// Add and remove the hosts that have ports of a network
    #[command(subcommand)]
    Peer(PeerVerb),
    /// Add, list and remove static locations of machines and prefixes
    #[command(subcommand)]
    Route(route::Route),
    /// Check a port's packets against an access list; without rules, remove the list
    #[command(after_help = "\
Examples:
  weft vpc acl web 'deny ingress tcp to any port 22' 'allow ingress any'
  weft vpc acl web --deny 'allow ingress tcp to any port 80' 'allow egress any'
  weft vpc acl web                                          remove the list

A rule is: [PRIORITY] allow|deny ingress|egress [PROTOCOL] [from NET [port PORTS]] [to NET [port PORTS]]. What the \
receiver's list drops is acknowledged, and not sent again.")]
    Acl {
        /// The port
        port: String,
        /// The rules, in their order
        rules: Vec<String>,
        /// Deny what no rule matches [default: allow it]
        #[arg(long)]
        deny: bool,
    },
    /// Limit the rates of a port; an option that is not given means no limit
    #[command(after_help = "\
Examples:
  weft vpc limit web --ingress 1Gbps --egress 500Mbps
  weft vpc limit web                                    remove the limits")]
    Limit {
        /// The port
        port: String,
        /// Rate to the tenant, such as 1Gbps; excess packets slow their sender
        #[arg(long, value_name = "RATE")]
        ingress: Option<weft_units::BitRate>,
        /// Rate from the tenant
        #[arg(long, value_name = "RATE")]
        egress: Option<weft_units::BitRate>,
    },
    /// Drop frames between the switch and a port on purpose, to observe their retransmission
    #[command(after_help = "\
Examples:
  weft vpc lose web 1%
  weft vpc lose web 0%")]
    Lose {
        /// The port
        port: String,
        /// The share of frames for its tenant that is dropped
        loss: weft_lab::Probability,
    },
    /// Write a port's packets to a file for Wireshark, until interrupted
    Capture(capture::Capture),
    /// List the changes made by command, which reloads and restarts keep
    #[command(after_help = "\
Examples:
  weft vpc changes
  weft vpc reload --config /etc/weft/vpc.toml --discard-changes    back to the file")]
    Changes,
    /// Apply a changed configuration and file of peers to a running daemon; its tenants' connections continue
    Reload(reload::Reload),
    /// Start a trial: two hosts, two tenants and a fabric on this machine
    Try(try_out::Try),
}

#[derive(Debug, Subcommand)]
enum PortVerb {
    /// Add an interface
    #[command(after_help = "\
Examples:
  weft vpc port add web --vni 100 --mac 02:00:00:00:07:01 --tap eth0 --namespace web --address 192.168.7.1/24
  weft vpc port add db --vni 100 --mac 02:00:00:00:07:02 --vhost-user /run/weft/db.sock
  qemu-system-x86_64 ... -object memory-backend-memfd,id=m,size=1G,share=on -machine pc,memory-backend=m \\
    -chardev socket,id=c,path=/run/weft/db.sock -netdev vhost-user,id=n,chardev=c \\
    -device virtio-net-pci,netdev=n,mac=02:00:00:00:07:02")]
    Add(Add),
    /// List interfaces
    #[command(after_help = "\
Example:
  weft vpc port list --json")]
    List,
    /// Remove an interface
    #[command(after_help = "\
Example:
  weft vpc port del web")]
    Del {
        /// Its name
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The port's name
    name: String,
    /// Its network
    #[arg(long)]
    vni: u32,
    /// Its Ethernet address
    #[arg(long)]
    mac: Mac,
    /// A TAP interface of this name
    #[arg(
        long,
        value_name = "INTERFACE",
        conflicts_with = "vhost_user",
        required_unless_present = "vhost_user"
    )]
    tap: Option<String>,
    /// The network namespace of the TAP interface
    #[arg(long, value_name = "NAME|PATH", requires = "tap")]
    namespace: Option<String>,
    /// Keep the TAP interface when the daemon ends
    #[arg(long, requires = "tap")]
    persistent: bool,
    /// A vhost-user socket
    #[arg(long, value_name = "PATH")]
    vhost_user: Option<PathBuf>,
    /// The front end listens at the socket, and the daemon connects
    #[arg(long, requires = "vhost_user")]
    connect: bool,
    /// An address of the tenant, as 192.168.7.1/24
    #[arg(long = "address", value_name = "ADDRESS/LENGTH")]
    addresses: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum PeerVerb {
    /// Add a host
    #[command(after_help = "\
Example:
  weft vpc peer add 100 10.0.2.2")]
    Add {
        /// The network
        vni: u32,
        /// The host
        peer: IpAddr,
    },
    /// Remove a host
    #[command(after_help = "\
Example:
  weft vpc peer del 100 10.0.2.2")]
    Del {
        /// The network
        vni: u32,
        /// The host
        peer: IpAddr,
    },
}

impl Add {
    fn port(self) -> Port {
        let Self { name, vni, mac, tap, namespace, persistent, vhost_user, connect, addresses } =
            self;
        Port {
            name,
            vni,
            mac,
            addresses,
            labels: BTreeMap::new(),
            mirror: None,
            await_policies: false,
            policies: PortPolicies::default(),
            tap: tap.map(|interface| Tap { interface, namespace, persistent, mtu: None }),
            vhost_user: vhost_user.map(|socket| VhostUser { connect, ..VhostUser::at(socket) }),
        }
    }
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    let Args { control, verb } = arguments;
    let (request, done) = match verb {
        Verb::Serve(serve) => return serve::run(serve, output),
        Verb::Capture(options) => return capture::run(&control, &options, output),
        Verb::Try(options) => return try_out::run(options, output),
        Verb::Status => {
            show::status(&status(&control)?, output)?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Changes => {
            changes::run(&control, output)?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Port(PortVerb::List) => {
            show::ports(&status(&control)?.ports, output)?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Port(PortVerb::Add(add)) => {
            let port = add.port();
            let done = format!("added {}", port.name);
            (Request::AddPort { port: port.into() }, done)
        }
        Verb::Port(PortVerb::Del { name }) => {
            let done = format!("removed {name}");
            (Request::RemovePort { name }, done)
        }
        Verb::Peer(PeerVerb::Add { vni, peer }) => {
            (Request::Peer { vni, peer, remove: false }, format!("network {vni} reaches {peer}"))
        }
        Verb::Peer(PeerVerb::Del { vni, peer }) => {
            (Request::Peer { vni, peer, remove: true }, format!("network {vni} left {peer}"))
        }
        Verb::Route(route::Route::List) => {
            route::list(&status(&control)?, output)?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Route(route::Route::Add(add)) => add.request()?,
        Verb::Route(route::Route::Del(del)) => del.request(),
        Verb::Reload(options) => return reload::run(&control, &options, output),
        Verb::Acl { port, rules, deny } => {
            let acl = access_list(&port, &rules, deny)?;
            let done = format!("{} rules for {port}", rules.len());
            (Request::Acl { port, acl }, done)
        }
        Verb::Lose { port, loss } => {
            let done = format!("losing {loss} of the frames for {port}");
            (Request::Lose { port, loss }, done)
        }
        Verb::Limit { port, ingress, egress } => {
            let limit = |rate| Some(Limit { rate: Some(rate), ..Limit::default() });
            let (ingress, egress) = (ingress.and_then(limit), egress.and_then(limit));
            let done = format!("limited {port}");
            (Request::Limit { port, ingress, egress }, done)
        }
    };
    send(&control, &request)?;
    output.value(&json!({ "done": done }), || done.clone())?;
    Ok(ExitCode::SUCCESS)
}

/// The error for an answer to another request.
const WRONG_KIND: &str = "the daemon sent a response of the wrong kind";

/// Sends the daemon a request that has no result.
///
/// # Errors
/// Returns the daemon's reason if it refuses, or an error if it cannot be reached.
fn send(control: &Path, request: &Request) -> Result<()> {
    match send_request(control, request)? {
        Answer::Done => Ok(()),
        Answer::Refused(why) => bail!(why),
        _ => bail!(WRONG_KIND),
    }
}

fn access_list(port: &str, rules: &[String], deny: bool) -> Result<Option<AclConfig>> {
    if rules.is_empty() && !deny {
        return Ok(None);
    }
    let rules = rules.iter().map(|rule| Ok(rule.parse()?)).collect::<Result<_>>()?;
    let default = if deny { Action::Deny } else { Action::Allow };
    Ok(Some(AclConfig { name: format!("{port}-list"), default, rules }))
}

fn status(control: &Path) -> Result<Status> {
    match send_request(control, &Request::Status)? {
        Answer::Status(status) => Ok(*status),
        Answer::Refused(why) => bail!(why),
        _ => bail!(WRONG_KIND),
    }
}
