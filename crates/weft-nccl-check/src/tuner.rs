//! `--tuner RANKS/SERVERS`: NCCL's calls of a tuner plugin, through each version that the library exports. It prints what NCCL would
//! choose for all-reduces by size.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::str::FromStr;

use anyhow::{Result, bail};
use weft_nccl_abi::tuner::*;
use weft_nccl_abi::{ncclResult_t, result};

use crate::Args;
use crate::logger::{self, logger};
use crate::net::Library;

/// Bytes of the largest call, as a power of two.
const MAX_SIZE: u32 = 34;

/// The value of the floats behind a table, which no plugin may change.
const CANARY: f32 = 12_345.0;

/// Number of algorithms and of protocols, as NCCL passes them.
const SIDES: (c_int, c_int) = (7, 3);

/// Length of the table.
const LEN: usize = NCCL_NUM_ALGORITHMS * NCCL_NUM_PROTOCOLS;

/// The size of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Communicator {
    ranks: usize,
    servers: usize,
}

impl FromStr for Communicator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/');
        let number = |text: &str| text.parse().ok().filter(|&number: &usize| number > 0);
        match numbers.map(|(ranks, servers)| (number(ranks), number(servers))) {
            Some((Some(ranks), Some(servers))) if servers <= ranks => Ok(Self { ranks, servers }),
            _ => Err("expected RANKS/SERVERS, as in 16/2".into()),
        }
    }
}

/// A communicator's tuner.
struct Tuner<'a> {
    library: &'a Library,
    version: u8,
    context: *mut c_void,
}

/// A table of costs with floats behind it, and the number of channels.
#[derive(Clone, Debug, PartialEq)]
struct Call {
    costs: [f32; LEN + 4],
    channels: c_int,
}

/// Runs the checks of all versions; returns `true` if all passed.
///
/// # Errors
/// The library cannot be loaded, or exports no tuner.
pub(crate) fn run(args: &Args, of: Communicator) -> Result<bool> {
    let library = Library::open(&args.plugin)?;
    let exported = |version: &u8| library.has(symbol(*version));
    let versions: Vec<u8> = VERSIONS.into_iter().rev().filter(exported).collect();
    if versions.is_empty() {
        bail!("{} exports none of ncclTunerPlugin_v2 to ncclTunerPlugin_v5", args.plugin.display());
    }
    let mut all_passed = true;
    for version in versions {
        let outcome = check(&library, version, of);
        all_passed &= outcome.is_ok();
        let (word, text) = match outcome {
            Ok(text) => ("ok", text),
            Err(text) => ("FAILED", text),
        };
        println!("v{version}  tuner  {word:<7} {text}");
    }
    Ok(all_passed)
}

/// Checks the calls of one version; returns what NCCL would choose for all-reduces.
fn check(library: &Library, version: u8, of: Communicator) -> Result<String, String> {
    let (tuner, other) = (Tuner::open(library, version, of)?, Tuner::open(library, version, of)?);
    let functions = function::BROADCAST..=function::ALL_REDUCE;
    for function in functions {
        for bytes in sizes() {
            let before = Call::for_size(bytes, of);
            let mut after = before.clone();
            tuner.call(function, bytes, &mut after)?;
            before
                .check(&after)
                .map_err(|reason| format!("collective {function}, {bytes} bytes: {reason}"))?;
            let mut again = before.clone();
            other.call(function, bytes, &mut again)?;
            if again != after {
                return Err(format!(
                    "collective {function}, {bytes} bytes: two communicators get different answers"
                ));
            }
        }
    }
    let chosen = choices(&tuner, of)?;
    [tuner, other].into_iter().try_for_each(Tuner::close)?;
    Ok(chosen)
}

fn sizes() -> impl Iterator<Item = usize> {
    [0, 1].into_iter().chain((1..=MAX_SIZE).flat_map(|power| [(1 << power) - 1, 1 << power]))
}

