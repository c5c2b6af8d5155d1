//! The end of a link in one word, which path lookups read at every hop.

use super::{End, HostId, RouterId};

/// The router or host at the end of a link, if the link is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival(u32);

/// The flag of hosts. There are at most 2^23 ports, so the numbers of routers and hosts are far below it.
const HOST: u32 = 1 << 31;

impl Arrival {
    /// The end of a link that is down or has no cable.
    pub(super) const NOWHERE: Self = Self(u32::MAX);

    pub(super) const fn at_router(router: RouterId) -> Self {
        Self(router.0)
    }

    pub(super) const fn at_host(host: HostId) -> Self {
        Self(host.0 | HOST)
    }

    #[inline]
    pub(super) const fn end(self) -> Option<End> {
        match self {
            Self::NOWHERE => None,
            Self(host) if host & HOST != 0 => Some(End::Host(HostId(host & !HOST))),
            Self(router) => Some(End::Router(RouterId(router))),
        }
    }
}
