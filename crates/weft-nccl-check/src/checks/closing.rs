//! The ends of comms.

use super::Outcome;
use crate::rank::{Pair, Rank};
use crate::transfer::{Message, Plan, one_way};

pub(super) fn close(rank: &mut Rank<'_>) -> Outcome {
    let plan = Plan::new(vec![Message { size: 5_000, room: 5_000 }; 40]);
    // Which rank closes first, and which end of its comms.
    for first in [0, 1] {
        for send_first in [true, false] {
            let pair = rank.open()?;
            one_way(rank, pair, &plan)?;
            if rank.number != first {
                rank.exchange.receive()?;
            }
            close_in_order(rank, pair, send_first)?;
            if rank.number == first {
                rank.exchange.send(b"closed");
            }
        }
    }
    with_a_receive_in_progress(rank)?;
    let net = rank.net()?;
    for _ in 0..8 {
        net.close_listen(net.listen(rank.args.device)?.0)?;
    }
    Ok("4 orders, a receive in progress, 8 listeners".to_owned())
}

fn close_in_order(rank: &Rank<'_>, pair: Pair, send_first: bool) -> Result<(), String> {
    let net = rank.net()?;
    if send_first {
        net.close_send(pair.send)?;
        net.close_receive(pair.receive)?;
    } else {
        net.close_receive(pair.receive)?;
        net.close_send(pair.send)?;
    }
    Ok(())
}

/// An aborted communicator closes its comms while receives are in progress.
fn with_a_receive_in_progress(rank: &Rank<'_>) -> Result<(), String> {
    let net = rank.net()?;
    let memory = rank.buffer(4_096);
    let pair = rank.open()?;
    let registration = net.register(pair.receive, memory.at(0), memory.len())?;
    let watch = rank.stopwatch();
    while net.receive(pair.receive, memory.at(0), 4_096, registration, false)?.is_none() {
        watch.wait(|| "irecv returns NULL".to_owned())?;
    }
    rank.meet()?;
    net.deregister(pair.receive, registration)?;
    rank.close(pair)
}
