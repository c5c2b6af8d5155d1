//! Congestion control: the bytes that may be in flight.
//!
//! A controller processes feedback about packets and returns a window and, if it paces, a rate. Some keep one window
//! for a connection, some one for each path; the registry row sets this, and `Controllers` hides it from the
//! connection.

use core::fmt::Debug;

use weft_units::{BitRate, Duration, Instant};

use crate::config::Settings;
use crate::{TransportConfig, TrimmedAt};

/// The feedback of one ACK, for the controller of its scope.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// The time of the ACK's arrival.
    pub now: Instant,
    /// Bytes newly acknowledged in this scope.
    pub acked_bytes: u32,
    /// Number of packets newly acknowledged in this scope.
    pub acked_packets: u32,
    /// Number of those packets that carried a congestion mark.
    pub marked_packets: u32,
    /// Number of those packets, for a connection, that were overtaken by more than the controller's
    /// [`Congestion::reordering_bound`].
    pub late_packets: u32,
    /// The round trip of the echoed packet (t5 - t1), if the packet was in this scope.
    pub rtt: Option<Duration>,
    /// The part of `rtt` spent in the fabric: without (t3 - t2) and (t5 - t4) (BIFROST, appendix D).
    pub fabric_delay: Option<Duration>,
    /// The part of `rtt` spent in the two hosts.
    pub endpoint_delay: Option<Duration>,
    /// Number of hops the echoed packet passed; zero if unknown.
    pub hops: u8,
    /// Bytes still in flight in this scope after this ACK.
    pub in_flight: u32,
}

impl AckSample {
    /// Returns `true` if the window limited the sender: at least half of it was in flight. An unused window must not
    /// grow (RFC 9002, section 7.8).
    #[inline]
    fn used(&self, window: u32) -> bool {
        self.in_flight.saturating_add(self.acked_bytes) >= window / 2
    }
}

/// A controller that limits the bytes in flight to at least one packet (nothing, if it waits for credit), over all paths, and at
/// most two bandwidth-delay products ([`crate::TransportConfig::bdp`], or a packet if that is more); or one that limits the rate, to at most the
/// port's, and may then have any window.
pub trait Congestion: Debug {
    /// Processes an ACK of new packets.
    fn on_ack(&mut self, ack: &AckSample);

    /// Processes the loss of a packet that later ones of its path, or the reordering window, revealed. Called for each
    /// packet.
    fn on_loss(&mut self, now: Instant);

    /// Processes a packet that a switch cut to its headers, and the place of that switch. Called for each packet; a loss
    /// unless the controller knows more.
    fn on_trimmed(&mut self, now: Instant, _at: TrimmedAt) {
        self.on_loss(now);
    }

    /// Processes a packet's retransmission timeout. Called for each packet; many may time out at once.
    fn on_timeout(&mut self, now: Instant);

    /// Processes the telemetry that the switches of this controller's path wrote on a packet, the first switch first; the
    /// ACK of that packet is processed next.
    fn on_telemetry(&mut self, _hops: &[HopTelemetry]) {}

    /// Processes credit of the receiver for `bytes` more; `in_flight` bytes are in flight.
    fn on_credit(&mut self, _now: Instant, _bytes: u32, _in_flight: u32) {}

    /// Returns the credit to request for `backlog` bytes that are not in flight, bytes; `None` if no credit is needed to
    /// send.
    fn wanted_credit(&self, _backlog: u32, _in_flight: u32) -> Option<u32> {
        None
    }

    /// Returns the bytes that may be in flight; `u32::MAX` if only the rate limits.
    fn window(&self) -> u32;

    /// Returns the rate at which packets leave, headers included; `None` sends as fast as the window permits.
    fn rate(&self) -> Option<BitRate> {
        None
    }

    /// Returns the number of packets by which a packet may be overtaken before it counts as late; `u32::MAX` if none
    /// does.
    fn reordering_bound(&self) -> u32 {
        u32::MAX
    }

    /// Returns the time at which [`Self::on_timer`] must be called, if any.
    fn timer(&self) -> Option<Instant> {
        None
    }

    /// Handles the deadline that [`Self::timer`] returned.
    fn on_timer(&mut self, _now: Instant) {}
}

mod controllers;
mod dcqcn;
mod dctcp;
mod fixed_window;
mod hpcc;
mod marked_fraction;
mod mp_rdma;
mod nscc;
mod opening;
mod rccc;
mod scope;
mod silence;
mod stellar;
mod swift;
mod telemetry;
mod timely;
mod weft;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

