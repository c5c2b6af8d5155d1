//! Path policies and congestion controls that the owner of an endpoint makes itself, in place of rows of the tables.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

use crate::TransportConfig;
use crate::congestion::{Congestion, Controller};
use crate::path::{PathPolicy, Policy};

/// Makes the path policy of one connection.
pub type PolicyFactory = dyn Fn(&TransportConfig) -> Box<dyn PathPolicy + Send> + Send + Sync;

/// Makes the congestion control of one connection, or of one path where
/// [`TransportConfig::congestion`] has a window for each path.
pub type ControlFactory = dyn Fn(&TransportConfig) -> Box<dyn Congestion + Send> + Send + Sync;

/// The owner's own algorithms. A field that is `None` leaves the choice to the table's row that the configuration
/// names; one that is set replaces that row, whose scope and spread still apply.
#[derive(Clone, Default)]
pub struct External {
    /// Makes path policies in place of [`TransportConfig::policy`].
    pub policy: Option<Arc<PolicyFactory>>,
    /// Makes congestion controls in place of [`TransportConfig::congestion`].
    pub congestion: Option<Arc<ControlFactory>>,
}

impl fmt::Debug for External {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("External")
            .field("policy", &self.policy.is_some())
            .field("congestion", &self.congestion.is_some())
            .finish()
    }
}

impl PartialEq for External {
    /// Returns `true` if both have the same factories.
    fn eq(&self, other: &Self) -> bool {
        fn same<T: ?Sized>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                (None, None) => true,
                _ => false,
            }
        }
        same(self.policy.as_ref(), other.policy.as_ref())
            && same(self.congestion.as_ref(), other.congestion.as_ref())
    }
}

impl TransportConfig {
    /// Returns the path policy of a new connection.
    pub(crate) fn build_policy(&self) -> Policy {
        match &self.external.policy {
            None => self.policy.build(self),
            Some(make) => Policy::External(make(self)),
        }
    }

    /// Returns a congestion control of a new connection.
    pub(crate) fn build_control(&self) -> Controller {
        match &self.external.congestion {
            None => self.congestion.build(self),
            Some(make) => Controller::External(make(self)),
        }
    }
}
