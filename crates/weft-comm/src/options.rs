//! The options of a rank.

mod table;

use weft_coll::{Algorithm, Config};
use weft_guard::Token;
use weft_units::{ByteCount, Duration};

use crate::CommError;
use crate::controller::{CONTROLLER_TOKEN_VARIABLE, ControllerAddress};

weft_units::registry! {
    /// The carriers of a group's messages.
    pub enum Channels: "kind of channels" {
        /// RDMA.
        Net => "net";
        /// Memory between ranks that can share it, which are those of one server; RDMA between the others.
        Auto => "auto";
        /// Memory that all ranks share: they run on one server.
        Shm => "shm";
        /// Memory and RDMA at once between every two ranks (Astral, section 3.3). Ranks run on one server, and each has
        /// a network to the others.
        Hybrid => "hybrid";
    }
}

weft_units::registry! {
    /// The pairs of ranks between which ports are planned.
    pub enum Traffic: "traffic" {
        /// Each rank and the next in the order, as for rings.
        Ring => "ring";
        /// Every two ranks, as for an all-to-all.
        All => "all";
    }
}

/// The options of a rank. All ranks of a group have the same, except the node and the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device, and the parameters of messages. Weft's own device sends from planned source ports where the
    /// environment's `WEFT_PORTS` names their table.
    pub node: weft_xrdma::Options,
    /// The carrier of messages.
    pub channels: Channels,
    /// The name of this rank's server. Ranks share memory only if their names are equal; ranks without one share it by
    /// `Channels::Auto` if they are in one network namespace. It may differ between ranks.
    pub server: Option<String>,
    /// Number of RDMA channels between two ranks: each is a queue pair on all paths that the device uses.
    pub lanes: usize,
    /// The order of ranks in rings and chains (`weft plan ring`); by number if not given.
    pub order: Option<Vec<usize>>,
    /// The number of each rank's block of the fabric, by rank, for trees that cross blocks as rarely as they can (`weft plan
    /// ring`); not known if not given.
    pub blocks: Option<Vec<u32>>,
    /// The algorithm of all-reduces of long buffers, and of short all-to-alls.
    pub algorithm: Algorithm,
    /// Maximum length of a piece, which is sent as one message.
    pub piece: ByteCount,
    /// Maximum rate of shared memory between two ranks, bytes per second, to emulate a link.
    pub shm_rate: Option<u64>,
    /// The time for which ranks wait for each other.
    pub join_timeout: Duration,
    /// The job's token, which ranks present to each other; if not given, that of the environment
    /// ([`TOKEN_VARIABLE`]).
    pub token: Option<Token>,
    /// The time in which a connection to rank 0 must identify its rank.
    pub hello_timeout: Duration,
    /// The route controller that plans the order of ranks and the source ports, if any.
    pub controller: Option<ControllerAddress>,
    /// The controller's token; if not given, that of the environment ([`CONTROLLER_TOKEN_VARIABLE`]).
    pub controller_token: Option<Token>,
    /// The pairs of ranks between which the controller plans ports.
    pub plan_traffic: Traffic,
    /// Number of ports planned for each of these pairs.
    pub plan_ports: usize,
}

/// The environment variable with the job's token; the variable with the suffix `_FILE` names a file with the token.
pub const TOKEN_VARIABLE: &str = "WEFT_JOB_TOKEN";

impl Default for Options {
    fn default() -> Self {
        let mut node = weft_xrdma::Options::default();
        // A leaving rank waits until its messages are received.
        node.config.close_timeout = Duration::from_secs(30);
        Self {
            node,
            channels: Channels::Auto,
            server: None,
            lanes: 2,
            order: None,
            blocks: None,
            algorithm: Algorithm::default(),
            piece: ByteCount((64 << 10) - 64),
            shm_rate: None,
            join_timeout: Duration::from_secs(60),
            token: None,
            hello_timeout: Duration::from_secs(2),
            controller: None,
            controller_token: None,
            plan_traffic: Traffic::Ring,
            plan_ports: 4,
        }
    }
}

