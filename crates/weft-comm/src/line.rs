//! The line that a rank sends to rank 0, as it arrives, and what both lines of the rendezvous have in common.

/// The first word of both lines; the number is the version.
pub(crate) const NAME: &str = "weft-coll-2";
/// Maximum length of a line in bytes: a rank's is short, the answer has an address for each rank.
pub(crate) const MAX_LINE: usize = 1 << 20;
/// Maximum length in bytes of a line whose token is not verified: the line's prefix and the longest token.
pub(crate) const MAX_UNAUTHENTICATED_BYTES: usize = 512;

/// The part of a caller's line that has arrived.
#[derive(Debug)]
pub(crate) struct Line(Vec<u8>);

/// The state of a caller's line.
pub(crate) enum Progress {
    /// The line is not complete.
    Waiting,
    /// The complete line, without its line break.
    Whole(String),
    /// The reason to refuse the connection.
    Failed(String),
}

impl Line {
    /// Returns a line of which nothing has arrived.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], has_token: impl Fn(&str) -> bool) -> Progress {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        self.0.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        if end.is_some() {
            return Progress::Whole(text(&self.0));
        }
        let is_long = self.0.len() > MAX_UNAUTHENTICATED_BYTES;
        let head = text(&self.0[..self.0.len().min(MAX_UNAUTHENTICATED_BYTES)]);
        if self.0.len() > MAX_LINE || (is_long && !has_token(&head)) {
            return Progress::Failed("its line is too long".into());
        }
        Progress::Waiting
    }
}
