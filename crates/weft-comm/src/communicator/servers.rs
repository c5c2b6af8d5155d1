//! The servers of a group: the ranks that share memory. Every rank creates a file, sends its random name and content to
//! all others over RDMA, and opens the files of the others that it finds. Two ranks share memory if each has opened the
//! other's file: so they do not depend on names of hosts, which containers may share, or on `/dev/shm`, which they may
//! have for themselves.

use weft_coll::{Algorithm, HEADER_LEN};

use super::Communicator;
use crate::error::SharedError;
use crate::shared::{AreaSize, FileId, OwnFile, PeerFile, RankFile, Shared, open};
use crate::{Channels, CommError, Options, secret};

/// Length of an offer in bytes: the number of the rank's server and its file's id.
const OFFER_BYTES: usize = 8 + FileId::BYTES;
/// Shortest slot in bytes, with room for control messages.
const MIN_SLOT_BYTES: usize = 1024;

/// The ranks whose files each rank has opened.
struct Opened(Vec<Vec<bool>>);

impl Opened {
    /// Parses the rows of all ranks, with a byte for each rank.
    fn read(rows: &[u8], ranks: usize) -> Self {
        let row = |row: &[u8]| row.iter().map(|&byte| byte == 1).collect();
        Self(rows.chunks_exact(ranks).map(row).collect())
    }

    /// Returns `true` if two ranks share memory.
    fn share(&self, a: usize, b: usize) -> bool {
        a == b || (self.0[a][b] && self.0[b][a])
    }

    /// Returns the number of areas before that for `to` in the file of `from`, which has one for each rank whose file it
    /// has opened.
    fn place(&self, from: usize, to: usize) -> usize {
        self.0[from][..to].iter().filter(|&&opened| opened).count()
    }

    /// Returns two ranks that share no memory, if there are any.
    fn apart(&self) -> Option<[usize; 2]> {
        let ranks = self.0.len();
        let pairs = (0..ranks).flat_map(|a| (a + 1..ranks).map(move |b| [a, b]));
        pairs.into_iter().find(|&[a, b]| !self.share(a, b))
    }

    /// Divides ranks into servers, in this order. Any two ranks of a server share memory.
    fn servers(&self, order: &[usize]) -> Vec<Vec<usize>> {
        let mut servers: Vec<Vec<usize>> = Vec::new();
        for &rank in order {
            let all = |server: &&mut Vec<usize>| server.iter().all(|&one| self.share(one, rank));
            match servers.iter_mut().find(all) {
                Some(server) => server.push(rank),
                None => servers.push(vec![rank]),
            }
        }
        servers
    }
}

/// Returns the algorithm for servers found.
///
/// # Errors
/// Returns `Options` if `hierarchical` is to use servers that do not have as many ranks each.
fn algorithm_for(servers: &[Vec<usize>], algorithm: Algorithm) -> Result<Algorithm, CommError> {
    let local = servers.first().map_or(0, Vec::len);
    match algorithm {
        Algorithm::ByServer if servers.iter().any(|server| server.len() != local) => {
            let why = format!(
                "hierarchical: all servers must have as many ranks, and those found have ranks {servers:?}: choose \
                 ring or tree"
            );
            Err(CommError::Options(why))
        }
        Algorithm::ByServer => Ok(Algorithm::Hierarchical { local }),
        other => Ok(other),
    }
}

/// Returns the number of this rank's server; only ranks with the same number look for each other's memory.
fn server_number(options: &Options) -> u64 {
    let text = match (&options.server, options.channels) {
        (Some(name), _) => format!("name {name}"),
        // A network namespace is a host to the network: a container, or a host of a lab.
        (None, Channels::Auto) => {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            let network = std::fs::read_link("/proc/self/ns/net");
            format!("boot {:?} {:?}", boot.ok(), network.ok())
        }
        (None, _) => String::new(),
    };
    secret::server_number(&text)
}

