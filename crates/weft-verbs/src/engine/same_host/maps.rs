//! The mappings of a process, as `/proc/PID/maps` lists them (`proc_pid_maps(5)`).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The object behind a range of shared memory: all of the range is mapped from it, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedObject<'a> {
    /// The device number, as `fstat(2)` reports it.
    pub(super) device: u64,
    /// The inode number; of a System V segment, its id.
    pub(super) inode: u64,
    /// The offset of the range's first byte.
    pub(super) offset: u64,
    /// The path, if it had one when it was opened.
    pub(super) path: &'a Path,
    /// The addresses of the mapping with the range's first byte.
    pub(super) mapping: (u64, u64),
}

impl SharedObject<'_> {
    /// Returns `true` for a System V shared memory segment, whose path consists of its key.
    pub(super) fn is_segment(&self) -> bool {
        let path = self.path.as_os_str().as_bytes();
        let key = path.strip_prefix(b"/SYSV").and_then(|rest| rest.split_at_checked(8));
        key.is_some_and(|(key, rest)| {
            key.iter().all(u8::is_ascii_hexdigit) && matches!(rest, b"" | b" (deleted)")
        })
    }
}

/// A question for one mapping of a process (`struct procmap_query` of `linux/fs.h`).
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    /// Zero requests the mapping that contains `address`.
    request: u64,
    address: u64,
    start: u64,
    end: u64,
    flags: u64,
    page: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    /// Zero requests no name and no build ID.
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// The flag of shared mappings.
const SHARED: u64 = 8;

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl =
    3 << 30 | (size_of::<Query>() as libc::Ioctl) << 16 | 0x66 << 8 | 17;

/// Returns `true` if shared memory is mapped at an address of this process; `None` if the kernel cannot answer that
/// (before 6.11).
pub(super) fn is_shared(address: u64) -> Option<bool> {
    let maps = File::open("/proc/self/maps").ok()?;
    let mut query = Query { size: size_of::<Query>() as u64, address, ..Query::default() };
    // SAFETY: the kernel writes `size` bytes of the structure.
    let asked = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    match io::Error::last_os_error().raw_os_error() {
        _ if asked == 0 => Some(query.flags & SHARED != 0),
        Some(libc::ENOENT) => Some(false),
        _ => None,
    }
}

/// A line, without its addresses.
#[derive(Clone, Copy, Debug)]
struct Mapping<'a> {
    readable: bool,
    writable: bool,
    object: SharedObject<'a>,
}

/// Returns the object behind a range of addresses, if the range is readable shared memory of one object, with
/// consecutive offsets. With `writes` it must be writable too.
pub(super) fn shared_object(
    maps: &[u8],
    range: Range<u64>,
    writes: bool,
) -> Option<SharedObject<'_>> {
    let mut found: Option<SharedObject<'_>> = None;
    // Lines are in the order of addresses.
    let mut next = range.start;
    for line in maps.split(|&byte| byte == b'\n') {
        let Some((start, end)) = addresses(line) else { continue };
        if end <= next {
            continue;
        }
        let mapping = parse(line, (start, end))
            .filter(|mapping| start <= next && mapping.readable && (mapping.writable || !writes))?;
        let object = mapping.object;
        let offset = object.offset.checked_add(next - start)?;
        let first = *found.get_or_insert(SharedObject { offset, ..object });
        let continues = (object.device, object.inode) == (first.device, first.inode)
            && offset == first.offset.checked_add(next - range.start)?;
        if !continues {
            return None;
        }
        next = end;
        if next >= range.end {
            return found;
        }
    }
    None
}

