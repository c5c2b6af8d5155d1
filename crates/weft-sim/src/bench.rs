//! What a process may ask the kernel about itself, for benchmarks. Nothing in a run depends on it.

use std::fs;

/// Processor time this process has used, user and system, nanoseconds; zero where the kernel does
/// not say. Unlike wall-clock time it does not count what other processes do meanwhile.
pub fn process_cpu_nanos() -> u64 {
    // The first field of schedstat is time spent on the processor, nanoseconds, for each thread.
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|line| line.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// The most memory this process ever had resident, bytes; zero where the kernel does not say.
pub fn peak_resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
