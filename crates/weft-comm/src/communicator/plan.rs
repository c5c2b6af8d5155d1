//! A planned group: rank 0 announces the job to the route controller, and all ranks take the order of the ring, the blocks of
//! the fabric and the source ports that it returns. The ranks exchange the data by collectives, before the first call of their owner.

use std::net::{IpAddr, Ipv4Addr};

use super::Communicator;
use crate::controller::{Announcement, Arrangement, Controller, Follower, PlannedDevice, Task};
use crate::options::Traffic;
use crate::{CommError, Options, secret};

/// Bytes of a rank's description: its address, the port at which it receives, and zero.
const DESCRIPTION_BYTES: usize = 8;
/// Maximum bytes of the reason why there is no plan.
const MAX_REASON_BYTES: usize = 500;
/// The first byte of a result: the words after it are the order, or the bytes the reason why there is no plan.
const PLANNED: u8 = 1;
/// The same where the blocks of all ranks are behind the order.
const PLANNED_IN_BLOCKS: u8 = 2;

/// A rank of a planned job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sender {
    address: Ipv4Addr,
    /// The UDP port at which its device receives.
    port: u16,
}

impl Sender {
    /// Returns the description of a rank; of unspecified address if its packets cannot be planned.
    fn describe(sender: Option<Self>) -> [u8; DESCRIPTION_BYTES] {
        let Self { address, port } =
            sender.unwrap_or(Self { address: Ipv4Addr::UNSPECIFIED, port: 0 });
        let mut bytes = [0; DESCRIPTION_BYTES];
        bytes[..4].copy_from_slice(&address.octets());
        bytes[4..6].copy_from_slice(&port.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let address: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        let port = u16::from_be_bytes(bytes.get(4..6)?.try_into().ok()?);
        let address = Ipv4Addr::from(address);
        (!address.is_unspecified() && port != 0).then_some(Self { address, port })
    }
}

/// Returns the senders, if all ranks are, and if all of them receive at one port.
///
/// # Errors
/// Returns the reason why the job cannot be planned.
fn check(senders: &[Option<Sender>]) -> Result<(Vec<Ipv4Addr>, u16), String> {
    if let Some(rank) = senders.iter().position(Option::is_none) {
        return Err(format!(
            "rank {rank} cannot change its source ports: planned ports need Weft's own device (`weft run`), in the \
             rank's process and with an IPv4 address"
        ));
    }
    let senders: Vec<Sender> = senders.iter().flatten().copied().collect();
    let port = senders[0].port;
    if let Some(rank) = senders.iter().position(|sender| sender.port != port) {
        return Err(format!(
            "rank {rank} receives at port {}, rank 0 at {port}: planned ports need one process with Weft's device on \
             each host",
            senders[rank].port
        ));
    }
    Ok((senders.iter().map(|sender| sender.address).collect(), port))
}

/// Returns the queue pairs of a job: `each` between two ranks that exchange messages.
fn pairs(
    hosts: &[Ipv4Addr],
    order: &[usize],
    traffic: Traffic,
    each: usize,
) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let ranks = order.len();
    let ring = (0..ranks).map(|at| (order[at], order[(at + 1) % ranks]));
    let all = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
    let connections: Vec<(usize, usize)> = match traffic {
        Traffic::Ring => ring.collect(),
        Traffic::All => all.collect(),
    };
    let between_hosts = connections.iter().map(|&(from, to)| (hosts[from], hosts[to]));
    let between_hosts = between_hosts.filter(|(from, to)| from != to);
    between_hosts.flat_map(|pair| std::iter::repeat_n(pair, each)).collect()
}

impl<B: AsMut<[u8]>> Communicator<B> {
    /// Takes the order and the ports of the route controller, if the options have one.
    ///
    /// # Errors
    /// Returns `NoPlan` if the controller is required and there is no plan, or the error of the exchange.
    pub(super) fn take_plan(&mut self, group: u64) -> Result<(), CommError> {
        let Some(address) = self.options.controller.clone() else { return Ok(()) };
        let device = PlannedDevice::find();
        let port = device.as_ref().map_or(0, PlannedDevice::receive_port);
        let own = match self.node.address() {
            IpAddr::V4(address) if port != 0 => Some(Sender { address, port }),
            _ => None,
        };
        let senders = self.gather(own)?;
        let controller = Controller {
            at: address.at.clone(),
            token: self.options.controller_token.clone(),
            job: format!("coll-{:016x}", secret::job_number(group)),
        };
        let announced = match self.rank() {
            0 => Some(announce(&controller, &senders, &self.options)),
            _ => None,
        };
        let (result, announcement) = match announced {
            Some(Ok((arrangement, announcement))) => (Ok(arrangement), Some(announcement)),
            Some(Err(why)) => (Err(why), None),
            None => (Err(String::new()), None),
        };
        let Arrangement { order, blocks } = match self.distribute(result)? {
            Ok(arrangement) => arrangement,
            Err(why) if address.is_required => return Err(CommError::NoPlan { why }),
            Err(why) => {
                if self.rank() == 0 {
                    tracing::warn!(why, "the group runs on ports of the device's own choice");
                }
                return Ok(());
            }
        };
        self.group.set_order(order);
        self.group.set_blocks(blocks);
        let (Some(device), Some(Sender { address: source, .. })) = (device, own) else {
            return Ok(());
        };
        let mut task = Task { controller, device, source, announcement, plan: 0 };
        match task.update() {
            Err(error) if address.is_required => {
                return Err(CommError::NoPlan { why: error.to_string() });
            }
            Err(error) => tracing::warn!(%error, "this rank has no planned ports yet"),
            Ok(()) => {}
        }
        self.follower = Some(Follower::start(task)?);
        Ok(())
    }

