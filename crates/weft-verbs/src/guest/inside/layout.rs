//! The place of the guest's memory, which its relay assumes: physical addresses from zero up to 2 GiB, and the rest from
//! 4 GiB on. QEMU puts it there with the options that `weft device guest` prints.

use std::fs;
use std::ops::RangeInclusive;

/// The end of the lower memory, and the beginning of the upper one.
const BELOW: u64 = 2 << 30;
const ABOVE: u64 = 4 << 30;

/// Maximum size of what firmware and kernel keep at the end of the lower memory, bytes.
const MAX_RESERVED: u64 = 512 << 20;

/// Returns `true` if this guest's memory lies where its relay looks for it, or the kernel does not show its place.
pub(super) fn is_expected() -> bool {
    fs::read_to_string("/proc/iomem").map_or(true, |text| has_expected_memory(&text))
}

fn has_expected_memory(iomem: &str) -> bool {
    let memory: Vec<_> = iomem.lines().filter_map(memory_of).collect();
    let (upper, lower): (Vec<_>, Vec<_>) = memory.iter().partition(|range| *range.start() >= ABOVE);
    let end = lower.iter().map(|range| range.end() + 1).max().unwrap_or(0);
    // If there is more, the lower memory is full.
    end <= BELOW && (upper.is_empty() || end >= BELOW - MAX_RESERVED)
}

/// Returns the addresses of memory in a line of `/proc/iomem`. To other users than root the kernel shows zeroes.
fn memory_of(line: &str) -> Option<RangeInclusive<u64>> {
    let (start, end) = line.strip_suffix(" : System RAM")?.split_once('-')?;
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
    Some(start?..=end?).filter(|range| *range.end() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_between_two_and_four_gibibytes_is_not_where_the_relay_looks() {
        let with = |ranges: &[&str]| {
            let lines = ranges.iter().map(|range| format!("{range} : System RAM\n"));
            let text = lines.collect::<String>()
                + "  01000000-01ffffff : Kernel code\nfeffc000-feffffff : Reserved\n";
            has_expected_memory(&text)
        };
        let low = "00001000-0009fbff";
        assert!(with(&[low, "00100000-1ffdffff"]), "512 MiB");
        assert!(with(&[low, "00100000-7ffdffff", "100000000-17fffffff"]), "4 GiB");
        assert!(!with(&[low, "00100000-bffdffff", "100000000-13fffffff"]), "3 GiB below 4 GiB");
        assert!(!with(&[low, "00100000-bffdffff"]), "3 GiB, all below 4 GiB");
        assert!(!with(&[low, "00100000-3ffdffff", "100000000-17fffffff"]), "1 GiB below 4 GiB");
        assert!(with(&["00000000-00000000", "00000000-00000000"]), "not shown");
    }
}
