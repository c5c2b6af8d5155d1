//! Many independent runs over worker threads. Results come in the order of the jobs, whatever the
//! number of workers, and a run does not depend on others beside it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weft_units::Seed;

use crate::hooks::Hooks;
use crate::report::Report;
use crate::run::{RunError, run_with};
use crate::scenario::Scenario;

/// One run to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// The scenario to run.
    pub scenario: Scenario,
    /// The seed of the run.
    pub seed: Seed,
}

/// Runs every job on up to `workers` threads and returns the reports in the order of `jobs`. `progress` is called with
/// the number of finished jobs, on the thread that finished one.
pub fn run_all(
    jobs: &[Job],
    workers: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<Result<Report, RunError>> {
    run_each(jobs, workers, &Hooks::default(), progress, |_, report| report)
}

/// Like [`run_all`], but with the additions of the runs' owner, and keeps of each report only the result of `keep`,
/// called on the thread that ran it: many reports with many flows are not all held at once.
pub fn run_each<T: Send>(
    jobs: &[Job],
    workers: usize,
    hooks: &Hooks,
    progress: &(dyn Fn(usize) + Sync),
    keep: impl Fn(usize, Report) -> T + Sync,
) -> Vec<Result<T, RunError>> {
    for_each_index(jobs.len(), workers, progress, |index| {
        let job = &jobs[index];
        run_with(&job.scenario, job.seed, hooks).map(|report| keep(index, report))
    })
}

/// Calls `work` with every index below `count`, on up to `workers` threads, and returns the results in order of index.
/// A single worker runs on the caller's thread, whose memory may be faster
/// ([`prefer_huge_pages`](crate::memory::prefer_huge_pages)).
pub(crate) fn for_each_index<T: Send>(
    count: usize,
    workers: usize,
    progress: &(dyn Fn(usize) + Sync),
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    if workers.min(count) <= 1 {
        let finish = |index| {
            let result = work(index);
            progress(index + 1);
            result
        };
        return (0..count).map(finish).collect();
    }
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<Option<T>>> = Mutex::new((0..count).map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..workers.min(count) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = work(index);
                    results.lock().expect("no worker panics while it holds this")[index] =
                        Some(result);
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let results = results.into_inner().expect("no worker panics while it holds this");
    results.into_iter().map(|result| result.expect("every index was taken once")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const SCENARIO: &str = r#"
        name = "batch"
        topology = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 4 }
        measure = { flows = true }
        [[workload]]
        kind = "permutation"
        size = "200KB"
        [[workload]]
        kind = "ring-all-reduce"
        size = "400KB"
        [[fault]]
        kind = "loss"
        links = "random-uplink"
        probability = 0.02
    "#;

    fn reports(workers: usize) -> Vec<String> {
        let scenario = Scenario::parse(SCENARIO, Path::new("")).unwrap();
        let job = |seed| Job { scenario: scenario.clone(), seed: Seed(seed) };
        let jobs: Vec<_> = (0..8).map(job).collect();
        let results = run_all(&jobs, workers, &|_| {});
        results.into_iter().map(|result| result.unwrap().to_json()).collect()
    }

    #[test]
    fn one_worker_and_several_give_the_same_bytes_in_the_same_order() {
        let one = reports(1);
        assert_eq!(one, reports(2));
        assert_eq!(one, reports(5));
        assert_ne!(one[0], one[1], "seeds make a difference");
        assert!(one.iter().all(|json| json.contains("\"finished\": true")), "{}", one[0]);
    }
}