/// Maximum number of lanes between two ranks.
const MAX_LANES: usize = 64;
/// Maximum number of planned ports between two ranks.
const MAX_PLAN_PORTS: usize = 128;
/// Minimum and maximum of a piece in bytes.
const PIECE_BYTES: [u64; 2] = [64, 16 << 20];

/// Maximum memory in bytes that a rank posts for frames.
const MAX_POSTED_BYTES: u64 = 256 << 20;
/// Maximum length of a frame in bytes.
const MAX_FRAME_BYTES: u32 = 1 << 20;

impl Options {
    /// Reads the tokens of the environment if none are given.
    ///
    /// # Errors
    /// Returns `Token` if a token of the environment is invalid or its file is readable by other users.
    pub(crate) fn find_tokens(&mut self) -> Result<(), CommError> {
        if self.token.is_none() {
            self.token = Token::from_environment(TOKEN_VARIABLE)?;
        }
        if self.controller.is_some() && self.controller_token.is_none() {
            self.controller_token = Token::from_environment(CONTROLLER_TOKEN_VARIABLE)?;
        }
        Ok(())
    }

    /// Replaces options that do not fit a group of `ranks` ranks by their defaults: an order or blocks of another number of
    /// ranks, and `hierarchical:N` where N does not divide the number. A program that makes groups of several sizes with one set of
    /// options calls this for each; without it such options are refused.
    #[must_use]
    pub fn for_group_of(self, ranks: usize) -> Self {
        let order = self.order.filter(|order| order.len() == ranks);
        let blocks = self.blocks.filter(|blocks| blocks.len() == ranks);
        let algorithm = Some(self.algorithm).filter(|algorithm| algorithm.fits(ranks));
        Self { order, blocks, algorithm: algorithm.unwrap_or_default(), ..self }
    }

    /// Returns the configuration of the group.
    ///
    /// # Errors
    /// Returns `Options` for the first option that is invalid.
    pub(crate) fn config(&self, ranks: usize) -> Result<Config, CommError> {
        let refuse = |why: String| Err(CommError::Options(why));
        if self.lanes == 0 || self.lanes > MAX_LANES {
            return refuse(format!("{} lanes, expected 1 to {MAX_LANES}", self.lanes));
        }
        if self.piece.0 < PIECE_BYTES[0] || self.piece.0 > PIECE_BYTES[1] {
            return refuse(format!("pieces of {}, expected 64 B to 16 MiB", self.piece));
        }
        if self.plan_ports == 0 || self.plan_ports > MAX_PLAN_PORTS {
            return refuse(format!(
                "{} planned ports, expected 1 to {MAX_PLAN_PORTS}",
                self.plan_ports
            ));
        }
        if self.controller.is_some() && self.channels == Channels::Shm {
            return refuse("controller: a group whose channels are shm sends no packets".into());
        }
        if self.algorithm == Algorithm::ByServer && self.channels == Channels::Net {
            return refuse(
                "hierarchical: with channels=net no servers are found; give the ranks of each, hierarchical:N, or \
                 channels=auto"
                    .into(),
            );
        }
        let order = self.order.clone().unwrap_or_else(|| (0..ranks).collect());
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != (0..ranks).collect::<Vec<_>>() {
            return refuse(format!("the order {order:?} does not name each of {ranks} ranks once"));
        }
        let blocks = self.blocks.clone().unwrap_or_default();
        if self.blocks.is_some() && blocks.len() != ranks {
            return refuse(format!("blocks of {} ranks, and {ranks} ranks", blocks.len()));
        }
        let only = match self.channels {
            Channels::Net => Some(weft_coll::Channel::Network),
            Channels::Auto | Channels::Shm => Some(weft_coll::Channel::Inner),
            Channels::Hybrid => None,
        };
        let mut config = Config { blocks, ..Config::of(ranks, only) }.in_order(order);
        if !self.algorithm.fits(ranks) {
            return refuse(format!(
                "{}: {ranks} ranks are not servers of so many each",
                self.algorithm
            ));
        }
        config.algorithm = self.algorithm;
        // Elements of every type fit whole.
        config.max_body = usize::try_from(self.piece.0 / 8 * 8).expect("16 MiB at most");
        Ok(config)
    }

