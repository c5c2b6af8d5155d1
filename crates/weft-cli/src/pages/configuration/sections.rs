//! The sections of files, each with the structure that reads it.

/// A section of a file.
pub(super) struct Section<'a> {
    pub(super) title: &'a str,
    /// The source of the structure, from the repository's root.
    pub(super) file: &'a str,
    pub(super) structure: &'a str,
    /// The keys that lead to it in a file.
    pub(super) path: &'a [&'a str],
}

#[rustfmt::skip]
pub(super) const OVERLAY: &[Section<'_>] = &[
    Section { title: "`[host]`", file: "crates/weft-vswitch/src/config/host.rs", structure: "Host", path: &["host"] },
    Section { title: "`[host.encryption]`", file: "crates/weft-vswitch/src/config/encryption.rs", structure: "Encryption", path: &["host", "encryption"] },
    Section { title: "`[host.tls]`", file: "crates/weft-guard/src/tls_files.rs", structure: "TlsFiles", path: &["host", "tls"] },
    Section { title: "`[fleet]`", file: "crates/weft-vswitch/src/fleet/settings.rs", structure: "FleetSettings", path: &["fleet"] },
    Section { title: "`etcd` of `[fleet]`", file: "crates/weft-etcd/src/settings.rs", structure: "EtcdSettings", path: &["fleet", "etcd"] },
    Section { title: "`tls` of `etcd`", file: "crates/weft-etcd/src/settings.rs", structure: "EtcdTls", path: &["fleet", "etcd", "tls"] },
    Section { title: "`[flow-log]`", file: "crates/weft-vswitch/src/flow_log/settings.rs", structure: "FlowLogSettings", path: &["flow-log"] },
    Section { title: "`[evpn]`", file: "crates/weft-vswitch/src/evpn/settings.rs", structure: "EvpnSettings", path: &["evpn"] },
    Section { title: "`[[evpn.neighbour]]`", file: "crates/weft-vswitch/src/evpn/settings.rs", structure: "EvpnNeighbour", path: &["evpn", "neighbour"] },
    Section { title: "`[[network]]`", file: "crates/weft-vswitch/src/config.rs", structure: "Network", path: &["network"] },
    Section { title: "`[[port]]`", file: "crates/weft-vswitch/src/config/port.rs", structure: "Port", path: &["port"] },
    Section { title: "`tap` of a port", file: "crates/weft-vswitch/src/config/port.rs", structure: "Tap", path: &["port", "tap"] },
    Section { title: "`vhost-user` of a port", file: "crates/weft-vswitch/src/config/port.rs", structure: "VhostUser", path: &["port", "vhost-user"] },
    Section { title: "`mirror` of a port", file: "crates/weft-vswitch/src/mirror.rs", structure: "MirrorSettings", path: &["port", "mirror"] },
    Section { title: "Policies of a port", file: "crates/weft-vpc/src/policies.rs", structure: "PortPolicies", path: &["port"] },
    Section { title: "`[connections]`", file: "crates/weft-vpc/src/connections.rs", structure: "ConnectionsConfig", path: &["connections"] },
];

#[rustfmt::skip]
pub(super) const CONTROLLER: &[Section<'_>] = &[
    Section { title: "Top level", file: "crates/weft-steer/src/config.rs", structure: "SteerConfig", path: &[] },
    Section { title: "`[cluster]`", file: "crates/weft-steer/src/cluster.rs", structure: "ClusterConfig", path: &["of-cluster"] },
    Section { title: "`[cluster.etcd]`", file: "crates/weft-etcd/src/settings.rs", structure: "EtcdSettings", path: &["of-cluster", "etcd"] },
    Section { title: "`tls` of `[cluster.etcd]`", file: "crates/weft-etcd/src/settings.rs", structure: "EtcdTls", path: &["of-cluster", "etcd", "tls"] },
    Section { title: "`[controller]`", file: "crates/weft-route/src/controller/mod.rs", structure: "ControllerConfig", path: &["controller"] },
    Section { title: "`[controller.alarm]`", file: "crates/weft-route/src/alarm.rs", structure: "AlarmRules", path: &["controller", "alarm"] },
    Section { title: "`[controller.suspects]`", file: "crates/weft-route/src/suspects.rs", structure: "SuspectRules", path: &["controller", "suspects"] },
    Section { title: "`[controller.moves]`", file: "crates/weft-route/src/moves.rs", structure: "MoveRules", path: &["controller", "moves"] },
    Section { title: "`[controller.probes]`", file: "crates/weft-route/src/probes/mod.rs", structure: "ProbeRules", path: &["controller", "probes"] },
    Section { title: "`[controller.reservations]`", file: "crates/weft-route/src/bursts/mod.rs", structure: "ReservationRules", path: &["controller", "reservations"] },
    Section { title: "`[[router]]`", file: "crates/weft-steer/src/inventory.rs", structure: "RouterEntry", path: &["router"] },
    Section { title: "`[router.apply.gnmi]`", file: "crates/weft-steer/src/gnmi/settings.rs", structure: "GnmiSettings", path: &["gnmi"] },
    Section { title: "`tls` of `[router.apply.gnmi]`", file: "crates/weft-steer/src/gnmi/settings.rs", structure: "GnmiTls", path: &["gnmi", "tls"] },
];

