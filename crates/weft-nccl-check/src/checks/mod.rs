//! The checks, in their order. Each is a function that both ranks run.

mod closing;
mod connecting;
mod death;
mod loading;
mod messages;
mod speed;
mod watched;

use crate::rank::Rank;

/// A check's result: a few figures, or the reason of the failure.
pub(crate) type Outcome = Result<String, String>;

/// A check.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&mut Rank<'_>) -> Outcome,
    /// It runs unless `--only` names others.
    pub(crate) by_default: bool,
    pub(crate) needs_processes: bool,
    /// The process of rank 1 ends in it.
    pub(crate) ends_peer: bool,
}

impl Check {
    const fn new(
        name: &'static str,
        about: &'static str,
        run: fn(&mut Rank<'_>) -> Outcome,
    ) -> Self {
        Self { name, about, run, by_default: true, needs_processes: false, ends_peer: false }
    }
}

/// All checks. The first loads the plugin, which all others need.
pub(crate) static ALL: &[Check] = &[
    Check::new(
        "load",
        "the library loads; no call that NCCL makes is null; init and devices succeed",
        loading::load,
    ),
    Check::new(
        "properties",
        "each device has a name, host memory, at least one comm and one receive",
        loading::properties,
    ),
    Check::new(
        "connect",
        "listen, connect and accept never wait, and open comms in both directions",
        connecting::connect,
    ),
    Check::new(
        "sizes",
        "messages of 0 bytes to the largest size, into receives as long or longer, 32 in progress",
        messages::sizes,
    ),
    Check::new(
        "early",
        "a sender that is far ahead of its receiver: requests or NULL, and no message lost",
        messages::early,
    ),
    Check::new(
        "register",
        "memory is registered on a comm while messages pass on it",
        messages::register,
    ),
    Check::new("comms", "eight comms each way at once", messages::comms),
    Check::new(
        "random",
        "random sizes in random order of posting and testing, from a seed",
        messages::random,
    ),
    Check::new(
        "watched",
        "a reader of LL and LL128 never sees a flag before its data",
        watched::watched,
    ),
    Check::new(
        "close",
        "comms close in either order, idle or with a receive in progress; listeners without a peer too",
        closing::close,
    ),
    Check::new(
        "reopen",
        "finalize, dlclose, dlopen and init again, three times, with messages in between",
        loading::reopen,
    ),
    Check {
        needs_processes: true,
        ends_peer: true,
        ..Check::new("death", "a killed peer ends its comms with an error, in time", death::death)
    },
    Check {
        by_default: false,
        ..Check::new("steady", "checked messages for --seconds", messages::steady)
    },
    Check {
        by_default: false,
        ..Check::new(
            "speed",
            "latency of 8 bytes and bandwidth of several sizes, for --seconds each",
            speed::speed,
        )
    },
];

/// Runs a check; without the plugin it is loaded first.
pub(crate) fn run(check: &Check, rank: &mut Rank<'_>) -> Outcome {
    if rank.net.is_none() && check.name != ALL[0].name {
        rank.load()?;
    }
    (check.run)(rank)
}

/// Prints the line of a check.
pub(crate) fn print(version: u8, ranks: &str, name: &str, outcome: &Outcome) {
    match outcome {
        Ok(figures) => println!("v{version:<3} {ranks:<9} {name:<11} ok      {figures}"),
        Err(reason) => println!("v{version:<3} {ranks:<9} {name:<11} FAILED  {reason}"),
    }
}
