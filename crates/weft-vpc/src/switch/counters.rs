//! Counters of frames.

weft_units::registry! {
    /// The reason that a frame was dropped.
    pub enum DropCause: "drop cause" {
        /// Its headers contradict themselves.
        Malformed => "malformed";
        /// It was sent from an address that is not the port's.
        Spoofed => "spoofed";
        /// An access list or security group forbids it.
        Denied => "denied";
        /// A security group would allow it but has no room for its connection.
        TableFull => "connection_table_full";
        /// It is a later fragment of a packet whose first fragment no security group has passed.
        NoFirstFragment => "no_first_part";
        /// It exceeds the port's rate limit.
        RateLimited => "rate_limited";
        /// It is for the gateway, and its hop limit is used up.
        HopLimit => "hop_limit";
        /// Its destination is unknown.
        NoRoute => "no_route";
        /// It is for a machine that is in no table, in a network whose machines are all known.
        UnknownMachine => "unknown_machine";
        /// The queue of frames that wait for a connection is full.
        QueueFull => "queue_full";
        /// Its tenant has no buffer, on this host or in a plain VXLAN, where it is not retransmitted.
        NoBuffer => "no_buffer";
        /// It came from a host that is no peer of its network.
        UnknownPeer => "unknown_peer";
        /// It came on a connection of another network, or for an address that the connection does not join.
        Misdirected => "misdirected";
        /// It names a sender whose place is set to another host, or to a port of this one.
        WrongHost => "wrong_host";
        /// It came as plain VXLAN from a host that may speak Weft or encrypt: anyone could have sent it.
        Unproven => "unproven";
        /// It came unencrypted from a host that encrypts, or where everything must be encrypted.
        InClear => "in_clear";
        /// Its destination host cannot encrypt and everything must be encrypted, or it refuses this host's keys.
        NotEncrypted => "not_encrypted";
        /// Its connection ended before it was acknowledged.
        ConnectionLost => "connection_lost";
    }
}

/// Counters since the start of the switch or port. All of them only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// Number of frames sent on connections.
    pub reliable_sent: u64,
    /// Number of frames sent as plain VXLAN, or under the keys of a connection to their host.
    pub plain_sent: u64,
    /// Number of frames sent to one or all ports of the same host.
    pub local_sent: u64,
    /// Number of frames received on connections.
    pub reliable_received: u64,
    /// Number of frames received as plain VXLAN, or under the keys of a connection to this host.
    pub plain_received: u64,
    /// Number of packets declined, which the peer retransmits, because the tenant had no room for them.
    pub declined: u64,
    /// Number of frames dropped, by [`DropCause`] in the order of [`DropCause::ALL`].
    pub dropped: [u64; DropCause::ALL.len()],
}

/// Counters of work handed over to other threads of the host. All of them only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoverCounters {
    /// Number of packets that set up or end connections: a request belongs to the thread of its destination's
    /// port.
    pub setups: u64,
    /// Number of other packets of the transport. A high number means that the kernel does not steer by
    /// connection.
    pub packets: u64,
    /// Number of findings about paths to other hosts, each counted once a thread.
    pub path_findings: u64,
    /// Number of tenants' frames, from other hosts in plain VXLAN or from ports of this one.
    pub frames: u64,
}

impl SwitchCounters {
    /// Returns the number of frames dropped for `cause`.
    pub fn dropped_for(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    pub(super) fn drop_frame(&mut self, cause: DropCause) {
        self.dropped[cause as usize] += 1;
    }
}
