//! Set-up of connections.

use super::Outcome;
use crate::rank::{Rank, at_once};

/// Number of connections, one after another.
const CONNECTIONS: usize = 8;

pub(super) fn connect(rank: &mut Rank<'_>) -> Outcome {
    let net = rank.net()?;
    let (listener, _) = net.listen(rank.args.device)?;
    for _ in 0..100 {
        if at_once("accept", || Ok(net.accept(listener)?))?.is_some() {
            return Err("accept returned a comm though nobody has connected".to_owned());
        }
    }
    net.close_listen(listener)?;
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        open.push(rank.open()?);
    }
    rank.meet()?;
    for pair in open {
        rank.close(pair)?;
    }
    Ok(format!("{CONNECTIONS} comms each way"))
}