/// Returns what NCCL would choose for all-reduces, from each size on.
fn choices(tuner: &Tuner<'_>, of: Communicator) -> Result<String, String> {
    let mut text = String::new();
    let mut last = None;
    for bytes in sizes() {
        let mut call = Call::for_size(bytes, of);
        tuner.call(function::ALL_REDUCE, bytes, &mut call)?;
        let choice = (call.least(), call.channels);
        if last.replace(choice) != Some(choice) {
            let ((algorithm, protocol), channels) = choice;
            let algorithm = ["tree", "ring"][algorithm.min(1)];
            let protocol = ["ll", "ll128", "simple"][protocol];
            let channels = if channels > 0 { format!("/{channels}") } else { String::new() };
            text += &format!("{bytes} B: {algorithm}/{protocol}{channels}, ");
        }
    }
    Ok(text.trim_end_matches(", ").into())
}

impl Call {
    /// Returns costs like NCCL's, microseconds, where only rings and trees are to be had: a latency, and bytes over a rate.
    fn for_size(bytes: usize, of: Communicator) -> Self {
        let mut costs = [NCCL_ALGO_PROTO_IGNORE; LEN + 4];
        costs[LEN..].fill(CANARY);
        #[expect(clippy::cast_precision_loss, reason = "costs are rough")]
        let (bytes, ranks, servers) = (bytes as f32, of.ranks as f32, of.servers as f32);
        let depth = servers.log2().ceil();
        for (protocol, latency, rate) in [(0, 1.0, 2e3), (1, 2.0, 9e3), (2, 6.0, 1e4)] {
            costs[protocol] = latency * 2.0 * (depth + 1.0) + bytes / (0.9 * rate);
            costs[NCCL_NUM_PROTOCOLS + protocol] = latency * (ranks + 1.0) + bytes / rate;
        }
        Self { costs, channels: 0 }
    }

    /// Returns the algorithm and protocol that NCCL takes: the least cost that is not negative.
    fn least(&self) -> (usize, usize) {
        let usable = self.costs[..LEN].iter().enumerate().filter(|(_, cost)| **cost >= 0.0);
        let least = usable.min_by(|a, b| a.1.total_cmp(b.1));
        least.map_or((0, 0), |(at, _)| (at / NCCL_NUM_PROTOCOLS, at % NCCL_NUM_PROTOCOLS))
    }

    /// Checks a plugin's changes to this call.
    fn check(&self, after: &Self) -> Result<(), String> {
        if after.costs[LEN..] != self.costs[LEN..] {
            return Err("it wrote behind the table".into());
        }
        for (at, (before, after)) in self.costs.iter().zip(&after.costs).enumerate().take(LEN) {
            let place = format!("algorithm {}, protocol {}", at / 3, at % 3);
            if *before == NCCL_ALGO_PROTO_IGNORE && after != before {
                return Err(format!("{place}: NCCL cannot use it, and it has a cost of {after}"));
            }
            if after.is_nan() || after.is_infinite() {
                return Err(format!("{place}: a cost of {after}"));
            }
        }
        if !after.costs[..LEN].iter().any(|cost| *cost >= 0.0) {
            return Err("nothing is left to choose".into());
        }
        if !(0..=64).contains(&after.channels) {
            return Err(format!("{} channels, and NCCL has 64", after.channels));
        }
        Ok(())
    }
}

fn passed(call: &'static str, code: ncclResult_t) -> Result<(), String> {
    match code {
        result::SUCCESS => Ok(()),
        _ => Err(format!("{call} returned {code}: NCCL would end; {}", logger::take_warning())),
    }
}

/// Returns a function of a structure.
fn present<F>(function: Option<F>, name: &str) -> Result<F, String> {
    function.ok_or_else(|| format!("{name} is null"))
}