impl<B: AsMut<[u8]>> Communicator<B> {
    /// Finds the servers and maps the memory that this rank shares with others, if the options use any.
    ///
    /// # Errors
    /// Returns `NotShared` or `Shared` if the options need the memory of all ranks, `Options` if the algorithm does not
    /// fit the servers, or the error of the exchange.
    pub(super) fn share_memory(&mut self) -> Result<(), CommError> {
        if self.options.channels == Channels::Net {
            return Ok(());
        }
        let config = self.options.config(self.ranks())?;
        let size = AreaSize::of((config.max_body + HEADER_LEN).max(MIN_SLOT_BYTES));
        let own = OwnFile::create();
        let files = self.open_files(own.as_ref().ok().map(|own| own.id))?;
        let count = files.iter().flatten().count();
        let own = own.and_then(|own| own.allocate(count, size).map(|()| own));
        // A rank without memory has opened no file.
        let row: Vec<u8> =
            files.iter().map(|file| u8::from(own.is_ok() && file.is_some())).collect();
        let opened = Opened::read(&self.all_gather(&row)?, self.ranks());
        let own = self.check_memory(own, &opened)?;
        let order = config.servers.concat();
        self.servers = opened.servers(&order);
        let algorithm = algorithm_for(&self.servers, self.options.algorithm)?;
        let agrees = self.options.order.is_none() || self.servers.concat() == order;
        if agrees || algorithm != self.options.algorithm {
            // Rings enter each server once.
            self.group.set_servers(self.servers.clone());
        }
        self.group.set_algorithm(algorithm);
        if let Some(own) = own {
            self.map(own, files, &opened, size)?;
        }
        Ok(())
    }

    /// Sends the id of this rank's file to all others, and opens the files of those that may be on this server. Returns
    /// the files by rank.
    fn open_files(&mut self, own: Option<FileId>) -> Result<Vec<Option<RankFile>>, CommError> {
        let server = server_number(&self.options).to_le_bytes();
        let mut offer = [0; OFFER_BYTES];
        offer[..8].copy_from_slice(&server);
        offer[8..].copy_from_slice(&FileId::emit(own));
        let offers = self.all_gather(&offer)?;
        let rank = self.rank();
        let open_offered = |(other, offer): (usize, &[u8])| {
            let id = FileId::read(offer[8..].try_into().expect("the length of an id"))?;
            if other == rank || offer[..8] != server {
                return None;
            }
            match open(id) {
                Ok(file) => Some(file),
                // The rank is on another server.
                Err(SharedError::NotFound(_)) => None,
                Err(why) => {
                    tracing::warn!(rank = other, error = %id.error(why), "a rank's memory is refused");
                    None
                }
            }
        };
        Ok(offers.chunks_exact(OFFER_BYTES).enumerate().map(open_offered).collect())
    }

    /// Returns this rank's file, if it shares memory with others.
    ///
    /// # Errors
    /// Returns `Shared` or `NotShared` if the options need the memory of all ranks and two share none.
    fn check_memory(
        &self,
        own: Result<OwnFile, CommError>,
        opened: &Opened,
    ) -> Result<Option<OwnFile>, CommError> {
        match (self.options.channels, own, opened.apart()) {
            (Channels::Auto, Err(why), _) => {
                tracing::warn!(%why, "this rank shares no memory and uses RDMA with all others");
                Ok(None)
            }
            (Channels::Auto, Ok(own), _) | (_, Ok(own), None) => {
                let has_peers = (0..self.ranks())
                    .any(|other| other != self.rank() && opened.share(self.rank(), other));
                Ok(has_peers.then_some(own))
            }
            (_, Err(why), _) => Err(why),
            (channels, _, Some(ranks)) => {
                Err(CommError::NotShared { channels: channels.name(), ranks })
            }
        }
    }

