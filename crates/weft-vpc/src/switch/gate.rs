//! The checks on a port's traffic: its addresses, access lists, security groups and rate
//! limits.

use weft_units::{ByteCount, Instant};

use super::DropCause;
use crate::{
    Acl, Action, Direction, Frame, Limit, LimitError, Limiter, Refusal, SecurityGroups, SourceGuard,
};

/// The rules of a port. A new gate passes everything.
#[derive(Debug, Default)]
pub(super) struct Gate {
    acl: Option<Acl>,
    groups: Option<SecurityGroups>,
    sources: Option<SourceGuard>,
    limiters: [Option<Limiter>; 2],
}

impl Gate {
    pub(super) fn set_acl(&mut self, acl: Option<Acl>) {
        self.acl = acl;
    }

    pub(super) fn acl(&self) -> Option<&Acl> {
        self.acl.as_ref()
    }

    pub(super) fn set_groups(&mut self, groups: Option<SecurityGroups>) {
        self.groups = groups;
    }

    pub(super) fn set_sources(&mut self, sources: Option<SourceGuard>) {
        self.sources = sources;
    }

    /// Returns `true` if the tenant sends from its own addresses.
    pub(super) fn has_own_source(&self, frame: &Frame, bytes: &[u8]) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.allows(frame, bytes))
    }

    pub(super) fn groups_mut(&mut self) -> Option<&mut SecurityGroups> {
        self.groups.as_mut()
    }

    pub(super) fn set_limit(
        &mut self,
        direction: Direction,
        limit: Option<Limit>,
        now: Instant,
    ) -> Result<(), LimitError> {
        let own = &mut self.limiters[direction as usize];
        match (own, limit) {
            (Some(limiter), Some(limit)) => limiter.set(limit, now)?,
            (own, limit) => *own = limit.map(|limit| Limiter::new(limit, now)).transpose()?,
        }
        Ok(())
    }

    /// Returns `true` if there are rules for traffic to the tenant.
    pub(super) fn has_rules(&self) -> bool {
        self.acl.is_some() || self.groups.is_some()
    }

    /// Returns `true` if the decision on a frame depends on earlier frames.
    pub(super) fn tracks_connections(&self) -> bool {
        self.groups.is_some()
    }

    /// Decides on a frame that begins with `bytes`.
    pub(super) fn evaluate(
        &mut self,
        direction: Direction,
        frame: &Frame,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), DropCause> {
        let denies = |acl: &mut Acl| acl.evaluate(direction, frame).action == Action::Deny;
        if self.acl.as_mut().is_some_and(denies) {
            return Err(DropCause::Denied);
        }
        let Some(groups) = &mut self.groups else { return Ok(()) };
        match groups.evaluate(direction, frame, bytes, now) {
            Ok(_) => Ok(()),
            Err(Refusal::Denied(_)) => Err(DropCause::Denied),
            Err(Refusal::TableFull) => Err(DropCause::TableFull),
            Err(Refusal::NoFirstFragment) => Err(DropCause::NoFirstFragment),
        }
    }

    /// Returns `true` if the rate limit has room for `frames` frames of `bytes` bytes together.
    pub(super) fn admit(
        &mut self,
        direction: Direction,
        bytes: u32,
        frames: u64,
        now: Instant,
    ) -> bool {
        let limiter = self.limiters[direction as usize].as_mut();
        limiter.is_none_or(|limiter| limiter.admit(ByteCount(bytes.into()), frames, now))
    }
}