/// Returns the addresses at the start of a line.
fn addresses(line: &[u8]) -> Option<(u64, u64)> {
    let text = core::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
    let (start, end) = text.split_once('-')?;
    Some((hexadecimal(start)?, hexadecimal(end)?))
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Returns a line's mapping, if it is shared.
fn parse(line: &[u8], addresses: (u64, u64)) -> Option<Mapping<'_>> {
    let mut rest = line;
    let mut field = || {
        let len = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (field, after) = rest.split_at(len);
        rest = after.strip_prefix(b" ").unwrap_or(after);
        core::str::from_utf8(field).ok()
    };
    let (_, rights, offset) = (field()?, field()?.as_bytes(), field()?);
    let ((major, minor), inode) = (field()?.split_once(':')?, field()?);
    let &[read, write, _, b's'] = rights else { return None };
    let number = |text| u32::from_str_radix(text, 16).ok();
    let padding = rest.iter().take_while(|&&byte| byte == b' ').count();
    let object = SharedObject {
        device: libc::makedev(number(major)?, number(minor)?),
        inode: inode.parse().ok()?,
        offset: hexadecimal(offset)?,
        path: Path::new(OsStr::from_bytes(&rest[padding..])),
        mapping: addresses,
    };
    Some(Mapping { readable: read == b'r', writable: write == b'w', object })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a process of Linux 6.18.
    const MAPS: &[u8] = b"\
55d0c0a00000-55d0c0a02000 r--p 00000000 fe:00 131 /usr/bin/program
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000200000-7f0000300000 rw-s 00000000 00:1a 42                         /dev/shm/a name with spaces
7f0000300000-7f0000380000 rw-s 00100000 00:1a 42                         /dev/shm/a name with spaces
7f0000380000-7f0000400000 r--s 00180000 00:1a 42                         /dev/shm/a name with spaces
7f0000500000-7f0000600000 rw-s 00200000 00:01 1027                       /memfd:buffer (deleted)
7f0000600000-7f0000700000 rw-s 00000000 00:01 1028                       /memfd:other (deleted)
7f0000800000-7f0000a00000 rw-s 00200000 00:0f 20511                      /anon_hugepage (deleted)
7f0000a00000-7f0000c00000 rw-s 00000000 00:0f 98309                      /SYSV00000000 (deleted)
7f0000c00000-7f0000c01000 rw-s 00000000 00:01 32769                      /SYSV0000abcd
7f0000d00000-7f0000e00000 rw-s 00000000 00:1a 43                         /dev/shm/twice
7f0000e00000-7f0000f00000 rw-s 00000000 00:1a 43                         /dev/shm/twice
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    fn found(start: u64, end: u64, writes: bool) -> Option<(u64, u64, u64, &'static str)> {
        let object = shared_object(MAPS, start..end, writes)?;
        let path = object.path.to_str().unwrap();
        Some((object.device, object.inode, object.offset, path))
    }

    #[test]
    fn shared_memory_is_found_with_its_file_and_offset() {
        let shm = "/dev/shm/a name with spaces";
        let device = |major, minor| libc::makedev(major, minor);
        let tmpfs = device(0, 0x1a);
        assert_eq!(found(0x7f00_0020_0010, 0x7f00_0020_0020, true), Some((tmpfs, 42, 0x10, shm)));
        // Two mappings of consecutive parts, and a third that cannot be written.
        let (start, end) = (0x7f00_002f_f000, 0x7f00_0038_0000);
        assert_eq!(found(start, end, true), Some((tmpfs, 42, 0xf_f000, shm)));
        assert_eq!(found(start, end + 1, true), None);
        assert_eq!(found(start, end + 1, false), Some((tmpfs, 42, 0xf_f000, shm)));
        let memfd = found(0x7f00_0050_0000, 0x7f00_0060_0000, true).unwrap();
        assert_eq!(memfd, (device(0, 1), 1027, 0x20_0000, "/memfd:buffer (deleted)"));
        let huge = found(0x7f00_0080_0000, 0x7f00_00a0_0000, true).unwrap();
        assert_eq!(huge, (device(0, 15), 20_511, 0x20_0000, "/anon_hugepage (deleted)"));
    }

    #[test]
    fn memory_that_is_private_or_not_of_one_object_is_not_found() {
        let ranges = [
            ("private", 0x7f00_0000_0000..0x7f00_0000_1000),
            ("private at first", 0x7f00_000f_f000..0x7f00_0020_1000),
            ("not mapped", 0x7f00_0010_0000..0x7f00_0020_0000),
            ("a gap behind", 0x7f00_0038_0000..0x7f00_0050_1000),
            ("two files", 0x7f00_005f_f000..0x7f00_0060_1000),
            ("one part twice", 0x7f00_00df_f000..0x7f00_00e0_1000),
            ("the stack", 0x7ffd_0000_0000..0x7ffd_0000_1000),
            ("past the last line", 0xffff_ffff_ff60_1000..0xffff_ffff_ff60_2000),
        ];
        for (kind, range) in ranges {
            assert_eq!(found(range.start, range.end, false), None, "{kind}");
        }
        for malformed in ["7f-80", "7f-80 rw-s", "7f-80 rw-s 0 00:1 x", "x", "7f-80 rws 0 0:1 2 /a"]
        {
            assert_eq!(shared_object(malformed.as_bytes(), 0x7f..0x80, false), None, "{malformed}");
        }
    }

    #[test]
    fn segments_are_recognized_by_their_path() {
        let is_segment = |start: u64| {
            shared_object(MAPS, start..start + 1, true).map(|object| object.is_segment())
        };
        assert_eq!(is_segment(0x7f00_00a0_0000), Some(true), "of huge pages, removed");
        assert_eq!(is_segment(0x7f00_00c0_0000), Some(true));
        assert_eq!(is_segment(0x7f00_0050_0000), Some(false));
        let line = b"10000-20000 rw-s 00000000 00:1a 7 /SYSV0000abcd.data";
        let object = shared_object(line, 0x10000..0x10001, true).unwrap();
        assert!(!object.is_segment());
    }

    /// This process's own.
    #[test]
    fn the_kernels_lines_are_understood() {
        use std::os::fd::AsRawFd;
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create(c"weft maps", flags).unwrap();
        rustix::fs::ftruncate(&file, 3 * 4096).unwrap();
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let (null, fd) = (core::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe { libc::mmap(null, 8192, rights, libc::MAP_SHARED, fd, 4096) };
        assert_ne!(at, libc::MAP_FAILED);
        let (start, stat) = (at.addr() as u64, rustix::fs::fstat(&file).unwrap());
        let maps = std::fs::read("/proc/self/maps").unwrap();
        let object = shared_object(&maps, start + 100..start + 8192, true).unwrap();
        let private = Box::new(0_u64);
        let answers = [start + 100, (&raw const *private).addr() as u64, 8].map(is_shared);
        assert!([[Some(true), Some(false), Some(false)], [None; 3]].contains(&answers));
        assert_eq!((object.device, object.inode, object.offset), (stat.st_dev, stat.st_ino, 4196));
        // SAFETY: the mapping made above, which nothing uses.
        unsafe { libc::munmap(at, 8192) };
    }
}
