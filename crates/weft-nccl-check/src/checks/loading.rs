//! Loading, properties, and loading again.

use weft_nccl_abi::pointer;

use super::Outcome;
use crate::rank::Rank;
use crate::transfer::{Message, Plan, one_way};

/// Number of times that the plugin is loaded again.
const AGAIN: usize = 3;

pub(super) fn load(rank: &mut Rank<'_>) -> Outcome {
    rank.load()?;
    let net = rank.net()?;
    let (name, missing) = net.describe();
    if !missing.is_empty() {
        return Err(format!("null pointers that NCCL calls: {}", missing.join(", ")));
    }
    let name = name.ok_or("the name is a null pointer: NCCL compares it with NCCL_NET")?;
    Ok(format!("name {name}, {} devices", net.devices()?))
}

pub(super) fn properties(rank: &mut Rank<'_>) -> Outcome {
    let net = rank.net()?;
    let mut lines = Vec::new();
    for device in 0..net.devices()? {
        let of = net.properties(device)?;
        let Some(name) = of.name else { return Err(format!("device {device} has no name")) };
        let wrong = |what: &str| Err(format!("device {device} ({name}): {what}"));
        if of.pointers & pointer::HOST == 0 {
            return wrong("ptrSupport lacks NCCL_PTR_HOST");
        }
        if of.max_comms < 1 || of.max_receives < 1 {
            return wrong("maxComms and maxRecvs must be at least 1");
        }
        if of.parts.is_some_and(|parts| parts != (device, 1))
            && of.parts.is_some_and(|(_, count)| count == 1)
        {
            return wrong("a device of one part must name itself in vProps.devs[0]");
        }
        if of.parts.is_some_and(|(_, count)| count < 1) {
            return wrong("vProps.ndevs must be at least 1");
        }
        if of.max_bytes == Some(0) {
            return wrong("maxP2pBytes is 0");
        }
        lines.push(format!("{name}: {} Mbit/s", of.speed));
    }
    Ok(lines.join(", "))
}

pub(super) fn reopen(rank: &mut Rank<'_>) -> Outcome {
    let plan = Plan::new(vec![Message { size: 1_000, room: 1_000 }; 64]);
    for _ in 0..AGAIN {
        // NCCL unloads with the last communicator of a process.
        rank.meet()?;
        rank.unload()?;
        rank.meet()?;
        rank.load()?;
        let pair = rank.open()?;
        one_way(rank, pair, &plan)?;
        rank.close(pair)?;
    }
    Ok(format!("{AGAIN} times"))
}
