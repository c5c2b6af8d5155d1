//! The questions of a sample: to programs' files, agents, the daemons' sockets and the controller.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use weft_steer::View;
use weft_verbs::{Admin, DeviceState};
use weft_vswitch::Status;
use weft_vswitch::control::{Answer, Request, send_request};

use super::question::{MAX_WAIT, Question};
use super::sample::{Programs, Sample};
use crate::http::{Credentials, Server, block_on};
use crate::monitor::Report;
use crate::stat::{Host, folders};

/// The largest number of devices on a page: a daemon may have 64,000.
const MAX_DEVICES: usize = 256;

/// The places of the sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// The folder in which this host's programs publish their state; `None` for the default ones.
    pub(crate) folder: Option<PathBuf>,
    /// Agents of `weft monitor`, `HOST:PORT` each, which are asked in place of this host's programs.
    pub(crate) agents: Vec<String>,
    /// The control socket of the overlay's daemon; `None` if it is not asked.
    pub(crate) overlay: Option<PathBuf>,
    /// `true` if the device's daemon is asked.
    pub(crate) with_device: bool,
    /// Its socket; `None` for the default one.
    pub(crate) device: Option<PathBuf>,
    /// The route controller, `HOST:PORT`.
    pub(crate) controller: String,
    /// The credentials that agents and the controller are shown.
    pub(crate) credentials: Credentials,
}

/// The questions of each sample.
#[derive(Debug)]
pub(crate) struct Collector {
    programs: Vec<Question<Programs>>,
    overlay: Option<Question<Status>>,
    device: Option<Question<Vec<DeviceState>>>,
    controller: Question<View>,
}

impl Collector {
    /// Returns the questions to these sources.
    pub(crate) fn new(places: Places) -> Self {
        let Places { folder, agents, overlay, with_device, device, controller, credentials } =
            places;
        let programs = if agents.is_empty() {
            vec![Question::new("programs", move || programs_here(folder.clone()))]
        } else {
            let question = |host: String| {
                let credentials = credentials.clone();
                let name = format!("agent {host}");
                Question::new(name, move || programs_of(&host, &credentials))
            };
            agents.into_iter().map(question).collect()
        };
        let ask_overlay = |socket: PathBuf| {
            Question::new("overlay", move || match send_request(&socket, &Request::Status)? {
                Answer::Status(status) => Ok((now(), *status)),
                Answer::Refused(reason) => bail!(reason),
                _ => bail!("the daemon sent a response of the wrong kind"),
            })
        };
        let ask_device = || {
            Question::new("device", move || {
                let devices = Admin::connect(device.as_deref())?.list_used(MAX_DEVICES)?;
                Ok((now(), devices))
            })
        };
        Self {
            programs,
            overlay: overlay.map(ask_overlay),
            device: with_device.then(ask_device),
            controller: Question::new("controller", move || {
                Ok((now(), controller_view(&controller, &credentials)?))
            }),
        }
    }

    /// Asks all sources at once, and waits for their answers, for a limited time.
    pub(crate) fn sample(&mut self) -> Sample {
        self.programs.iter_mut().for_each(Question::ask);
        self.overlay.iter_mut().for_each(Question::ask);
        self.device.iter_mut().for_each(Question::ask);
        self.controller.ask();
        let deadline = Instant::now() + MAX_WAIT;
        Sample {
            programs: self.programs.iter_mut().map(|it| it.answer(deadline)).collect(),
            overlay: self.overlay.as_mut().map(|it| it.answer(deadline)),
            device: self.device.as_mut().map(|it| it.answer(deadline)),
            controller: Some(self.controller.answer(deadline)),
        }
    }
}

/// Returns the time, ns since boot.
fn now() -> u64 {
    weft_stat::now().as_nanos()
}

/// Reads the files of this host's programs. Those of dead programs stay for `weft stat` and the monitor.
fn programs_here(folder: Option<PathBuf>) -> Result<(u64, Programs)> {
    let mut files = Vec::new();
    for folder in folders(folder.as_deref()) {
        files.extend(folder.scan().context("cannot look for running programs")?);
    }
    files.retain(|file| !file.is_dead);
    let view = Host::of(&files);
    Ok((view.now, Programs { host: String::new(), view, ports: Vec::new() }))
}

/// Asks the agent of a host.
fn programs_of(host: &str, credentials: &Credentials) -> Result<(u64, Programs)> {
    // Events have numbers up to this one, so the report has none.
    let path = format!("/v1/report?after={}", u64::MAX);
    let server = Server { timeout: MAX_WAIT, ..Server::agent(host) };
    let answer = block_on(server.fetch(&path, None, credentials))??;
    let report: Report = serde_json::from_slice(&answer)
        .with_context(|| format!("{host} is no agent of `weft monitor`"))?;
    let Report { host, view, ports, .. } = report;
    Ok((view.now, Programs { host, view, ports }))
}

/// Asks a route controller.
fn controller_view(host: &str, credentials: &Credentials) -> Result<View> {
    let server = Server { host, command: "weft route serve", timeout: MAX_WAIT };
    let answer = block_on(server.fetch("/v1/picture", None, credentials))??;
    serde_json::from_slice(&answer)
        .with_context(|| format!("{host} is no controller of `weft route serve`"))
}
