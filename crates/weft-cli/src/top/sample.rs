//! The state of all sources at one time.

use weft_steer::View;
use weft_verbs::DeviceState;
use weft_vswitch::Status;

use crate::monitor::Port;
use crate::stat::Host;

/// The answers of all sources at about one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// The programs of this host, or of each host with an agent.
    pub(super) programs: Vec<Source<Programs>>,
    /// The overlay's daemon.
    pub(super) overlay: Option<Source<Status>>,
    /// The device's daemon: its devices that a process has used.
    pub(super) device: Option<Source<Vec<DeviceState>>>,
    /// The route controller.
    pub(super) controller: Option<Source<View>>,
}

/// A source and its answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Source<T> {
    /// The name of the source for people.
    pub(super) name: String,
    /// The time of the answer, ns since the boot of the source's host.
    pub(super) at: u64,
    /// The answer, or the reason for which there is none, with its fix.
    pub(super) answer: Result<T, String>,
}

/// The programs of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    /// The host's name; empty for this host.
    pub(super) host: String,
    pub(super) view: Host,
    /// The host's ports that count congestion.
    pub(super) ports: Vec<Port>,
}

impl Programs {
    /// Returns the name of an object of this host, with the host if it is another one.
    pub(super) fn named(&self, object: &str) -> String {
        if self.host.is_empty() { object.to_owned() } else { format!("{}:{object}", self.host) }
    }
}

impl Sample {
    /// Returns a line for each source that has not answered: its name, the reason and the fix.
    pub(super) fn faults(&self) -> Vec<String> {
        let programs = self.programs.iter().filter_map(Source::fault);
        let daemons = [
            self.overlay.as_ref().and_then(Source::fault),
            self.device.as_ref().and_then(Source::fault),
            self.controller.as_ref().and_then(Source::fault),
        ];
        let unreadable = self.programs.iter().filter_map(Source::value).flat_map(|programs| {
            programs.view.unreadable.iter().map(|file| format!("not read: {file}"))
        });
        programs.chain(daemons.into_iter().flatten()).chain(unreadable).collect()
    }

    /// Returns the same host's programs in an earlier sample.
    pub(super) fn programs_of(&self, name: &str) -> Option<&Source<Programs>> {
        self.programs.iter().find(|source| source.name == name)
    }
}

impl<T> Source<T> {
    /// Returns the answer, if there is one.
    pub(super) fn value(&self) -> Option<&T> {
        self.answer.as_ref().ok()
    }

    fn fault(&self) -> Option<String> {
        self.answer.as_ref().err().map(|reason| format!("{}: {reason}", self.name))
    }
}
