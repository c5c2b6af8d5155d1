//! A call for one container: its configuration, and what the runtime says of the container.

use std::path::PathBuf;

use crate::config::Config;
use crate::container::Container;
use crate::environment::{
    Arguments, Endpoint, Variables, endpoint, namespace, namespace_left, plugin_folders,
};
use crate::failure::Failure;
use crate::ipam::Ipam;
use crate::overlay::Overlay;

/// A call for a container's interface.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) config: Config,
    pub(crate) endpoint: Endpoint,
    pub(crate) arguments: Arguments,
    /// The container's network namespace; `None` if DEL is called after its end.
    pub(crate) namespace: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Call {
    /// Returns a call for a container that runs.
    ///
    /// # Errors
    /// Code 4: a variable is missing or wrong.
    pub(crate) fn for_running(config: Config, variables: Variables<'_>) -> Result<Self, Failure> {
        let namespace = Some(namespace(variables)?);
        Ok(Self { namespace, ..Self::for_any(config, variables)? })
    }

    /// Returns a call for a container that may have ended.
    ///
    /// # Errors
    /// Code 4: a variable is missing or wrong.
    pub(crate) fn for_any(config: Config, variables: Variables<'_>) -> Result<Self, Failure> {
        Ok(Self {
            config,
            endpoint: endpoint(variables)?,
            arguments: Arguments::of(variables)?,
            namespace: namespace_left(variables),
            folders: plugin_folders(variables),
        })
    }

    /// Returns the plugin for addresses, if there is one.
    ///
    /// # Errors
    /// Code 7: there is no such program.
    pub(crate) fn ipam(&self) -> Result<Option<Ipam>, Failure> {
        Ipam::of(&self.config, &self.folders)
    }

    pub(crate) fn overlay(&self) -> Overlay {
        Overlay::at(self.config.control())
    }

    pub(crate) fn container(&self) -> Option<Container> {
        self.namespace.as_deref().map(Container::at)
    }
}
