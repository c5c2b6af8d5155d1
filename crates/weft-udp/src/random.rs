//! Entropy of the operating system.

/// Returns random bytes from the operating system.
///
/// # Errors
/// The operating system has none.
pub fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
