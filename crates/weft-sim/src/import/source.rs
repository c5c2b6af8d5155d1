//! A file as a stream of lines or bytes, uncompressed on the way, with limits on what it may expand to.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::error::{ImportError, Place};

/// The longest line, bytes.
const MAX_LINE: u64 = 1 << 20;
/// The bytes that a compressed file may always expand to.
const FREE_EXPANSION: u64 = 4 << 20;
/// The bytes that one compressed byte may expand to beyond that. Text and traces stay far below it; gzip's limit is
/// about 1030.
const MAX_EXPANSION: u64 = 200;
/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The content of a file, as it is read.
pub struct Source<'a> {
    file: PathBuf,
    reader: BufReader<Box<dyn Read + 'a>>,
    /// Number of bytes of the file, and of those that were read.
    size: u64,
    consumed: Arc<AtomicU64>,
    is_compressed: bool,
    /// The number of uncompressed bytes that were returned.
    offset: u64,
    line: usize,
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Source({})", self.file.display())
    }
}

/// Counts the bytes that are read.
struct Counted<R> {
    inner: R,
    consumed: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.consumed.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl<'a> Source<'a> {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(file: &Path) -> Result<Source<'static>, ImportError> {
        let unreadable = |error: std::io::Error| ImportError::new(file, error);
        let opened = File::open(file).map_err(unreadable)?;
        let size = opened.metadata().map_err(unreadable)?.len();
        Source::over(opened, size, file)
    }

    /// Returns the source of these bytes; errors name them `file`.
    ///
    /// # Errors
    /// The bytes begin like a compressed file and are none.
    pub fn of(bytes: &'a [u8], file: &Path) -> Result<Self, ImportError> {
        Self::over(bytes, bytes.len() as u64, file)
    }

    fn over(inner: impl Read + 'a, size: u64, file: &Path) -> Result<Self, ImportError> {
        let consumed = Arc::new(AtomicU64::new(0));
        let counted = Counted { inner, consumed: Arc::clone(&consumed) };
        let mut raw = BufReader::new(counted);
        let head = raw.fill_buf().map_err(|error| ImportError::new(file, error))?;
        let is_compressed = head.starts_with(&GZIP);
        let reader: Box<dyn Read + 'a> =
            if is_compressed { Box::new(MultiGzDecoder::new(raw)) } else { Box::new(raw) };
        let (reader, file) = (BufReader::new(reader), file.into());
        Ok(Self { file, reader, size, consumed, is_compressed, offset: 0, line: 0 })
    }

    /// Returns the file's name.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the number of uncompressed bytes that were read.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of the line that was read last, counting from one.
    pub(super) const fn line(&self) -> usize {
        self.line
    }

