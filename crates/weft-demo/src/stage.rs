//! The stage of the demonstration: two hosts, and paths whose condition can be changed.

use std::net::TcpStream;

use anyhow::{Result, bail};
use weft_perf::{Client, Server};

use super::PATHS;
use super::flow::FlowConfig;

/// The condition of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Healthy,
    /// The path loses 1 % of the packets in both directions.
    Lossy,
    /// The path drops every packet silently.
    Dead,
}

/// The paths that a flow uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Only(usize),
    All,
}

impl Route {
    /// Returns `true` if source ports that take `paths` use exactly the paths of this route.
    fn fits(self, paths: &[usize]) -> bool {
        match self {
            Self::Only(path) => paths == [path],
            Self::All => (0..PATHS).all(|path| paths.contains(&path)),
        }
    }
}

/// Two hosts and [`PATHS`] paths between them.
pub(crate) trait Stage {
    /// Returns the description of the stage, one line.
    fn about(&self) -> String;

    /// Repairs every path for the next act.
    ///
    /// # Errors
    /// Returns an error if a path cannot be changed.
    fn reset(&mut self) -> Result<()>;

    /// Changes a path under running traffic.
    ///
    /// # Errors
    /// Returns an error if the path cannot be changed.
    fn set(&mut self, path: usize, condition: Condition) -> Result<()>;

    /// Opens both ends of a flow that takes `route`.
    ///
    /// # Errors
    /// Returns an error if sockets cannot be opened, or no source port takes the route.
    fn open(&mut self, flow: &FlowConfig, route: Route) -> Result<(Client, Server)>;

    /// Returns `true` if kernel TCP can run over the same paths.
    fn carries_tcp(&self) -> bool;

    /// Opens a TCP connection whose packets take `path`, and returns its sender and its receiver.
    ///
    /// # Errors
    /// Returns an error if the connection cannot be opened, or if the stage does not carry TCP.
    fn open_tcp(&mut self, path: usize) -> Result<(TcpStream, TcpStream)>;
}

/// Maximum number of attempts to get source ports that take a route: the kernel draws them at random.
const MAX_ATTEMPTS: usize = 1000;

/// Calls `open` until the source ports of a result take `route`, and returns that result. `paths_of` returns the paths
/// of its ports.
///
/// # Errors
/// Returns an error if no source port takes the route in [`MAX_ATTEMPTS`] attempts, or the first error of a function.
pub(super) fn until_on_route<T>(
    route: Route,
    mut open: impl FnMut() -> Result<T>,
    mut paths_of: impl FnMut(&mut T) -> Result<Vec<usize>>,
) -> Result<T> {
    for _ in 0..MAX_ATTEMPTS {
        let mut opened = open()?;
        if route.fits(&paths_of(&mut opened)?) {
            return Ok(opened);
        }
    }
    bail!("no source port takes {route:?} in {MAX_ATTEMPTS} attempts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_path_flow_takes_its_path_and_no_other() {
        assert!(Route::Only(2).fits(&[2]));
        assert!(!Route::Only(2).fits(&[1]));
        assert!(!Route::Only(2).fits(&[2, 1]));
    }

    #[test]
    fn a_multipath_flow_reaches_every_path() {
        assert!(Route::All.fits(&[3, 1, 1, 0, 2]));
        assert!(!Route::All.fits(&[3, 1, 1, 0, 3]));
    }

    #[test]
    fn ports_are_drawn_until_they_fit_and_a_limited_number_of_times() {
        let mut next = 0;
        let mut open = || {
            next += 1;
            Ok(next)
        };
        let found = until_on_route(Route::Only(3), &mut open, |port| Ok(vec![*port % 7])).unwrap();
        assert_eq!(found, 3);
        assert!(until_on_route(Route::Only(9), &mut open, |port| Ok(vec![*port % 7])).is_err());
    }
}