impl<'a> Tuner<'a> {
    fn open(library: &'a Library, version: u8, of: Communicator) -> Result<Self, String> {
        let mut context = ptr::null_mut();
        let Communicator { ranks, servers } = of;
        let to = &raw mut context;
        // SAFETY: the symbol is a structure of the version's type, and the arguments are those that NCCL passes.
        let code = unsafe {
            let table = library.address(symbol(version)).ok_or("the symbol is gone")?;
            match version {
                2 => present((*table.cast::<ncclTuner_v2_t>()).init, "init")?(
                    ranks,
                    servers,
                    logger(),
                    to,
                ),
                3 => present((*table.cast::<ncclTuner_v3_t>()).init, "init")?(
                    ranks,
                    servers,
                    logger(),
                    to,
                ),
                4 => present((*table.cast::<ncclTuner_v4_t>()).init, "init")?(
                    ranks,
                    servers,
                    logger(),
                    to,
                ),
                _ => {
                    let mut domains = ncclNvlDomainInfo_v5_t {
                        nNvlDomains: c_int::try_from(servers).unwrap_or(c_int::MAX),
                        minRanksPerNvlDomain: c_int::try_from(ranks / servers).unwrap_or(1),
                        maxRanksPerNvlDomain: c_int::try_from(ranks.div_ceil(servers)).unwrap_or(1),
                    };
                    let mut constants = ncclTunerConstants_v5_t::default();
                    let init = present((*table.cast::<ncclTuner_v5_t>()).init, "init")?;
                    init(to, 7, ranks, servers, logger(), &raw mut domains, &raw mut constants)
                }
            }
        };
        passed("init", code)?;
        Ok(Self { library, version, context })
    }

    /// Makes a call of `getCollInfo`, and what NCCL does with its results.
    fn call(&self, function: c_int, bytes: usize, call: &mut Call) -> Result<(), String> {
        let costs = call.costs.as_mut_ptr().cast::<*mut f32>();
        let (algorithms, protocols) = SIDES;
        let channels = &raw mut call.channels;
        let (mut algorithm, mut protocol) = (-1, -1);
        // SAFETY: as in `open`; the context is the one that `init` returned.
        let code = unsafe {
            let table = self.library.address(symbol(self.version)).ok_or("the symbol is gone")?;
            let name = "getCollInfo";
            match self.version {
                2 => {
                    let get = present((*table.cast::<ncclTuner_v2_t>()).getCollInfo, name)?;
                    let (to, column) = (&raw mut algorithm, &raw mut protocol);
                    get(self.context, function, bytes, 0, 0, 1, to, column, channels)
                }
                3 => {
                    let get = present((*table.cast::<ncclTuner_v3_t>()).getCollInfo, name)?;
                    get(self.context, function, bytes, 1, costs, algorithms, protocols, channels)
                }
                4 => {
                    let get = present((*table.cast::<ncclTuner_v4_t>()).getCollInfo, name)?;
                    get(self.context, function, bytes, 1, costs, algorithms, protocols, 0, channels)
                }
                _ => {
                    let get = present((*table.cast::<ncclTuner_v5_t>()).getCollInfo, name)?;
                    get(self.context, function, bytes, 1, costs, algorithms, protocols, 0, channels)
                }
            }
        };
        passed("getCollInfo", code)?;
        if let (Ok(row), Ok(column)) = (usize::try_from(algorithm), usize::try_from(protocol)) {
            if row >= NCCL_NUM_ALGORITHMS || column >= NCCL_NUM_PROTOCOLS {
                return Err(format!("algorithm {row}, protocol {column}: NCCL has none"));
            }
            let cost = &mut call.costs[row * NCCL_NUM_PROTOCOLS + column];
            *cost = if *cost == NCCL_ALGO_PROTO_IGNORE { *cost } else { 0.0 };
        } else if algorithm != protocol {
            return Err(format!("algorithm {algorithm} without a protocol, or the reverse"));
        }
        Ok(())
    }

    fn close(self) -> Result<(), String> {
        // SAFETY: as in `call`; the context is not used afterwards.
        let code = unsafe {
            let table = self.library.address(symbol(self.version)).ok_or("the symbol is gone")?;
            let close = match self.version {
                2 => (*table.cast::<ncclTuner_v2_t>()).destroy,
                3 => (*table.cast::<ncclTuner_v3_t>()).destroy,
                4 => (*table.cast::<ncclTuner_v4_t>()).destroy,
                _ => (*table.cast::<ncclTuner_v5_t>()).finalize,
            };
            present(close, "destroy")?(self.context)
        };
        passed("destroy", code)
    }
}