    /// Returns the share of the file that was read; 1 until enough was read to conclude from it.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub(super) fn share(&self) -> f64 {
        let consumed = self.consumed.load(Ordering::Relaxed);
        let is_known = consumed >= (1 << 20) && consumed < self.size;
        if is_known { consumed as f64 / self.size as f64 } else { 1.0 }
    }

    /// Returns an error about the line that was read last.
    pub(super) fn line_error(&self, expected: &str, found: &str) -> ImportError {
        let found: String = found.chars().take(80).collect();
        let message = format!("expected {expected}, found {found:?}");
        ImportError::at(&self.file, Place::Line(self.line), message)
    }

    /// Returns an error about the byte that would be read next.
    pub(super) fn byte_error(&self, message: impl std::fmt::Display) -> ImportError {
        ImportError::at(&self.file, Place::Byte(self.offset), message)
    }

    fn count(&mut self, bytes: u64) -> Result<(), ImportError> {
        self.offset += bytes;
        let consumed = self.consumed.load(Ordering::Relaxed);
        let limit = FREE_EXPANSION.max(consumed.saturating_mul(MAX_EXPANSION));
        if self.is_compressed && self.offset > limit {
            let message = format!(
                "{consumed} bytes expand to more than {limit}, more than {MAX_EXPANSION}-fold; \
                 no input does, uncompress the file first if it is meant"
            );
            return Err(self.byte_error(message));
        }
        Ok(())
    }

    /// Reads the next line without its end, into `line`; returns `false` at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, is not UTF-8, or has a line that is too long.
    pub(super) fn next_line(&mut self, line: &mut String) -> Result<bool, ImportError> {
        line.clear();
        self.line += 1;
        let read = (&mut self.reader).take(MAX_LINE).read_line(line);
        let read =
            read.map_err(|error| ImportError::at(&self.file, Place::Line(self.line), error))?;
        if read as u64 == MAX_LINE && !line.ends_with('\n') {
            let message = format!("the line is longer than {MAX_LINE} bytes");
            return Err(ImportError::at(&self.file, Place::Line(self.line), message));
        }
        self.count(read as u64)?;
        while line.ends_with(['\n', '\r']) {
            line.pop();
        }
        Ok(read > 0)
    }

    /// Fills `bytes`; returns `false` if the file ends before the first of them.
    ///
    /// # Errors
    /// The file cannot be read, or ends within `bytes`.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<bool, ImportError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let read = self.reader.read(&mut bytes[filled..]);
            match read.map_err(|error| self.byte_error(error))? {
                0 if filled == 0 => return Ok(false),
                0 => return Err(self.byte_error("the file ends here, in the middle of a record")),
                read => filled += read,
            }
        }
        self.count(filled as u64)?;
        Ok(true)
    }

    /// Reads `length` bytes into `buffer`.
    ///
    /// # Errors
    /// As [`Self::read`], and if the file ends before.
    pub(super) fn read_into(
        &mut self,
        buffer: &mut Vec<u8>,
        length: usize,
    ) -> Result<(), ImportError> {
        buffer.clear();
        // The length is the file's word: memory grows with what is really there.
        let read = (&mut self.reader).take(length as u64).read_to_end(buffer);
        let read = read.map_err(|error| self.byte_error(error))?;
        self.count(read as u64)?;
        if read < length {
            let message =
                format!("the file ends {} bytes before the end of a record", length - read);
            return Err(self.byte_error(message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gz.write_all(bytes).unwrap();
        gz.finish().unwrap()
    }

    fn lines(bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut source = Source::of(bytes, Path::new("f")).map_err(|error| error.to_string())?;
        let (mut lines, mut line) = (Vec::new(), String::new());
        while source.next_line(&mut line).map_err(|error| error.to_string())? {
            lines.push(line.clone());
        }
        Ok(lines)
    }

    #[test]
    fn compressed_files_are_recognised_by_their_first_bytes() {
        let want = Ok(vec!["one".to_owned(), "two".to_owned()]);
        assert_eq!(lines(b"one\r\ntwo"), want);
        assert_eq!(lines(&gzip(b"one\ntwo\n")), want);
        assert_eq!(lines(b""), Ok(vec![]));
    }

    #[test]
    fn damaged_files_are_refused_with_the_place() {
        let whole = gzip(&b"line\n".repeat(1000));
        let error = lines(&whole[..whole.len() - 12]).unwrap_err();
        assert!(error.starts_with("f:"), "{error}");
        assert!(lines(b"a\n\xff\n").unwrap_err().starts_with("f:2: "));
        let error = lines(&vec![b'x'; 1 << 21]).unwrap_err();
        assert_eq!(error, "f:1: the line is longer than 1048576 bytes");
    }

    #[test]
    fn a_bomb_is_refused_before_it_has_expanded() {
        let bomb = gzip(&vec![b'\n'; 6 << 20]);
        assert!(bomb.len() < 1 << 20);
        let error = lines(&bomb).unwrap_err();
        assert!(error.contains("more than 200-fold"), "{error}");
    }
}
