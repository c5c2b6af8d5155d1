//! The heap of a program that requested huge pages lies where the kernel may use them.

use std::fs;
use std::hint::black_box;

/// Returns the flags of the kernel's mapping that holds `address`, or `None` if the kernel does not report them.
fn flags_of_mapping(address: usize) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/smaps").ok()?;
    let mut is_mapping_of_address = false;
    for line in maps.lines() {
        let first = line.split(' ').next()?;
        let range = first.split_once('-').and_then(|(from, to)| {
            let hex = |text| usize::from_str_radix(text, 16).ok();
            Some(hex(from)?..hex(to)?)
        });
        if let Some(range) = range {
            is_mapping_of_address = range.contains(&address);
        } else if is_mapping_of_address && let Some(flags) = line.strip_prefix("VmFlags:") {
            return Some(flags.to_owned());
        }
    }
    None
}

fn main() {
    if !fs::exists("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or(false)
        || !cfg!(target_env = "gnu")
    {
        let reason = "no transparent huge pages here, or another allocator than glibc's";
        return weft_testkit::skip_on_this_machine("the heap in huge pages", reason);
    }
    weft_sim::memory::prefer_huge_pages();
    // Small allocations, as connections are, and one as long as a large world's hosts.
    let small: Vec<_> = (0..1_000).map(|_| black_box(Box::new([0u8; 1_500]))).collect();
    let long = black_box(vec![1u8; 20 << 20]);
    let last = &long[long.len() - 1];
    // Address space that is used after gigabytes of others.
    let far: Vec<_> = (0..100).map(|_| black_box(Vec::<u8>::with_capacity(16 << 20))).collect();
    for address in [
        small[999].as_ptr().addr(),
        long.as_ptr().addr(),
        std::ptr::from_ref(last).addr(),
        far[99].as_ptr().addr(),
    ] {
        let flags = flags_of_mapping(address).expect("the heap is mapped");
        assert!(flags.split(' ').any(|flag| flag == "hg"), "{address:x} has{flags}, not hg");
    }
    println!("ok");
}