#[rustfmt::skip]
pub(super) const SCENARIO: &[Section<'_>] = &[
    Section { title: "Top level", file: "crates/weft-sim/src/scenario/mod.rs", structure: "Scenario", path: &[] },
    Section { title: "`[transport]`", file: "crates/weft-transport/src/config.rs", structure: "TransportConfig", path: &["transport"] },
    Section { title: "`[transport.retransmission]`", file: "crates/weft-transport/src/config.rs", structure: "Retransmission", path: &["transport", "retransmission"] },
    Section { title: "`[transport.recovery]`", file: "crates/weft-transport/src/config/recovery.rs", structure: "RecoveryConfig", path: &["transport", "recovery"] },
    Section { title: "`[forwarding]`", file: "crates/weft-sim/src/switch/mod.rs", structure: "ForwardingConfig", path: &["forwarding"] },
    Section { title: "`[forwarding.weighted]`", file: "crates/weft-sim/src/switch/weighted.rs", structure: "Config", path: &["forwarding", "weighted"] },
    Section { title: "`[forwarding.letflow]`", file: "crates/weft-sim/src/switch/letflow.rs", structure: "Config", path: &["forwarding", "letflow"] },
    Section { title: "`[forwarding.conga]`", file: "crates/weft-sim/src/switch/conga/mod.rs", structure: "Config", path: &["forwarding", "conga"] },
    Section { title: "`[forwarding.drill]`", file: "crates/weft-sim/src/switch/drill.rs", structure: "Config", path: &["forwarding", "drill"] },
    Section { title: "`[forwarding.adaptive]`", file: "crates/weft-sim/src/switch/adaptive.rs", structure: "Config", path: &["forwarding", "adaptive"] },
    Section { title: "`[forwarding.conweave]`", file: "crates/weft-sim/src/switch/conweave/mod.rs", structure: "Config", path: &["forwarding", "conweave"] },
    Section { title: "`[queue]`", file: "crates/weft-sim/src/queue/mod.rs", structure: "QueueConfig", path: &["queue"] },
    Section { title: "`[queue.trim]`", file: "crates/weft-sim/src/queue/trim.rs", structure: "TrimConfig", path: &["queue", "trim"] },
    Section { title: "`[buffer]`", file: "crates/weft-sim/src/switch/buffer.rs", structure: "BufferConfig", path: &["buffer"] },
    Section { title: "`[port]`", file: "crates/weft-sim/src/port/mod.rs", structure: "PortConfig", path: &["port"] },
    Section { title: "`[pfc]`", file: "crates/weft-sim/src/port/pfc.rs", structure: "PfcConfig", path: &["pfc"] },
    Section { title: "`[host]`", file: "crates/weft-sim/src/scenario/mod.rs", structure: "HostConfig", path: &["host"] },
    Section { title: "`[pcie]`", file: "crates/weft-sim/src/pcie/config.rs", structure: "PcieConfig", path: &["pcie"] },
    Section { title: "`[overlay]`", file: "crates/weft-sim/src/scenario/overlay.rs", structure: "OverlaySection", path: &["overlay"] },
    Section { title: "`[controller]`", file: "crates/weft-sim/src/scenario/controller.rs", structure: "ControllerSection", path: &["controller"] },
    Section { title: "`[run]`", file: "crates/weft-sim/src/scenario/mod.rs", structure: "RunConfig", path: &["run"] },
    Section { title: "`[measure]`", file: "crates/weft-sim/src/scenario/mod.rs", structure: "MeasureConfig", path: &["measure"] },
];
