//! Kernel counters about this process, for benchmarks. Nothing in a run depends on them.

use std::fs;

/// Returns the processor time this process has used, user and system, nanoseconds, or zero if the kernel does not
/// report it. Unlike wall-clock time it excludes other processes.
pub fn process_cpu_nanos() -> u64 {
    // The first field of schedstat is a thread's time on the processor, nanoseconds.
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|line| line.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Returns the process's peak resident memory, bytes, or zero if the kernel does not report it.
pub fn peak_resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