    /// Returns the descriptions of all ranks.
    fn gather(&mut self, own: Option<Sender>) -> Result<Vec<Option<Sender>>, CommError> {
        let all = self.all_gather(&Sender::describe(own))?;
        Ok(all.chunks_exact(DESCRIPTION_BYTES).map(Sender::read).collect())
    }

    /// Returns the result of rank 0: the arrangement, or the reason why there is no plan.
    fn distribute(
        &mut self,
        result: Result<Arrangement, String>,
    ) -> Result<Result<Arrangement, String>, CommError> {
        let ranks = self.ranks();
        let bytes = self.broadcast(emit(&result, ranks))?;
        Ok(read(&bytes, ranks))
    }
}

/// Returns the bytes of a result, which are as many for every result.
fn emit(result: &Result<Arrangement, String>, ranks: usize) -> Vec<u8> {
    let mut bytes = vec![0; 1 + (8 * ranks).max(MAX_REASON_BYTES)];
    match result {
        Ok(Arrangement { order, blocks }) => {
            bytes[0] = if blocks.is_empty() { PLANNED } else { PLANNED_IN_BLOCKS };
            let order = order.iter().map(|&rank| u32::try_from(rank).expect("few ranks"));
            let words = order.chain(blocks.iter().copied());
            for (place, word) in bytes[1..].chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        Err(why) => {
            let len = why.len().min(MAX_REASON_BYTES);
            bytes[1..=len].copy_from_slice(&why.as_bytes()[..len]);
        }
    }
    bytes
}

/// Returns the result of these bytes.
fn read(bytes: &[u8], ranks: usize) -> Result<Arrangement, String> {
    let (kind, rest) = (bytes[0], &bytes[1..]);
    if kind != PLANNED && kind != PLANNED_IN_BLOCKS {
        return Err(String::from_utf8_lossy(rest).trim_end_matches('\0').to_owned());
    }
    let word = |four: &[u8]| u32::from_le_bytes(four.try_into().expect("four bytes"));
    let mut words = rest.chunks_exact(4).map(word);
    let order = words.by_ref().take(ranks);
    let order = order.map(|rank| usize::try_from(rank).expect("a word")).collect();
    let blocks = words.take(if kind == PLANNED { 0 } else { ranks }).collect();
    Ok(Arrangement { order, blocks })
}

/// Announces the job. Returns the arrangement of its ranks, and the announcement.
///
/// # Errors
/// Returns the reason why there is no plan.
fn announce(
    controller: &Controller,
    senders: &[Option<Sender>],
    options: &Options,
) -> Result<(Arrangement, Announcement), String> {
    let (hosts, to_port) = check(senders)?;
    let failed = |error: crate::ControllerError| error.of(&controller.at).to_string();
    let mut arrangement = controller.order(&hosts).map_err(failed)?;
    arrangement.check(hosts.len()).map_err(|why| format!("{}: {why}", controller.at))?;
    // Those of the options were checked when the group was made.
    if let Some(order) = &options.order {
        arrangement.order.clone_from(order);
    }
    if let Some(blocks) = &options.blocks {
        arrangement.blocks.clone_from(blocks);
    }
    let pairs = pairs(&hosts, &arrangement.order, options.plan_traffic, options.plan_ports);
    if pairs.is_empty() {
        return Err("all ranks are on one host: no packets cross the fabric".into());
    }
    let announcement = Announcement { to_port, pairs };
    controller.announce(&announcement).map_err(failed)?;
    Ok((arrangement, announcement))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Ipv4Addr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let sender = Sender { address: host(7), port: 20_480 };
        assert_eq!(Sender::read(&Sender::describe(Some(sender))), Some(sender));
        assert_eq!(Sender::read(&Sender::describe(None)), None);
        assert_eq!(Sender::read(&[10, 0, 0]), None);
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let order = vec![2, 0, 1];
        for blocks in [vec![], vec![4, u32::MAX, 4]] {
            let arrangement = Ok(Arrangement { order: order.clone(), blocks });
            assert_eq!(read(&emit(&arrangement, 3), 3), arrangement);
        }
        let why = Err("it is away".to_owned());
        assert_eq!(read(&emit(&why, 3), 3), why);
    }

    #[test]
    fn a_job_is_planned_if_all_ranks_can_send_from_other_ports_and_receive_at_one() {
        let sender = |last, port| Some(Sender { address: host(last), port });
        let all = [sender(1, 20_480), sender(2, 20_480)];
        assert_eq!(check(&all), Ok((vec![host(1), host(2)], 20_480)));
        let error = check(&[sender(1, 20_480), None]).unwrap_err();
        assert!(error.contains("rank 1") && error.contains("weft run"), "{error}");
        let error = check(&[sender(1, 20_480), sender(1, 20_481)]).unwrap_err();
        assert!(error.contains("rank 1 receives at port 20481"), "{error}");
    }

    #[test]
    fn a_rings_pairs_follow_its_order_and_stay_between_hosts() {
        let hosts = [host(1), host(2), host(3)];
        let ring = pairs(&hosts, &[0, 2, 1], Traffic::Ring, 2);
        let want = [(1, 3), (1, 3), (3, 2), (3, 2), (2, 1), (2, 1)];
        assert_eq!(ring, want.map(|(from, to)| (host(from), host(to))));
        assert_eq!(pairs(&hosts, &[0, 1, 2], Traffic::All, 1).len(), 6);
        assert_eq!(pairs(&[host(1); 2], &[0, 1], Traffic::All, 1), []);
    }
}