    /// Returns the node's options. If the memory that must be posted for it is below the limit, a piece is sent in its
    /// frame: a READ takes one more round trip.
    pub(crate) fn node_for(&self, ranks: usize) -> weft_xrdma::Options {
        let mut node = self.node.clone();
        let piece = u32::try_from(self.piece.0).unwrap_or(u32::MAX).saturating_add(1024);
        let posted =
            ranks as u64 * self.lanes as u64 * u64::from(node.config.depth) * u64::from(piece);
        if posted <= MAX_POSTED_BYTES && piece <= MAX_FRAME_BYTES {
            node.config.small = node.config.small.max(piece);
        }
        // N of messages' flow control is constant: the windows of the channels bound the pieces in flight, and ranks that share
        // processors have round trips that vary too much for a limit that follows the shortest.
        node.config.outstanding_min = node.config.outstanding_min.max(node.config.outstanding);
        node
    }

    /// Returns the values that all ranks must share.
    pub(crate) fn agreement(&self, ranks: usize) -> String {
        let (order, blocks) = (list(self.order.as_deref()), list(self.blocks.as_deref()));
        // Ranks may reach one controller by different addresses.
        let controller = match &self.controller {
            None => "none",
            Some(controller) if controller.is_required => "required",
            Some(_) => "optional",
        };
        let Self { channels, lanes, piece, algorithm, .. } = self;
        format!(
            "ranks={ranks},channels={},lanes={lanes},piece={},order={order},blocks={blocks},algorithm={algorithm},controller={controller}",
            channels.name(),
            piece.0
        )
    }
}

/// Returns a list without spaces; `-` for none.
fn list<T: std::fmt::Debug>(of: Option<&[T]>) -> String {
    of.map_or_else(|| "-".into(), |it| format!("{it:?}").replace(' ', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_job_fit_its_smaller_groups() {
        let four = |algorithm: &str| {
            let mut options = Options::default();
            options.set("algorithm", algorithm).unwrap();
            options.set("order", "3,1,0,2").unwrap();
            options.set("blocks", "0,0,5,5").unwrap();
            options
        };
        let hierarchical = four("hierarchical:4");
        let error = hierarchical.config(2).unwrap_err().to_string();
        assert!(error.contains("does not name each of 2 ranks once"), "{error}");
        // Groups of two, such as those of messages between two ranks of PyTorch.
        let pair = hierarchical.clone().for_group_of(2);
        assert_eq!((pair.algorithm, &pair.order, &pair.blocks), (Algorithm::Ring, &None, &None));
        assert_eq!(pair.config(2).unwrap().servers.concat(), [0, 1]);
        let whole = hierarchical.for_group_of(4).config(4).unwrap();
        assert_eq!(whole.algorithm, Algorithm::Hierarchical { local: 4 });
        assert_eq!((whole.servers.concat(), whole.blocks), ([3, 1, 0, 2].into(), vec![0, 0, 5, 5]));
        let mut three = Options::default();
        three.set("blocks", "0,0,5,5").unwrap();
        let error = three.config(3).unwrap_err().to_string();
        assert!(error.contains("blocks of 4 ranks, and 3 ranks"), "{error}");
        assert_ne!(three.agreement(4), Options::default().agreement(4));
        assert_eq!(four("hierarchical").for_group_of(2).algorithm, Algorithm::ByServer);
    }

    #[test]
    fn servers_are_not_found_without_their_memory() {
        let mut options = Options { channels: Channels::Net, ..Options::default() };
        options.set("algorithm", "hierarchical").unwrap();
        let error = options.config(4).unwrap_err().to_string();
        assert!(error.contains("hierarchical:N") && error.contains("channels=auto"), "{error}");
        options.channels = Options::default().channels;
        assert_eq!(options.config(4).unwrap().channel, Some(weft_coll::Channel::Inner));
    }
}
