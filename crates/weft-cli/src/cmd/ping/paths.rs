//! `weft ping paths`: probes the paths to other hosts with UDP packets from known source ports, and reports them to a
//! route controller.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::json;
use weft_report::terminal::Output;
use weft_route::ProbeReport;
use weft_steer::probe::{PROBE_PORT, ProbePlan, Prober};
use weft_units::Duration;

use super::hosts::Hosts;
use crate::cmd::route::ControllerOptions;
use crate::interrupt::until_interrupted;
use crate::log::LogOptions;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft ping paths --from 10.1.0.2 --file hosts.toml --controller 10.9.0.1:7490 --token-file token    on every host
  weft ping paths --from 10.1.0.2 10.1.0.2 10.2.0.2 10.3.0.2 --ports 8 --every 10ms --token-file token
  weft route status                                  the links that the controller finds

Every host answers the others' probes, and probes --peers of them over --ports paths each. It sends a probe a path every \
--every, at most --rate a second, and answers as many as it gets: 86 bytes on the wire each. By default these are 32 paths, 1,600 \
probes and 1,600 answers a second, 2.2 Mb/s in each direction.")]
pub(super) struct Paths {
    /// The hosts that probe each other, this one among them; ports are ignored
    hosts: Vec<String>,
    /// Hosts by ToR, as TOML
    #[arg(long, value_name = "FILE", conflicts_with = "hosts", required_unless_present = "hosts")]
    file: Option<PathBuf>,
    /// The address of this host, from which it probes
    #[arg(long, value_name = "ADDRESS")]
    from: IpAddr,
    /// The most hosts to probe: those at equal distances in the list, from this one on
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    peers: u16,
    /// Number of UDP source ports, each of which is a path to every peer
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    ports: u16,
    /// The first of these ports; the default is below the kernel's ephemeral ports and those that plans give to jobs
    #[arg(long, value_name = "PORT", default_value_t = 31_000)]
    first_port: u16,
    /// The UDP port at which all hosts answer
    #[arg(long, value_name = "PORT", default_value_t = PROBE_PORT)]
    port: u16,
    /// Time between two probes of a path
    #[arg(long, value_name = "INTERVAL", default_value = "20ms")]
    every: Duration,
    /// The most probes per second; with more paths, a path is probed less often
    #[arg(long, value_name = "COUNT", default_value_t = 2000)]
    rate: u32,
    /// Time after which a probe is lost
    #[arg(long, default_value = "100ms")]
    timeout: Duration,
    /// Interval of reports to the controller
    #[arg(long, value_name = "INTERVAL", default_value = "200ms")]
    report: Duration,
    #[command(flatten)]
    at: ControllerOptions,
}

impl Paths {
    /// Returns the settings of the prober.
    ///
    /// # Errors
    /// Returns an error if the hosts cannot be read, or this one is not among them.
    fn plan(&self) -> Result<ProbePlan> {
        let hosts = match &self.file {
            Some(file) => Hosts::read(file, &[])?,
            None => Hosts::of(&self.hosts)?,
        };
        let mut known = BTreeSet::new();
        let addresses = hosts.0.iter().map(|host| host.at.ip()).filter(|&it| known.insert(it));
        let hosts: Vec<IpAddr> = addresses.collect();
        let std = |span: Duration| std::time::Duration::from_nanos(span.as_nanos());
        Ok(ProbePlan {
            source: self.from,
            port: self.port,
            destinations: peers(&hosts, self.from, usize::from(self.peers))?,
            hosts,
            first_port: self.first_port,
            ports: self.ports,
            interval: std(self.every),
            rate: self.rate,
            timeout: std(self.timeout),
            report: std(self.report),
        })
    }
}

/// Returns up to `count` hosts at equal distances in the list, the next one after `from` first. If all hosts do this,
/// each is probed by equally many.
///
/// # Errors
/// Returns an error if `from` is not in the list, or nobody else is.
fn peers(hosts: &[IpAddr], from: IpAddr, count: usize) -> Result<Vec<IpAddr>> {
    let Some(place) = hosts.iter().position(|&it| it == from) else {
        bail!("--from {from} is none of the {} hosts", hosts.len());
    };
    let others = hosts.len() - 1;
    if others == 0 {
        bail!("{from} is the only host; it needs others to probe");
    }
    let count = count.min(others);
    Ok((0..count).map(|peer| hosts[(place + 1 + peer * others / count) % hosts.len()]).collect())
}

pub(super) fn run(arguments: Paths, output: Output) -> Result<ExitCode> {
    LogOptions::default().start_alone()?;
    let plan = arguments.plan()?;
    let (paths, peers, spacing) = (plan.paths(), plan.destinations.len(), plan.spacing());
    let mut prober = Prober::open(plan)?;
    let stop = until_interrupted()?;
    output.value(&json!({ "paths": paths, "peers": peers }), || {
        let rate = 1.0 / spacing.as_secs_f64();
        format!(
            "probing {paths} paths to {peers} hosts, {rate:.0} probes a second; interrupt to stop"
        )
    })?;
    // A controller that is slow loses reports. Probes do not wait for it.
    let (reports, queue) = sync_channel(1);
    let at = arguments.at;
    let sender = thread::Builder::new().name("reports".into());
    sender.spawn(move || send(&at, &queue)).context("cannot start a thread")?;
    prober.run(|| stop.load(Ordering::Relaxed), |report| drop(reports.try_send(report)))?;
    Ok(ExitCode::SUCCESS)
}

/// Sends reports to the controller until the prober ends. One line is logged for each fault, which may last.
fn send(at: &ControllerOptions, reports: &Receiver<ProbeReport>) {
    let mut fault = None;
    for report in reports {
        let body = serde_json::to_vec(&report).expect("plain values");
        let now = at.fetch("/v1/probes", Some(body)).err().map(|error| format!("{error:#}"));
        if let Some(why) = now.as_ref().filter(|why| fault.as_ref() != Some(*why)) {
            tracing::warn!(why, "the controller does not take reports of probes; probes go on");
        }
        fault = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn every_host_is_probed_by_equally_many() {
        let hosts: Vec<IpAddr> = (0..10).map(host).collect();
        assert_eq!(peers(&hosts, host(8), 3).unwrap(), [host(9), host(2), host(5)]);
        for count in [1, 3, 9, 100] {
            let all = hosts.iter().flat_map(|&from| {
                let peers = peers(&hosts, from, count).unwrap();
                assert!(!peers.contains(&from));
                peers
            });
            let all: Vec<IpAddr> = all.collect();
            for host in &hosts {
                let probed_by = all.iter().filter(|it| *it == host).count();
                assert_eq!(probed_by, count.min(9), "{host}");
            }
        }
    }

    #[test]
    fn a_host_outside_the_list_or_alone_is_refused() {
        let error = |hosts: &[IpAddr]| peers(hosts, host(1), 8).unwrap_err().to_string();
        assert!(error(&[host(2), host(3)]).contains("--from 10.0.0.1 is none of the 2 hosts"));
        assert!(error(&[host(1)]).contains("the only host"));
    }
}
