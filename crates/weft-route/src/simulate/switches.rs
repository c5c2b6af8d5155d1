//! Simulated switches: they install the controller's routes and forward by them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::controller::Action;
use crate::fabric::Fabric;
use crate::installed::{Group, GroupKind, InstalledError, Member, Prefix, Route, Router, Target};
use crate::lease::{Gate, Stale};

/// All switches with their installed state.
#[derive(Clone, Debug)]
pub struct Switches {
    /// The forwarding state of the switches.
    pub fabric: Fabric,
    gate: Gate,
}

/// The reason that a switch refuses an action.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The controller has lost the lease.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// There is no router of this name.
    #[error("no router {0:?}")]
    NoRouter(String),
    /// The changed tables do not form a fabric.
    #[error(transparent)]
    Installed(#[from] InstalledError),
}

impl Switches {
    /// Creates switches with this installed state.
    pub const fn new(fabric: Fabric) -> Self {
        Self { fabric, gate: Gate { epoch: 0 } }
    }

    /// Carries out an action.
    ///
    /// # Errors
    /// Returns the reason if the switch refuses it.
    pub fn apply(&mut self, action: &Action) -> Result<(), ApplyError> {
        let (epoch, name, prefix, members) = match action {
            Action::Apply { epoch, router, prefix, members, .. } => {
                (*epoch, router, *prefix, Some(members))
            }
            Action::Withdraw { epoch, router, prefix, .. } => (*epoch, router, *prefix, None),
            Action::Read { .. } => return Ok(()),
        };
        self.gate.pass(epoch)?;
        let number = self.fabric.find(name).ok_or_else(|| ApplyError::NoRouter(name.clone()))?;
        let mut router = self.fabric.router(number).clone();
        remove(&mut router, prefix);
        if let Some(members) = members {
            install(&mut router, prefix, members.clone());
        }
        self.fabric.replace(router)?;
        Ok(())
    }
}

/// Removes a steered route and its group from a router.
pub fn remove(router: &mut Router, prefix: Prefix) {
    let is_it = |route: &Route| route.steered && route.to == prefix;
    let groups: Vec<Target> =
        router.routes.iter().filter(|route| is_it(route)).map(|route| route.via.clone()).collect();
    router.routes.retain(|route| !is_it(route));
    router
        .groups
        .retain(|group| !groups.iter().any(|via| *via == Target::Group(group.name.clone())));
}

/// Adds a steered route to a router.
pub fn install(router: &mut Router, prefix: Prefix, members: Vec<Member>) {
    let name = format!("steered {prefix}");
    let kind = if members.len() == 1 { GroupKind::Single } else { GroupKind::HashThreshold };
    router.groups.push(Group { name: name.clone(), kind, members });
    router.routes.push(Route { to: prefix, via: Target::Group(name), steered: true });
}
