//! The word list: names and phrases for which the field has better ones, and the crates that keep to it. The
//! glossary is in CONTRIBUTING.md.

/// A banned name and its replacement.
pub(super) struct Banned {
    /// The name, as a whole word of an identifier's path; with `_*` at its end, the beginning of a constant.
    pub(super) name: &'static str,
    /// The field's name.
    pub(super) instead: &'static str,
}

#[rustfmt::skip]
pub(super) const NAMES: &[Banned] = &[
    Banned { name: "settle",        instead: "reschedule" },
    Banned { name: "attend",        instead: "service" },
    Banned { name: "tend",          instead: "service" },
    Banned { name: "take_in",       instead: "ingest" },
    Banned { name: "hear",          instead: "on_<event>" },
    Banned { name: "tell",          instead: "notify" },
    Banned { name: "leave_flight",  instead: "remove_in_flight" },
    Banned { name: "patience",      instead: "reordering_window" },
    Banned { name: "asks",          instead: "probe_queue" },
    Banned { name: "accused",       instead: "probed" },
    Banned { name: "look_ahead",    instead: "prefetch" },
    Banned { name: "agenda",        instead: "global_events" },
    Banned { name: "parcel",        instead: "packet slot" },
    Banned { name: "freight",       instead: "payload" },
    Banned { name: "crowd",         instead: "PortPoller" },
    Banned { name: "letterbox",     instead: "mailbox" },
    Banned { name: "befriend",      instead: "accept_peer" },
    Banned { name: "stranger",      instead: "pending_peer" },
    Banned { name: "MOST_*",        instead: "MAX_*" },
    Banned { name: "LONGEST_*",     instead: "MAX_*" },
    Banned { name: "FEW",           instead: "a limit's name" },
    Banned { name: "VAIN",          instead: "a limit's name" },
    Banned { name: "KEPT",          instead: "a limit's name" },
];

/// Words with which no summary of an item begins: a sentence has a subject and a verb, or is a noun with its article.
pub(super) const OPENINGS: &[&str] = &[
    "What",
    "Whether",
    "Who",
    "Whom",
    "Whose",
    "How",
    "Where",
    "When",
    "Which",
    "Why",
    "That which",
    "So many",
];

/// Phrases that no comment contains.
pub(super) const PHRASES: &[&str] = &["as ever", "by and by", "so many"];

/// The crates whose violations are errors. The violations of other crates are counted.
pub(super) const CHECKED: &[&str] = &[
    "weft-cli",
    "weft-cni",
    "weft-coll",
    "weft-comm",
    "weft-demo",
    "weft-dra",
    "weft-etcd",
    "weft-evpn",
    "weft-events",
    "weft-figures",
    "weft-guard",
    "weft-kube",
    "weft-lab",
    "weft-malloc",
    "weft-msg",
    "weft-nccl",
    "weft-nccl-abi",
    "weft-nccl-check",
    "weft-nic-ports",
    "weft-perf",
    "weft-plan",
    "weft-ports",
    "weft-py",
    "weft-rdmacm",
    "weft-report",
    "weft-ring",
    "weft-rnic",
    "weft-route",
    "weft-seal",
    "weft-sim",
    "weft-stat",
    "weft-steer",
    "weft-testkit",
    "weft-topo",
    "weft-trace",
    "weft-transport",
    "weft-trial",
    "weft-udp",
    "weft-units",
    "weft-verbs",
    "weft-verbs-abi",
    "weft-vpc",
    "weft-vswitch",
    "weft-wire",
    "weft-xrdma",
    "weft-xrdma-c",
    "xtask",
];
