//! The exchange of bytes between the two ranks outside the plugin, as NCCL's bootstrap does it: through a channel between threads,
//! or through the standard input and output of processes.

use std::fmt::Write as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The lines of a rank's process: a message to the other rank, and the result of a check.
pub(crate) const MESSAGE: &str = "message ";

/// One rank's end.
#[derive(Debug)]
pub(crate) struct Exchange {
    outgoing: Outgoing,
    incoming: Receiver<Vec<u8>>,
    limit: Duration,
}

#[derive(Debug)]
enum Outgoing {
    Channel(Sender<Vec<u8>>),
    Output,
}

impl Exchange {
    /// Returns the ends of two threads.
    pub(crate) fn pair(limit: Duration) -> [Self; 2] {
        let (first, second) = (channel(), channel());
        let end =
            |outgoing, incoming| Self { outgoing: Outgoing::Channel(outgoing), incoming, limit };
        [end(first.0, second.1), end(second.0, first.1)]
    }

    /// Returns the end of this process: it writes lines to standard output, and a thread reads them from standard input.
    pub(crate) fn of_process(limit: Duration) -> Self {
        let (sender, incoming) = channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                let bytes = line.strip_prefix(MESSAGE).and_then(from_hex);
                if bytes.is_some_and(|bytes| sender.send(bytes).is_err()) {
                    return;
                }
            }
        });
        Self { outgoing: Outgoing::Output, incoming, limit }
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        match &self.outgoing {
            // The other rank has failed, and reports that.
            Outgoing::Channel(sender) => drop(sender.send(bytes.to_vec())),
            Outgoing::Output => println!("{MESSAGE}{}", to_hex(bytes)),
        }
    }

    /// Waits for bytes of the other rank.
    ///
    /// # Errors
    /// It sends nothing for the limit, or has ended.
    pub(crate) fn receive(&self) -> Result<Vec<u8>, String> {
        self.incoming.recv_timeout(self.limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                format!("the other rank has sent nothing for {} s", self.limit.as_secs())
            }
            RecvTimeoutError::Disconnected => "the other rank has failed".to_owned(),
        })
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = (0..text.len()).step_by(2);
    pairs
        .map(|at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_their_text() {
        let bytes = [0, 1, 0x7f, 0xff];
        assert_eq!(from_hex(&to_hex(&bytes)).as_deref(), Some(&bytes[..]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
