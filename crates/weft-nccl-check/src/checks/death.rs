//! The death of a peer's process.

use super::Outcome;
use crate::clock::{Stopwatch, now};
use crate::net::Request;
use crate::rank::Rank;

/// Bytes of a message.
const SIZE: usize = 65_536;

pub(super) fn death(rank: &mut Rank<'_>) -> Outcome {
    let pair = rank.open()?;
    let net = rank.net()?;
    let memory = rank.buffer(SIZE);
    let sending = net.register(pair.send, memory.at(0), SIZE)?;
    let receiving = net.register(pair.receive, memory.at(0), SIZE)?;
    if rank.number == 1 {
        let watch = rank.stopwatch();
        // One receive, so that messages pass; then this process ends, with that receive or with none in progress.
        while net.receive(pair.receive, memory.at(0), SIZE, receiving, false)?.is_none() {
            watch.wait(|| "irecv returns NULL".to_owned())?;
        }
        rank.meet()?;
        // SAFETY: the signal ends this process alone.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        return Err("the process survived SIGKILL".to_owned());
    }
    let watch = rank.stopwatch();
    let receive = loop {
        if let Some(request) = net.receive(pair.receive, memory.at(0), SIZE, receiving, false)? {
            break request;
        }
        watch.wait(|| "irecv returns NULL".to_owned())?;
    };
    let mut send = None;
    rank.meet()?;
    let began = now();
    let watch = rank.stopwatch();
    // The first message may be delivered before the process ends; then a later one, or a call without a request, reports it.
    let to_sender = until_error(&watch, "the sending comm", || {
        match send {
            None => send = net.send(pair.send, memory.at(0), SIZE, sending)?,
            Some(request) => {
                if net.test(request)?.is_some() {
                    send = None;
                }
            }
        }
        Ok(())
    })?;
    let to_receiver = until_error(&watch, "the receiving comm", || test(net, receive))?;
    let took = began.elapsed();
    rank.close(pair)?;
    Ok(format!("after {} ms; sender: {to_sender}; receiver: {to_receiver}", took.as_millis()))
}

fn test(net: &crate::net::Net, request: Request) -> Result<(), crate::net::Refused> {
    match net.test(request)? {
        None => Ok(()),
        Some(_) => Err(crate::net::Refused {
            call: "test of a receive that no message can complete",
            code: 0,
        }),
    }
}

/// Repeats calls until one fails, and returns that error.
///
/// # Errors
/// None fails in time, or a receive is complete without a message.
fn until_error(
    watch: &Stopwatch,
    of: &str,
    mut step: impl FnMut() -> Result<(), crate::net::Refused>,
) -> Result<String, String> {
    loop {
        match step() {
            Err(refused) if refused.code == 0 => return Err(refused.to_string()),
            Err(refused) => return Ok(refused.to_string()),
            Ok(()) => watch.wait(|| format!("{of} reports no error though its peer was killed"))?,
        }
    }
}
