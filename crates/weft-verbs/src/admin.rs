//! The requests of `weft device` to a daemon.

use std::path::{Path, PathBuf};

use crate::attach::{
    Answer, CallError, Caller, DeviceLimits, DeviceState, Names, Request, Totals, daemon_socket,
};

/// A connection to a daemon.
#[derive(Debug)]
pub struct Admin(Caller);

impl Admin {
    /// Connects to the daemon at `path`; the default is the path that programs use.
    ///
    /// # Errors
    /// No daemon listens there, or this user may not connect.
    pub fn connect(path: Option<&Path>) -> Result<Self, CallError> {
        let path = path.map_or_else(daemon_socket, PathBuf::from);
        Caller::connect(&path).map(Self)
    }

    /// Sends a request whose answer carries no value.
    fn execute(&mut self, request: &Request) -> Result<(), CallError> {
        match self.0.call(request, &[])?.0 {
            Answer::Done => Ok(()),
            _ => Err(CallError::Nonsense),
        }
    }

    /// Makes devices with these limits, all of them or none, for the user `owner` or for the caller.
    ///
    /// # Errors
    /// The daemon has ended; or it refuses: a name is taken or invalid, a quota is reached, or only root may create a
    /// device for another user.
    pub fn create(
        &mut self,
        names: impl Into<Names>,
        owner: Option<u32>,
        limits: impl Into<DeviceLimits>,
    ) -> Result<(), CallError> {
        self.execute(&Request::CreateAll { names: names.into(), owner, limits: limits.into() })
    }

    /// Returns every device that this user may use, by name.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn list(&mut self) -> Result<Vec<DeviceState>, CallError> {
        self.states(false, usize::MAX)
    }

    /// Returns the first `max` devices that this user may use and that a process has used, by name.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn list_used(&mut self, max: usize) -> Result<Vec<DeviceState>, CallError> {
        self.states(true, max)
    }

    fn states(&mut self, used: bool, max: usize) -> Result<Vec<DeviceState>, CallError> {
        let mut all: Vec<DeviceState> = Vec::new();
        while all.len() < max {
            let after = all.last().map_or_else(String::new, |last| last.name.clone());
            match self.0.call(&Request::States { after, used }, &[])?.0 {
                Answer::States(more) if more.is_empty() => break,
                Answer::States(more) => all.extend(more),
                _ => return Err(CallError::Nonsense),
            }
        }
        all.truncate(max);
        Ok(all)
    }

    /// Returns the sums over all devices that this user may use.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn totals(&mut self) -> Result<Totals, CallError> {
        match self.0.call(&Request::Totals, &[])?.0 {
            Answer::Totals(totals) => Ok(totals),
            _ => Err(CallError::Nonsense),
        }
    }

    /// Returns one device.
    ///
    /// # Errors
    /// There is no such device, or it belongs to another user.
    pub fn show(&mut self, name: &str) -> Result<DeviceState, CallError> {
        match self.0.call(&Request::State { name: name.into() }, &[])?.0 {
            Answer::State(state) => Ok(state),
            _ => Err(CallError::Nonsense),
        }
    }

    /// Deletes devices, all of them or none; with `force` also those that are in use.
    ///
    /// # Errors
    /// A device does not exist, belongs to another user, or is in use.
    pub fn delete(&mut self, names: impl Into<Names>, force: bool) -> Result<(), CallError> {
        self.execute(&Request::DeleteAll { names: names.into(), force })
    }
}