pub(crate) use controllers::Controllers;
use opening::Opening;
pub use scope::Scope;
pub use telemetry::HopTelemetry;

/// Returns the bytes in flight that keep the sender's port busy in an empty network, at least one packet.
fn bandwidth_delay_product(config: &TransportConfig) -> u32 {
    u32::try_from(config.bdp().0).unwrap_or(u32::MAX).max(config.mtu.into())
}

/// Returns the window a controller starts with: a bandwidth-delay product in all, so that the first round trip fills
/// the port and no more. A controller of one path starts with its share among the paths that the policy uses at a time,
/// at least one packet.
fn initial_window(config: &TransportConfig) -> u32 {
    let shares = match config.congestion_scope() {
        Scope::Connection => 1,
        Scope::Path => config.policy.paths_in_use(config),
    };
    (bandwidth_delay_product(config) / u32::from(shares)).max(config.mtu.into())
}

/// Passes the table of controllers to the macro `$then`, after the tokens `$before`. A row is a controller's variant of
/// [`Kind`] with its number, its module, its name, its scope and its description; then, where it has settings, their
/// key in [`TransportConfig`], their type in that module, and their description.
///
/// The table is append-only: the number goes over the wire, so a row keeps it, and the number of a removed row stays
/// unused.
macro_rules! controls {
    ($($then:ident)::+! $($before:tt)*) => { $($then)::+! { $($before)* {
        FixedWindow = 0 => fixed_window, "fixed-window", Connection, "one bandwidth-delay product, whatever happens";
        Stellar = 1 => stellar, "stellar", Connection, "one window for all paths from marks and round trips (STELLAR, section 7.2; docs/design/stellar-window.md)";
        Swift = 2 => swift, "swift", Path, "a window for each path from fabric and host delay (Swift, SIGCOMM 2020; BIFROST, appendix D)";
        Dctcp = 3 => dctcp, "dctcp", Connection, "one window that shrinks by the fraction of marked packets (RFC 8257)";
        Dcqcn = 4 => dcqcn, "dcqcn", Connection, "a rate that marks cut and timers raise, over one window (DCQCN; Zhu et al., SIGCOMM 2015)",
            dcqcn: DcqcnConfig, "For the `dcqcn` congestion control: the cuts and increases of its rate.";
        Timely = 5 => timely, "timely", Connection, "a rate that follows the gradient of the round-trip time (TIMELY; Mittal et al., SIGCOMM 2015)",
            timely: TimelyConfig, "For the `timely` congestion control: its thresholds and gains.";
        Weft = 6 => weft, "weft", Connection, "one window that marks and standing delay shrink and losses alone do not (docs/design/congestion.md)";
        MpRdma = 7 => mp_rdma, "mp-rdma", Connection, "one window that each ACK moves: up unless marked, down where its path is too slow (MP-RDMA; Lu et al., NSDI 2018)";
        Nscc = 8 => nscc, "nscc", Connection, "one window from marks and queueing delay together (NSCC; Ultra Ethernet 1.0.3, section 3.6.13)",
            nscc: NsccConfig, "For the `nscc` congestion control: its target, and whether switches trim.";
        Rccc = 9 => rccc, "rccc", Connection, "credit that the receiver grants at the rate of its port (RCCC; Ultra Ethernet 1.0.3, section 3.6.14)";
        Hpcc = 10 => hpcc, "hpcc", Path, "a window for each path from the links' telemetry, which only simulated switches write (HPCC; Li et al., SIGCOMM 2019)",
            hpcc: HpccConfig, "For the `hpcc` congestion control: its target and its increases.";
    }} };
}
pub(crate) use controls;