    /// Maps the memory that this rank shares with others. Its name is removed: all have opened it.
    fn map(
        &mut self,
        own: OwnFile,
        files: Vec<Option<RankFile>>,
        opened: &Opened,
        size: AreaSize,
    ) -> Result<(), CommError> {
        let (rank, id) = (self.rank(), own.id);
        let peer = |(other, file): (usize, Option<RankFile>)| {
            let file = file.filter(|_| opened.share(rank, other))?;
            let (outgoing, incoming) = (opened.place(rank, other), opened.place(other, rank));
            Some(PeerFile { file, outgoing, incoming })
        };
        let peers = files.into_iter().enumerate().map(peer).collect();
        match Shared::map(own, peers, size, self.options.shm_rate) {
            Ok(shared) => self.shared = Some(shared),
            Err(error) => {
                // The others would send to this memory, and wait.
                let error = id.error(error);
                self.abort(&error.to_string());
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what ranks have opened whose servers have these numbers, except `broken`, which cannot open anything.
    fn opened(servers: &[u8], broken: &[usize]) -> Opened {
        let ranks = servers.len();
        let opens = |a: usize, b: usize| {
            u8::from(a != b && servers[a] == servers[b] && !broken.contains(&a))
        };
        let rows: Vec<u8> = (0..ranks).flat_map(|a| (0..ranks).map(move |b| opens(a, b))).collect();
        Opened::read(&rows, ranks)
    }

    #[test]
    fn servers_are_the_ranks_that_have_opened_each_others_files() {
        let adjacent = opened(&[1, 1, 2, 2], &[]);
        assert_eq!(adjacent.servers(&[0, 1, 2, 3]), [[0, 1], [2, 3]]);
        assert_eq!(adjacent.apart(), Some([0, 2]));
        let alternating = opened(&[1, 2, 1, 2], &[]);
        assert_eq!(alternating.servers(&[0, 1, 2, 3]), [[0, 2], [1, 3]]);
        assert_eq!(alternating.servers(&[3, 2, 1, 0]), [[3, 1], [2, 0]]);
        // Rank 1 has no memory: rank 0 has opened its file and does not use it.
        let broken = opened(&[1, 1, 1], &[1]);
        assert!(broken.0[0][1] && !broken.share(0, 1) && broken.share(0, 2));
        assert_eq!(broken.servers(&[0, 1, 2]), [vec![0, 2], vec![1]]);
        assert_eq!(opened(&[1, 1, 1], &[]).apart(), None);
    }

    #[test]
    fn both_ends_of_an_area_compute_the_same_place() {
        let all = opened(&[1, 2, 1, 1], &[3]);
        // Rank 0 has opened the files of ranks 2 and 3, and rank 2 those of ranks 0 and 3.
        assert_eq!(
            [all.place(0, 2), all.place(0, 3), all.place(2, 0), all.place(2, 3)],
            [0, 1, 0, 1]
        );
    }

    #[test]
    fn a_hierarchy_of_the_servers_found_needs_as_many_ranks_on_each() {
        let algorithm = |servers: &[u8]| {
            let order: Vec<usize> = (0..servers.len()).collect();
            algorithm_for(&opened(servers, &[]).servers(&order), Algorithm::ByServer)
        };
        assert_eq!(algorithm(&[1, 2, 1, 2]).unwrap(), Algorithm::Hierarchical { local: 2 });
        assert_eq!(algorithm(&[1, 1, 1]).unwrap(), Algorithm::Hierarchical { local: 3 });
        let error = algorithm(&[1, 1, 2]).unwrap_err().to_string();
        assert!(error.contains("[[0, 1], [2]]") && error.contains("ring or tree"), "{error}");
        assert_eq!(
            algorithm_for(&[vec![0], vec![1, 2]], Algorithm::Ring).unwrap(),
            Algorithm::Ring
        );
    }

    #[test]
    fn only_ranks_of_one_server_look_for_each_others_memory() {
        let number = |channels, server: Option<&str>| {
            let server = server.map(str::to_owned);
            server_number(&Options { channels, server, ..Options::default() })
        };
        let auto = number(Channels::Auto, None);
        assert_eq!(auto, number(Channels::Auto, None));
        assert_ne!(auto, number(Channels::Auto, Some("a")));
        assert_ne!(number(Channels::Auto, Some("a")), number(Channels::Auto, Some("b")));
        assert_eq!(number(Channels::Auto, Some("a")), number(Channels::Shm, Some("a")));
        // Memory of all ranks is shared between hosts of a lab too.
        assert_eq!(number(Channels::Shm, None), number(Channels::Hybrid, None));
        assert_ne!(auto, number(Channels::Shm, None));
    }
}
