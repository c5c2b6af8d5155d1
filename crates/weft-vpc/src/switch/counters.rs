//! What happened to frames.

macro_rules! drop_causes {
    ($($(#[doc = $doc:literal])+ $cause:ident => $name:literal;)+) => {
        /// Why a frame went no further.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropCause { $($(#[doc = $doc])+ $cause),+ }

        impl DropCause {
            /// Every cause, in the order of the counters.
            pub const ALL: &[Self] = &[$(Self::$cause),+];
            /// The counter's name.
            pub const fn name(self) -> &'static str { match self { $(Self::$cause => $name),+ } }
        }
    };
}

drop_causes! {
    /// Its headers contradict themselves.
    Malformed => "malformed";
    /// Sent from an address that is not the port's.
    Spoofed => "spoofed";
    /// An access list or security group forbids it.
    Denied => "denied";
    /// A security group would allow it, and has no room to remember its connection.
    TableFull => "connection_table_full";
    /// A later part of a packet whose first part no security group has let pass.
    NoFirstPart => "no_first_part";
    /// Faster than the port may send or receive.
    RateLimited => "rate_limited";
    /// A packet for the gateway that may pass no more routers.
    HopLimit => "hop_limit";
    /// Nobody has its address.
    NoRoute => "no_route";
    /// More frames wait for a connection than may.
    QueueFull => "queue_full";
    /// The tenant it is for has no room, on this host or in a plain VXLAN, where nobody sends it again.
    NoBuffer => "no_buffer";
    /// It came from a host that is no peer of its network.
    UnknownPeer => "unknown_peer";
    /// It came on a connection of another network, or for an address that the connection is not for.
    Misdirected => "misdirected";
    /// It came as plain VXLAN, from a host that was not found to speak nothing else, or not to encrypt: anyone
    /// could have sent it.
    Unproven => "unproven";
    /// It came in the clear from a host that encrypts, or where everything must be encrypted.
    InClear => "in_clear";
    /// The host that it is for cannot encrypt and everything must be, or refuses this host's keys.
    NotEncrypted => "not_encrypted";
    /// Its connection ended before it was acknowledged.
    ConnectionLost => "connection_lost";
}

/// Counters since the switch or port began. All of them only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// Frames sent on connections.
    pub reliable_sent: u64,
    /// Frames sent as plain VXLAN, or under the keys of a connection to their host.
    pub plain_sent: u64,
    /// Frames for a port of the same host, or for everybody there.
    pub local_sent: u64,
    /// Frames that came on connections.
    pub reliable_received: u64,
    /// Frames that came so.
    pub plain_received: u64,
    /// Packets that came again because the tenant had no room for them.
    pub declined: u64,
    /// Frames dropped, by [`DropCause`] in the order of [`DropCause::ALL`].
    pub dropped: [u64; DropCause::ALL.len()],
}

/// What went to other threads of the host. All of it only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    /// Packets that set connections up or end them: a request is for whom its address belongs to.
    pub setups: u64,
    /// Other packets of the transport. Many mean that the kernel does not steer by their connection.
    pub packets: u64,
    /// Findings about paths to other hosts, each to one thread.
    pub path_news: u64,
    /// Tenants' frames, from other hosts in plain VXLAN or from ports of this one.
    pub frames: u64,
}

impl SwitchCounters {
    /// Frames dropped for `cause`.
    pub fn dropped_for(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    pub(super) fn drop_frame(&mut self, cause: DropCause) {
        self.dropped[cause as usize] += 1;
    }
}
