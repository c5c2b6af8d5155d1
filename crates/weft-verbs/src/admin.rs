//! The requests of `weft device` to a daemon.

use std::path::{Path, PathBuf};

use crate::attach::{Amounts, Answer, CallError, Caller, DeviceState, Request, daemon_socket};

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

    /// Makes a device with these limits, for the user `owner` or for the caller.
    ///
    /// # Errors
    /// The daemon has ended; or it refuses: the name is taken or invalid, a quota is reached, or only root may create a
    /// device for another user.
    pub fn create(
        &mut self,
        name: &str,
        owner: Option<u32>,
        limits: Amounts,
    ) -> Result<(), CallError> {
        self.execute(&Request::Create { name: name.into(), owner, limits })
    }

    /// Returns every device that this user may use, by name.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn list(&mut self) -> Result<Vec<DeviceState>, CallError> {
        let mut all: Vec<DeviceState> = Vec::new();
        loop {
            let after = all.last().map_or_else(String::new, |last| last.name.clone());
            match self.0.call(&Request::List { after }, &[])?.0 {
                Answer::Devices(more) if more.is_empty() => return Ok(all),
                Answer::Devices(more) => all.extend(more),
                _ => return Err(CallError::Nonsense),
            }
        }
    }

    /// Returns one device.
    ///
    /// # Errors
    /// There is no such device, or it belongs to another user.
    pub fn show(&mut self, name: &str) -> Result<DeviceState, CallError> {
        match self.0.call(&Request::Show { name: name.into() }, &[])?.0 {
            Answer::Device(state) => Ok(state),
            _ => Err(CallError::Nonsense),
        }
    }

    /// Deletes a device; with `force` also one that is in use.
    ///
    /// # Errors
    /// There is no such device, it belongs to another user, or it is in use.
    pub fn delete(&mut self, name: &str, force: bool) -> Result<(), CallError> {
        self.execute(&Request::Delete { name: name.into(), force })
    }
}
