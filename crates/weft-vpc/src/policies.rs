//! The policies of a host, as they are written in a file: access lists, security groups, and the sets
//! of prefixes that their rules name. Ports say by name which of them they have.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use thiserror::Error;
use weft_units::unknown_name;

use crate::{
    Acl, AclConfig, AclError, ConnectionsConfig, Limit, LimitError, Prefix, SecurityGroupConfig,
    SecurityGroups, Sets, SourceGuard,
};

/// All policies of a host.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "kebab-case"))]
pub struct Policies {
    /// Prefixes by name.
    #[cfg_attr(feature = "serde", serde(rename = "set"))]
    pub sets: Sets,
    /// Access lists.
    #[cfg_attr(feature = "serde", serde(rename = "acl"))]
    pub acls: Vec<AclConfig>,
    /// Security groups. Their members are sets too, by the group's name.
    #[cfg_attr(feature = "serde", serde(rename = "security-group"))]
    pub security_groups: Vec<SecurityGroupConfig>,
    /// How long, and how many connections a port with security groups remembers.
    pub connections: ConnectionsConfig,
}

/// The policies of one port.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "kebab-case"))]
pub struct PortPolicies {
    /// Its access list.
    pub acl: Option<String>,
    /// Its security groups. Without any, every connection may begin.
    pub security_groups: Vec<String>,
    /// Addresses its tenant may send from and say that it has. Empty allows any.
    pub sources: Vec<Prefix>,
    /// How much its tenant may receive.
    pub ingress: Option<Limit>,
    /// How much its tenant may send.
    pub egress: Option<Limit>,
}

/// A mistake in policies.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PoliciesError {
    /// A rule of a list or a group.
    #[error(transparent)]
    Rules(#[from] AclError),
    /// A limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A name that nothing has.
    #[error("{0}")]
    Unknown(String),
    /// A name that two have.
    #[error("two {kind} are called {name:?}")]
    Twice {
        /// What they are.
        kind: &'static str,
        /// The name.
        name: String,
    },
}

impl PortPolicies {
    /// What holds frames against its sources, if there are any.
    pub fn source_guard(&self) -> Option<SourceGuard> {
        (!self.sources.is_empty()).then(|| SourceGuard::new(self.sources.clone()))
    }

    /// Whether its limits can be kept.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), LimitError> {
        [self.ingress, self.egress].iter().flatten().try_for_each(Limit::check)
    }
}

impl Policies {
    /// Whether every list and group can be kept.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self) -> Result<(), PoliciesError> {
        let sets = self.sets()?;
        twice("access lists", self.acls.iter().map(|acl| &acl.name))?;
        for acl in &self.acls {
            Acl::new(acl, &sets)?;
        }
        for group in &self.security_groups {
            SecurityGroups::new(core::slice::from_ref(group), &sets, self.connections, (0, 0))?;
        }
        Ok(())
    }

    /// The access list of a port, if it has one.
    ///
    /// # Errors
    /// There is none of that name, or a rule of it is wrong.
    pub fn acl_of(&self, port: &PortPolicies) -> Result<Option<Acl>, PoliciesError> {
        let Some(name) = &port.acl else { return Ok(None) };
        let named = |acl: &&AclConfig| acl.name == *name;
        let names = self.acls.iter().map(|acl| acl.name.as_str());
        let acl =
            self.acls.iter().find(named).ok_or_else(|| unknown("access list", name, names))?;
        Ok(Some(Acl::new(acl, &self.sets()?)?))
    }

    /// The security groups of a port, if it has any. `secret` is as for [`SecurityGroups::new`].
    ///
    /// # Errors
    /// There is none of that name, or a rule of it is wrong.
    pub fn security_groups_of(
        &self,
        port: &PortPolicies,
        secret: (u64, u64),
    ) -> Result<Option<SecurityGroups>, PoliciesError> {
        let groups = self.groups_of(port)?;
        if groups.is_empty() {
            return Ok(None);
        }
        let groups = SecurityGroups::new(&groups, &self.sets()?, self.connections, secret)?;
        Ok(Some(groups))
    }

    /// The groups of a port as they are written, and the sets they name: what
    /// [`SecurityGroups::set`] takes when the file has changed.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn groups_of(
        &self,
        port: &PortPolicies,
    ) -> Result<Vec<SecurityGroupConfig>, PoliciesError> {
        let names = || self.security_groups.iter().map(|group| group.name.as_str());
        let find = |name: &String| {
            let group = self.security_groups.iter().find(|group| group.name == *name);
            group.cloned().ok_or_else(|| unknown("security group", name, names()))
        };
        port.security_groups.iter().map(find).collect()
    }

    /// Every set that rules may name: those that were written, and the groups' members.
    ///
    /// # Errors
    /// Two of them have one name.
    pub fn sets(&self) -> Result<Sets, PoliciesError> {
        let groups = self.security_groups.iter().map(|group| &group.name);
        twice("sets or security groups", self.sets.keys().chain(groups))?;
        let mut sets = self.sets.clone();
        for group in &self.security_groups {
            sets.insert(group.name.clone(), group.members.clone());
        }
        Ok(sets)
    }
}

fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> PoliciesError {
    PoliciesError::Unknown(unknown_name(kind, name, &known.collect::<Vec<_>>()))
}

fn twice<'a>(
    kind: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), PoliciesError> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(PoliciesError::Twice { kind, name: pair[0].to_string() }),
        None => Ok(()),
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests;
