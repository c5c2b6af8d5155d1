//! The kinds of files in which a front end may share memory.

use std::fs::File;

use rustix::fs::fcntl_get_seals;

use super::fault::MemoryFault;

/// Refuses a file whose pages are not memory: a file system in user space (FUSE) may delay each
/// access, and would block this thread with all its tenants.
///
/// Only memfd, tmpfs and hugetlbfs have seals. The kernel answers a query for them itself, whereas
/// it would ask such a file system even for its statistics (fstatfs(2)) and the file's length
/// (fstat(2)).
pub(super) fn check_kind(file: &File) -> Result<(), MemoryFault> {
    fcntl_get_seals(file).map(drop).map_err(|_| MemoryFault::Kind)
}
