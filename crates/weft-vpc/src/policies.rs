//! The policies of a host as written in a file: access lists, security groups, and the sets
//! of prefixes that their rules name. Ports refer to them by name.

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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "kebab-case"))]
pub struct Policies {
    /// Prefixes by name.
    #[cfg_attr(feature = "serde", serde(rename = "set"))]
    pub sets: Sets,
    /// Access lists.
    #[cfg_attr(feature = "serde", serde(rename = "acl"))]
    pub acls: Vec<AclConfig>,
    /// Security groups. Each group's members are also a set, under the group's name.
    #[cfg_attr(feature = "serde", serde(rename = "security-group"))]
    pub security_groups: Vec<SecurityGroupConfig>,
    /// The limit and the time-outs of the connections that a port with security groups tracks.
    pub connections: ConnectionsConfig,
}

/// The policies of one port.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default, rename_all = "kebab-case"))]
pub struct PortPolicies {
    /// The name of its access list.
    pub acl: Option<String>,
    /// The names of its security groups. Without any, every connection may begin.
    pub security_groups: Vec<String>,
    /// The addresses that its tenant may send from and announce. An empty list allows any.
    pub sources: Vec<Prefix>,
    /// The limit on traffic that its tenant receives.
    pub ingress: Option<Limit>,
    /// The limit on traffic that its tenant sends.
    pub egress: Option<Limit>,
}

/// A mistake in policies.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PoliciesError {
    /// A rule of a list or a group is wrong.
    #[error(transparent)]
    Rules(#[from] AclError),
    /// A limit is wrong.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A name that no item has.
    #[error("{0}")]
    Unknown(String),
    /// A name that two items have.
    #[error("two {kind} are called {name:?}")]
    Twice {
        /// The items' kind.
        kind: &'static str,
        /// The name.
        name: String,
    },
}

impl PortPolicies {
    /// Returns the guard that checks frames against the port's sources, if it has any.
    pub fn source_guard(&self) -> Option<SourceGuard> {
        (!self.sources.is_empty()).then(|| SourceGuard::new(self.sources.clone()))
    }

    /// Returns these policies, and for each kind that they do not have those of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let Self { acl, security_groups, sources, ingress, egress } = self;
        let has_groups = !security_groups.is_empty();
        let has_sources = !sources.is_empty();
        Self {
            acl: acl.or(other.acl),
            security_groups: if has_groups { security_groups } else { other.security_groups },
            sources: if has_sources { sources } else { other.sources },
            ingress: ingress.or(other.ingress),
            egress: egress.or(other.egress),
        }
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// The first limit that is refused.
    pub fn check(&self) -> Result<(), LimitError> {
        [self.ingress, self.egress].iter().flatten().try_for_each(Limit::check)
    }
}

impl Policies {
    /// Checks every list and group.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self) -> Result<(), PoliciesError> {
        let sets = self.sets()?;
        check_unique("access lists", self.acls.iter().map(|acl| &acl.name))?;
        for acl in &self.acls {
            Acl::new(acl, &sets)?;
        }
        for group in &self.security_groups {
            SecurityGroups::new(core::slice::from_ref(group), &sets, self.connections, (0, 0))?;
        }
        Ok(())
    }

    /// Returns the access list of a port, if it has one.
    ///
    /// # Errors
    /// There is no list of that name, or one of its rules is wrong.
    pub fn acl_of(&self, port: &PortPolicies) -> Result<Option<Acl>, PoliciesError> {
        let Some(name) = &port.acl else { return Ok(None) };
        let named = |acl: &&AclConfig| acl.name == *name;
        let names = self.acls.iter().map(|acl| acl.name.as_str());
        let acl =
            self.acls.iter().find(named).ok_or_else(|| unknown("access list", name, names))?;
        Ok(Some(Acl::new(acl, &self.sets()?)?))
    }

    /// Returns the security groups of a port, if it has any. `secret` is as for [`SecurityGroups::new`].
    ///
    /// # Errors
    /// There is no group of that name, or one of its rules is wrong.
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

    /// Returns the groups of a port as they are written, the input of [`SecurityGroups::set`] after a change of the
    /// file.
    ///
    /// # Errors
    /// There is no group of that name.
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

    /// Returns every set that rules may name: the written sets and the groups' members.
    ///
    /// # Errors
    /// Two of them have one name.
    pub fn sets(&self) -> Result<Sets, PoliciesError> {
        let groups = self.security_groups.iter().map(|group| &group.name);
        check_unique("sets or security groups", self.sets.keys().chain(groups))?;
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

fn check_unique<'a>(
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
