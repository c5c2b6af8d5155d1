//! A token: a secret that clients send in clear text. It does not protect against readers of the wire.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq;

/// A secret that a client presents with its commands: 16 to 256 visible ASCII characters.
#[derive(Clone)]
pub struct Token(String);

/// An error of reading or making a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read or created.
    #[error("cannot {doing} the token in {}: {source}", path.display())]
    Io {
        /// The operation: "read" or "write".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users may read or replace the file.
    #[error(
        "{} has mode {mode:04o}, so that other users know the token or may replace it: chmod 600 {}, and make \
         another token if somebody may have read this one",
        path.display(), path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The text is not a token. The error omits the text because errors are logged.
    #[error(
        "{from} has no token, which is {MIN_LENGTH} to {MAX_LENGTH} visible ASCII characters: `weft adm token FILE` makes one"
    )]
    Malformed {
        /// The source of the text: a file or an environment variable.
        from: String,
    },
}

/// Minimum characters of a token: 64 bits if they are hexadecimal digits, too many to guess over a network.
const MIN_LENGTH: usize = 16;
/// Maximum characters of a token.
const MAX_LENGTH: usize = 256;
/// Number of random bytes of a new token.
const NEW_BYTES: usize = 16;
/// The permission bits that a token file must not have: the group may not write, others have no access.
const FORBIDDEN: u32 = 0o027;

impl Token {
    /// Reads a token from a file and trims white space.
    ///
    /// # Errors
    /// Returns `Io`; `Open` if the group may write the file or others may access it; `Malformed`.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Io { doing: "read", path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        // Checks the mode of the opened file: the path may name another file by now.
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & FORBIDDEN != 0 {
            return Err(TokenError::Open { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(2 * MAX_LENGTH as u64).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text, || path.display().to_string())
    }

    /// Makes a random token and writes it to a new file of mode 0600.
    ///
    /// # Errors
    /// Returns `Io`, also if the file exists.
    pub fn create(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Io { doing: "write", path: path.to_owned(), source };
        let token = Self::random().map_err(failed)?;
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        writeln!(file, "{}", token.0).map_err(failed)?;
        Ok(token)
    }

    /// Returns a token of 128 random bits.
    ///
    /// # Errors
    /// Returns an error if the kernel has no randomness.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; NEW_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the token in the environment variable `name`, or in the file that the variable `name` + `_FILE` names;
    /// `None` if neither is set. An empty variable counts as not set.
    ///
    /// # Errors
    /// As [`read`](Self::read); `Malformed` names the variable `name` if it holds the text.
    pub fn from_environment(name: &str) -> Result<Option<Self>, TokenError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(text) = set(name) {
            return Self::parse(&text.to_string_lossy(), || name.to_owned()).map(Some);
        }
        set(&format!("{name}_FILE")).map(|path| Self::read(Path::new(&path))).transpose()
    }

    /// Parses a token after trimming white space; `from` names the text in errors.
    fn parse(text: &str, from: impl FnOnce() -> String) -> Result<Self, TokenError> {
        let text = text.trim();
        let is_token = (MIN_LENGTH..=MAX_LENGTH).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_token {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError::Malformed { from: from() })
        }
    }

    /// Returns `true` if `shown` equals this token. The time depends only on the length of `shown`: of another length
    /// than the token's, it is refused at once.
    pub fn is(&self, shown: &str) -> bool {
        constant_time_eq(self.0.as_bytes(), shown.as_bytes())
    }

    /// Returns the secret, to send it to a peer or to pass it to a child process.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Returns `true` if two byte strings are equal. The time depends on their lengths, not on the position of the
/// difference.
pub fn constant_time_eq(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for Token {}

/// Prints no secret, because values are printed and logged.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(name: &str, text: &str, mode: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weft-guard-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_file_that_others_may_read_or_write_is_refused_with_the_fix() {
        for (mode, is_fine) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o644, false),
            (0o604, false),
            (0o620, false),
            (0o602, false),
        ] {
            let path = file("mode", "0123456789abcdef\n", mode);
            match Token::read(&path) {
                Ok(token) => assert!(is_fine && token.is("0123456789abcdef"), "{mode:o}"),
                Err(error) => {
                    let fix = format!("chmod 600 {}", path.display());
                    assert!(!is_fine && error.to_string().contains(&fix), "{mode:o}: {error}");
                }
            }
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_new_file_is_its_users_alone_and_replaces_none() {
        let path = file("new", "", 0o600);
        let error = Token::create(&path).unwrap_err().to_string();
        assert!(error.contains("cannot write the token"), "{error}");
        fs::remove_file(&path).unwrap();
        let made = Token::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Token::read(&path).unwrap(), made);
        assert_ne!(made, Token::random().unwrap());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_malformed_token_is_refused_and_its_text_is_not_logged() {
        for text in
            ["", "fifteen-letters", "0123456789 abcdef", "0123456789abcde\u{7f}", &"x".repeat(257)]
        {
            let path = file("text", text, 0o600);
            let error = Token::read(&path).unwrap_err().to_string();
            assert!(error.contains("has no token") && error.contains("weft adm token"), "{error}");
            assert!(text.is_empty() || !error.contains(text), "{error}");
            fs::remove_file(path).unwrap();
        }
        let token = Token::parse("0123456789abcdef", String::new).unwrap();
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::parse("0123456789abcdef", String::new).unwrap();
        for shown in ["", "0", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0"] {
            assert!(!token.is(shown), "{shown:?}");
        }
        assert!(token.is("0123456789abcdef"));
    }
}
