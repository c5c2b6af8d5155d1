//! Published systems as configurations of this engine.

use weft_units::Duration;

use crate::recovery;
use crate::{RecoveryConfig, Retransmission, TransportConfig, congestion, path};

/// Declares every profile once: constructor, name, one-line description.
macro_rules! profiles {
    ($($kind:ident => $constructor:ident, $name:literal, $about:literal;)+) => {
        weft_units::registry! {
            /// The name of a profile.
            #[non_exhaustive]
            pub enum Profile: "transport profile" { $($kind => $name, $about;)+ }
        }

        impl Profile {
            /// Returns its configuration.
            pub fn config(self) -> TransportConfig {
                match self { $(Self::$kind => TransportConfig::$constructor()),+ }
            }
        }
    };
}

profiles! {
    Stellar => stellar, "stellar", "128 paths, oblivious spray, one window from ECN and RTT, RTO 250 us (STELLAR)";
    Bifrost => bifrost, "bifrost", "groups of 50 packets over the best 4 of 8 paths, Swift per path, RTO 4 ms (BIFROST)";
    Ecmp => ecmp, "ecmp", "one path, chosen by the fabric's hash";
    Irn => irn, "irn", "an RDMA NIC on one path: DCQCN, selective repeat after a NACK, packets of 1000 bytes (IRN)";
    Roce => roce, "roce", "an RDMA NIC on one path of a lossless network: DCQCN, go-back-N, packets of 1000 bytes";
    Hopper => hopper, "hopper", "irn that leaves a congested path for a better one and takes some reordering (Hopper)";
}

impl TransportConfig {
    /// An RDMA NIC with IRN's selective repeat and DCQCN, on the one path that the fabric's hash chooses, as in the
    /// ns-3 models of ConWeave and Hopper: packets of 1000 bytes, an ACK for each, a bandwidth-delay product in flight,
    /// timeouts of 100 and 320 us.
    pub fn irn() -> Self {
        let ecmp = Self::ecmp();
        Self {
            mtu: 1000,
            congestion: congestion::Kind::Dcqcn,
            ack_every: 1,
            ack_delay: Duration::ZERO,
            retransmission: Retransmission {
                rto_min: Duration::from_micros(320),
                ..ecmp.retransmission
            },
            recovery: RecoveryConfig { kind: recovery::Kind::Irn, ..RecoveryConfig::default() },
            ..ecmp
        }
    }

    /// An RDMA NIC that only accepts packets in order, for a network without loss (PFC): go-back-N, a timeout of 4 ms,
    /// and no window beside DCQCN's rate.
    pub fn roce() -> Self {
        let irn = Self::irn();
        let timeout = Duration::from_millis(4);
        Self {
            retransmission: Retransmission {
                rto_min: timeout,
                rto_max: timeout,
                ..irn.retransmission
            },
            recovery: RecoveryConfig { kind: recovery::Kind::GoBackN, ..irn.recovery },
            dcqcn: crate::DcqcnConfig { bdp_cap: false, ..irn.dcqcn },
            ..irn
        }
    }

    /// Hopper (section 4.1.1): [`Self::irn`] over one path at a time of many, which it leaves when it is congested and
    /// another is better. The paper's number of packets that may arrive out of order is missing from its text; half of
    /// the packets in flight at 100 Gb/s and 8 us replaces it. A path is a queue pair, so each has a DCQCN rate of its
    /// own (section 3.3).
    pub fn hopper() -> Self {
        let irn = Self::irn();
        Self {
            paths: 64,
            policy: path::Kind::Hopper,
            recovery: RecoveryConfig { out_of_order: 50, ..irn.recovery },
            dcqcn: crate::DcqcnConfig { scope: congestion::Scope::Path, ..irn.dcqcn },
            ..irn
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_valid_and_found_by_its_name() {
        for &profile in Profile::ALL {
            assert_eq!(profile.name().parse(), Ok(profile));
            assert_eq!(profile.config().validate(), Ok(()), "{profile}");
        }
    }
}
