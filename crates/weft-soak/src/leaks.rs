//! Leaks: memory, descriptors and threads of each program, and files, at the end of each quiet period.
//!
//! A program leaks if the median of the last third of its samples is above that of the first third by more than a bound. The
//! samples of a program that was killed in between are compared within its longest life only: a new process has forgotten the leak.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A sample of the resources of a program, or of the files of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) pid: u32,
    /// Memory in use that is not a file's, KiB: `RssAnon` and `RssShmem` of proc(5).
    pub(crate) memory: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
}

/// The bound of growth of memory between the first and the last third of a run, KiB.
pub(crate) const MEMORY_BOUND: u64 = 4096;
/// The bound of growth of the number of descriptors: programs and clients come and go, each with some.
pub(crate) const DESCRIPTOR_BOUND: u64 = 16;
/// The bound of growth of the number of threads: a server has one for each client that is connected.
pub(crate) const THREAD_BOUND: u64 = 8;
/// The smallest number of samples from which growth is judged.
const MIN_SAMPLES: usize = 6;

/// The growth of a program between the first and the last third of its samples.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Growth {
    pub(crate) name: String,
    /// Number of samples that were compared.
    pub(crate) samples: usize,
    /// The memory at last, KiB.
    pub(crate) memory: u64,
    /// The growth of memory, KiB.
    pub(crate) memory_growth: i64,
    /// The same per hour.
    pub(crate) memory_per_hour: f64,
    pub(crate) descriptors: u64,
    pub(crate) descriptor_growth: i64,
    pub(crate) threads: u64,
    pub(crate) thread_growth: i64,
}

impl Growth {
    /// Returns the leaks, as text.
    pub(crate) fn leaks(&self) -> Vec<String> {
        let over = |growth: i64, bound: u64| u64::try_from(growth).is_ok_and(|it| it > bound);
        let mut leaks = Vec::new();
        let mut judge = |what: &str, growth: i64, bound: u64| {
            if over(growth, bound) {
                leaks.push(format!(
                    "{} has {growth} {what} more in the last third of {} samples than in the first; the bound is {bound}",
                    self.name, self.samples
                ));
            }
        };
        judge("KiB", self.memory_growth, MEMORY_BOUND);
        judge("descriptors", self.descriptor_growth, DESCRIPTOR_BOUND);
        judge("threads", self.thread_growth, THREAD_BOUND);
        leaks
    }
}

/// The samples of all programs, by name.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<String, Vec<Sample>>);

impl Samples {
    /// Takes a sample of each program, and of the number of files below these folders, as the descriptors of `files`.
    pub(crate) fn take(&mut self, at: Duration, processes: &[(String, u32)], folders: &[&Path]) {
        for (name, pid) in processes {
            // A program that has just ended has no sample.
            if let Some(sample) = read(at, *pid) {
                self.0.entry(name.clone()).or_default().push(sample);
            }
        }
        let files = folders.iter().map(|folder| count_files(folder)).sum();
        let sample = Sample { at, pid: 0, memory: 0, descriptors: files, threads: 0 };
        self.0.entry("files".into()).or_default().push(sample);
    }

    /// Returns the growth of each program that has enough samples.
    pub(crate) fn growth(&self) -> Vec<Growth> {
        self.0.iter().filter_map(|(name, samples)| growth(name, longest_life(samples))).collect()
    }
}

/// Returns the longest run of samples of one process.
fn longest_life(samples: &[Sample]) -> &[Sample] {
    samples.chunk_by(|a, b| a.pid == b.pid).max_by_key(|life| life.len()).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "a slope for people")]
fn growth(name: &str, samples: &[Sample]) -> Option<Growth> {
    if samples.len() < MIN_SAMPLES {
        return None;
    }
    let third = samples.len() / 3;
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let grown = |of: fn(&Sample) -> u64| {
        let (before, after) = (median(first, of), median(last, of));
        (after, after.cast_signed() - before.cast_signed())
    };
    let (memory, memory_growth) = grown(|it| it.memory);
    let (descriptors, descriptor_growth) = grown(|it| it.descriptors);
    let (threads, thread_growth) = grown(|it| it.threads);
    let middle = |part: &[Sample]| part[part.len() / 2].at;
    let hours = (middle(last) - middle(first)).as_secs_f64() / 3600.0;
    let (name, samples) = (name.to_owned(), samples.len());
    let memory_per_hour = memory_growth as f64 / hours;
    Some(Growth {
        name,
        samples,
        memory,
        memory_growth,
        memory_per_hour,
        descriptors,
        descriptor_growth,
        threads,
        thread_growth,
    })
}

fn median(samples: &[Sample], of: fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(of).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

fn read(at: Duration, pid: u32) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
    };
    let memory = field("RssAnon")? + field("RssShmem")?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some(Sample { at, pid, memory, descriptors, threads: field("Threads")? })
}

/// Returns the number of files below a folder.
fn count_files(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let count = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => count_files(&entry.path()),
        _ => 1,
    };
    entries.flatten().map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(memory: impl Fn(u64) -> u64, pid: impl Fn(u64) -> u32, count: u64) -> Vec<Sample> {
        let at = |n| Duration::from_secs(60 * n);
        let sample =
            |n| Sample { at: at(n), pid: pid(n), memory: memory(n), descriptors: 9, threads: 2 };
        (0..count).map(sample).collect()
    }

    #[test]
    fn steady_growth_is_a_leak_and_noise_is_none() {
        let leaking = growth("vpc h0", &samples(|n| 10_000 + 400 * n, |_| 1, 30)).unwrap();
        assert_eq!(leaking.memory_growth, 8000);
        assert!((leaking.memory_per_hour - 24_000.0).abs() < 1.0, "{leaking:?}");
        let said = leaking.leaks();
        assert!(said[0].contains("vpc h0 has 8000 KiB more"), "{said:?}");
        let noisy = growth("vpc h0", &samples(|n| 10_000 + 3000 * (n % 2), |_| 1, 30)).unwrap();
        assert_eq!(noisy.leaks(), [""; 0]);
        assert_eq!(growth("vpc h0", &samples(|_| 1, |_| 1, 5)), None);
    }

    #[test]
    fn a_killed_program_is_judged_by_its_longest_life() {
        // The leak of the first 20 minutes is not hidden by the small process that follows.
        let memory = |n: u64| if n < 20 { 10_000 + 500 * n } else { 10_000 };
        let all = samples(memory, |n| if n < 20 { 1 } else { 2 }, 30);
        let life = longest_life(&all);
        assert_eq!(life.len(), 20);
        assert!(!growth("x", life).unwrap().leaks().is_empty());
    }

    #[test]
    fn this_process_has_memory_descriptors_and_threads() {
        let own = read(Duration::ZERO, std::process::id()).unwrap();
        assert!(own.memory > 0 && own.descriptors >= 3 && own.threads >= 1, "{own:?}");
    }
}