/// Declares what follows from the rows of [`controls`].
macro_rules! congestion_controls {
    ({$(
        $kind:ident = $number:literal => $module:ident, $name:literal, $scope:ident, $about:literal
        $(, $key:ident: $settings:ident, $doc:literal)?;
    )+}) => {
        weft_units::registry! {
            /// The name of a controller. Its number is the `CC Type` on the wire.
            #[non_exhaustive]
            pub enum Kind: "congestion control" { $($kind = $number => $name, $about;)+ }
        }

        $($(pub use $module::$settings;)?)+

        $(const _: () = assert!($number < 16, "the CC Type on the wire has four bits");)+

        impl Kind {
            /// Returns the default scope: one window for all paths, or one for each.
            pub const fn scope(self) -> Scope { match self { $(Self::$kind => Scope::$scope),+ } }
            /// Returns the scope under a configuration: the one in the controller's settings, if they have one.
            pub(crate) fn scope_under(self, config: &TransportConfig) -> Scope {
                let set = match self {
                    $($(Self::$kind => config.$key.scope(),)?)+
                    _ => None,
                };
                set.unwrap_or_else(|| self.scope())
            }
            /// Creates a controller.
            pub fn build(self, config: &TransportConfig) -> Controller {
                match self { $(Self::$kind => Controller::$kind($module::Controller::new(config))),+ }
            }
        }

        /// A controller by value: no allocation and no indirect call on the hot path.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum Controller {
            $(#[doc = $about] $kind($module::Controller),)+
            /// A controller that is not in the table.
            External(alloc::boxed::Box<dyn Congestion + Send>),
        }

        impl Congestion for Controller {
            #[inline]
            fn on_ack(&mut self, ack: &AckSample) {
                match self { $(Self::$kind(c) => c.on_ack(ack),)+ Self::External(c) => c.on_ack(ack) }
            }
            fn on_loss(&mut self, now: Instant) {
                match self { $(Self::$kind(c) => c.on_loss(now),)+ Self::External(c) => c.on_loss(now) }
            }
            fn on_trimmed(&mut self, now: Instant, at: TrimmedAt) {
                match self {
                    $(Self::$kind(c) => c.on_trimmed(now, at),)+
                    Self::External(c) => c.on_trimmed(now, at),
                }
            }
            fn on_telemetry(&mut self, hops: &[HopTelemetry]) {
                match self {
                    $(Self::$kind(c) => c.on_telemetry(hops),)+
                    Self::External(c) => c.on_telemetry(hops),
                }
            }
            fn on_credit(&mut self, now: Instant, bytes: u32, in_flight: u32) {
                match self {
                    $(Self::$kind(c) => c.on_credit(now, bytes, in_flight),)+
                    Self::External(c) => c.on_credit(now, bytes, in_flight),
                }
            }
            fn wanted_credit(&self, backlog: u32, in_flight: u32) -> Option<u32> {
                match self {
                    $(Self::$kind(c) => c.wanted_credit(backlog, in_flight),)+
                    Self::External(c) => c.wanted_credit(backlog, in_flight),
                }
            }
            fn on_timeout(&mut self, now: Instant) {
                match self {
                    $(Self::$kind(c) => c.on_timeout(now),)+
                    Self::External(c) => c.on_timeout(now),
                }
            }
            #[inline]
            fn window(&self) -> u32 {
                match self { $(Self::$kind(c) => c.window(),)+ Self::External(c) => c.window() }
            }
            #[inline]
            fn rate(&self) -> Option<BitRate> {
                match self { $(Self::$kind(c) => c.rate(),)+ Self::External(c) => c.rate() }
            }
            fn reordering_bound(&self) -> u32 {
                match self {
                    $(Self::$kind(c) => c.reordering_bound(),)+
                    Self::External(c) => c.reordering_bound(),
                }
            }
            #[inline]
            fn timer(&self) -> Option<Instant> {
                match self { $(Self::$kind(c) => c.timer(),)+ Self::External(c) => c.timer() }
            }
            fn on_timer(&mut self, now: Instant) {
                match self {
                    $(Self::$kind(c) => c.on_timer(now),)+
                    Self::External(c) => c.on_timer(now),
                }
            }
        }
    };
}

controls!(congestion_controls!);

/// The error of a congestion control that real packets cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} needs telemetry of switches, which only simulated ones write; expected another, such as weft"
)]
pub struct NeedsTelemetry(pub Kind);

impl Kind {
    /// Returns `true` if the controller needs telemetry of switches: [`crate::Endpoint::handle_telemetry`].
    pub const fn needs_telemetry(self) -> bool {
        matches!(self, Self::Hpcc)
    }

    /// Returns the controllers that work with real packets, in the order of the table.
    pub fn all_on_real_packets() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.iter().copied().filter(|kind| !kind.needs_telemetry())
    }

    /// Returns the controller if it works with real packets, which carry no telemetry.
    ///
    /// # Errors
    /// [`NeedsTelemetry`] if it needs telemetry.
    pub const fn on_real_packets(self) -> Result<Self, NeedsTelemetry> {
        if self.needs_telemetry() { Err(NeedsTelemetry(self)) } else { Ok(self) }
    }
}
