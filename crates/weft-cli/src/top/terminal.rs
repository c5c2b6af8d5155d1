//! The terminal: raw mode and the alternate screen, which end with the session, with a panic and with a suspension.

use std::io::{self, IsTerminal, stdin, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// `true` while the terminal shows the page. It is restored once: a second time would move the cursor back over what was
/// printed since, such as the message of a panic.
static SHOWS_PAGE: AtomicBool = AtomicBool::new(false);

/// Takes the terminal, and returns it without anything on it. A shell may have changed its mode while this process was
/// stopped, so the mode is set again even if it was.
fn show_page() -> io::Result<DefaultTerminal> {
    SHOWS_PAGE.store(true, Ordering::SeqCst);
    disable_raw_mode()?;
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
    Terminal::new(CrosstermBackend::new(stdout()))
}

fn restore() -> io::Result<()> {
    if !SHOWS_PAGE.swap(false, Ordering::SeqCst) {
        return Ok(());
    }
    disable_raw_mode()?;
    execute!(stdout(), LeaveAlternateScreen, Show)
}

/// Has a panic of any thread restore the terminal before it prints its message.
fn restore_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // A terminal that has gone cannot be restored.
        let _ = restore();
        print(panic);
    }));
}

/// A terminal that shows a page. It is restored when this value is dropped and, before the message is printed, by a
/// panic.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) terminal: DefaultTerminal,
    signals: Signals,
}

/// A signal's effect on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The program ends, as this signal ends it.
    End(i32),
    /// The program stops until it is continued.
    Suspend,
    /// The program goes on after a stop that it could not prepare (SIGSTOP): the shell has had the terminal.
    Resume,
}

impl Session {
    /// Prepares the terminal.
    ///
    /// # Errors
    /// Returns an error if standard input or output is not a terminal, or the terminal refuses.
    pub(super) fn start() -> Result<Self> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            bail!(
                "standard input and output are not a terminal: `weft top --once` prints one page, with --json as JSON"
            );
        }
        let signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGCONT])
            .context("cannot handle signals")?;
        restore_on_panic();
        match show_page() {
            Ok(terminal) => Ok(Self { terminal, signals }),
            Err(error) => {
                let _ = restore();
                Err(error).context("cannot prepare the terminal")
            }
        }
    }

    /// Returns the effect of the next signal that has arrived.
    pub(super) fn poll_signal(&mut self) -> Option<Effect> {
        let signal = self.signals.pending().next()?;
        Some(match signal {
            SIGTSTP => Effect::Suspend,
            SIGCONT => Effect::Resume,
            signal => Effect::End(signal),
        })
    }

    /// Gives the terminal back, stops this process until it is continued, and takes the terminal again.
    ///
    /// # Errors
    /// Returns an error if the terminal refuses.
    pub(super) fn suspend(&mut self) -> Result<()> {
        restore().context("cannot restore the terminal")?;
        emulate_default_handler(SIGTSTP).context("cannot stop this process")?;
        self.resume()
    }

    /// Takes the terminal again, and forgets what it showed. It does not ask the terminal anything, which might not answer.
    ///
    /// # Errors
    /// Returns an error if the terminal refuses.
    pub(super) fn resume(&mut self) -> Result<()> {
        self.terminal = show_page().context("cannot prepare the terminal again")?;
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A terminal that has gone cannot be restored.
        let _ = restore();
    }
}

/// Ends this process by a signal's default action, so that its parent sees which one it was.
pub(super) fn end_by(signal: i32) -> Result<()> {
    emulate_default_handler(signal).context("cannot end by the signal")
}

#[cfg(test)]
#[path = "../../tests/operate/terminal.rs"]
#[allow(dead_code, reason = "other tests press keys")]
mod emulator;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The variable that has this test panic in the terminal of its parent.
    const PANICS: &str = "TOP_PANICS_HERE";

    #[test]
    fn a_panic_restores_the_terminal_before_its_message() {
        if std::env::var_os(PANICS).is_some() {
            let mut session = Session::start().unwrap();
            session.terminal.draw(|frame| frame.render_widget("a page", frame.area())).unwrap();
            panic!("the page is broken");
        }
        let mut this = Command::new(std::env::current_exe().unwrap());
        let name = "top::terminal::tests::a_panic_restores_the_terminal_before_its_message";
        // A backtrace may push the message off the screen.
        let this = this.args([name, "--exact", "--nocapture"]);
        let this = this.env(PANICS, "1").env("RUST_BACKTRACE", "0");
        let mut terminal = emulator::Terminal::start(this);
        assert!(!terminal.child.wait().unwrap().success());
        // The last of its output may still be on its way.
        let begun = std::time::Instant::now();
        while !(terminal.is_restored() && terminal.text().contains("the page is broken")) {
            assert!(begun.elapsed().as_secs() < 60, "{}", terminal.text());
            weft_testkit::pause();
        }
        assert!(!terminal.text().contains("a page"), "it was on the other screen");
    }
}
