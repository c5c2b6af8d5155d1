//! Starts all ranks from one command: processes of this machine, or on the hosts of a lab.

use std::env;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, ExitCode};

use anyhow::{Context, Result, bail};
use weft_comm::{TOKEN_VARIABLE, Token};
use weft_lab::Lab;

/// The TCP port at which ranks of a lab meet.
const PORT: u16 = 47_000;

/// Variables that give Weft's device the rate of its host's link and the largest packet.
const RATE: &str = "WEFT_LINE_RATE";
const MTU: &str = "WEFT_MTU";

/// Starts this command once for each rank, and waits for all. `per_host` ranks run on each host of a lab, the first on h0.
pub(super) fn run(ranks: usize, lab: Option<&str>, per_host: usize) -> Result<ExitCode> {
    let lab = lab.map(Lab::open).transpose()?;
    let at = match &lab {
        Some(lab) if ranks.div_ceil(per_host) > lab.fabric().hosts() => {
            let (name, hosts) = (lab.name(), lab.fabric().hosts());
            let most = hosts.saturating_mul(per_host);
            bail!(
                "{ranks} ranks, {per_host} on each host, but lab {name:?} has {hosts} hosts: --ranks {most}, or more \
                 --ranks-per-host"
            );
        }
        Some(lab) => SocketAddr::from((lab.fabric().address(0), PORT)),
        None => TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .context("no port on this machine for ranks to meet at")?,
    };
    // Ranks of this machine take the token from their environment, which other users cannot read.
    let token = match Token::from_environment(TOKEN_VARIABLE)? {
        Some(token) => token,
        None => Token::random().context("cannot make a token for the job")?,
    };
    let place = |rank| lab.as_ref().map(|lab| (lab, rank / per_host));
    let mut children = start_all(ranks, |rank| start(rank, ranks, at, &token, place(rank)))?;
    let mut failed = Vec::new();
    for (rank, child) in children.iter_mut().enumerate() {
        let status = child.wait().with_context(|| format!("cannot wait for rank {rank}"))?;
        if !status.success() {
            failed.push(rank.to_string());
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    bail!("ranks {} failed; their messages are above", failed.join(", "))
}

/// Starts all ranks. If one cannot start, ends those that did: they would wait for it until their time limit.
fn start_all(ranks: usize, start: impl Fn(usize) -> Result<Child>) -> Result<Vec<Child>> {
    let mut children: Vec<Child> = Vec::new();
    for rank in 0..ranks {
        match start(rank) {
            Ok(child) => children.push(child),
            Err(error) => {
                for mut child in children {
                    // The error of a rank that has ended by itself is ignored.
                    let _ = child.kill();
                    let _ = child.wait();
                }
                return Err(error);
            }
        }
    }
    Ok(children)
}

/// Starts a rank on this machine, or on a host of a lab.
fn start(
    rank: usize,
    ranks: usize,
    at: SocketAddr,
    token: &Token,
    place: Option<(&Lab, usize)>,
) -> Result<Child> {
    let program = env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    // The same arguments, and the rank: the parser takes these for --ranks.
    command.args(env::args_os().skip(1));
    command.args([
        "--rank",
        &rank.to_string(),
        "--of",
        &ranks.to_string(),
        "--at",
        &at.to_string(),
    ]);
    command.env(TOKEN_VARIABLE, token.reveal());
    match place {
        Some((lab, host)) => {
            // The interface does not report a rate limit that the lab has set.
            if let Some(rate) =
                lab.links()[host].forward.rate.filter(|_| env::var_os(RATE).is_none())
            {
                command.env(RATE, rate.to_string());
            }
            if env::var_os(MTU).is_none() {
                command.env(MTU, lab.spec().mtu.to_string());
            }
            Ok(lab.spawn(&format!("h{host}"), &mut command)?)
        }
        None => command.spawn().with_context(|| format!("cannot start rank {rank}")),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn no_rank_outlives_one_that_cannot_start() {
        let started = RefCell::new(Vec::new());
        let start = |rank| {
            if rank == 2 {
                bail!("cannot start rank {rank}");
            }
            let child = Command::new("sleep").arg("60").spawn()?;
            started.borrow_mut().push(child.id());
            Ok(child)
        };
        let error = start_all(4, start).unwrap_err();
        assert_eq!(error.to_string(), "cannot start rank 2");
        // A process that has ended and is not awaited is still listed.
        let exists = |process: &u32| PathBuf::from(format!("/proc/{process}")).exists();
        assert_eq!(started.borrow().iter().filter(|process| exists(process)).count(), 0);
        assert_eq!(started.borrow().len(), 2);
    }
}
