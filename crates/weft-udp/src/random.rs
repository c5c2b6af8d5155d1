//! Random bytes of the operating system.

/// Returns `N` random bytes of the operating system.
///
/// # Errors
/// The operating system returned none.
pub fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
