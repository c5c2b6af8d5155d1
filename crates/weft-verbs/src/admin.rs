//! What `weft device` asks of a daemon.

use std::path::{Path, PathBuf};

use crate::attach::{Amounts, Answer, CallError, Caller, DeviceState, Request, daemon_socket};

/// A connection to a daemon.
#[derive(Debug)]
pub struct Admin(Caller);

impl Admin {
    /// Connects to the daemon at `path`, or where programs look for it.
    ///
    /// # Errors
    /// There is none, or this user may not.
    pub fn connect(path: Option<&Path>) -> Result<Self, CallError> {
        let path = path.map_or_else(daemon_socket, PathBuf::from);
        Caller::connect(&path).map(Self)
    }

    fn order(&mut self, request: &Request) -> Result<(), CallError> {
        match self.0.call(request, &[])?.0 {
            Answer::Done => Ok(()),
            _ => Err(CallError::Nonsense),
        }
    }

    /// Makes a device with these limits, for the user `owner` or the one who asks.
    ///
    /// # Errors
    /// The name is taken or no name, or the user may not.
    pub fn create(
        &mut self,
        name: &str,
        owner: Option<u32>,
        limits: Amounts,
    ) -> Result<(), CallError> {
        self.order(&Request::Create { name: name.into(), owner, limits })
    }

    /// Every device that this user may use, by name.
    ///
    /// # Errors
    /// The daemon is gone.
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

    /// One device.
    ///
    /// # Errors
    /// There is no such device, or it is another user's.
    pub fn show(&mut self, name: &str) -> Result<DeviceState, CallError> {
        match self.0.call(&Request::Show { name: name.into() }, &[])?.0 {
            Answer::Device(state) => Ok(state),
            _ => Err(CallError::Nonsense),
        }
    }

    /// Ends a device; with `force` also one that is in use.
    ///
    /// # Errors
    /// There is no such device, it is another user's, or in use.
    pub fn delete(&mut self, name: &str, force: bool) -> Result<(), CallError> {
        self.order(&Request::Delete { name: name.into(), force })
    }
}
