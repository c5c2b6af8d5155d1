//! The loop: samples arrive from a thread of their own, keys and signals from the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::collect::Collector;
use super::draw::draw;
use super::page::Page;
use super::sample::Sample;
use super::screen::Screen;
use super::terminal::{Effect, Session, end_by};

/// The time for which the loop waits for a key before it looks for samples and signals.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// Shows pages until the reader or a signal ends it.
///
/// # Errors
/// Returns an error if there is no terminal, or it fails.
pub(crate) fn run(collector: Collector, interval: Duration, screen: Screen) -> Result<()> {
    let mut session = Session::start()?;
    let ended = show(&mut session, &Sampler::start(collector, interval)?, screen);
    drop(session);
    ended?.map_or(Ok(()), end_by)
}

/// Shows pages; returns the signal that ended it, `None` if the reader did.
fn show(session: &mut Session, sampler: &Sampler, mut screen: Screen) -> Result<Option<i32>> {
    let (mut last, mut page): (Option<Sample>, Option<Page>) = (None, None);
    let mut is_stale = true;
    loop {
        if let Some(sample) = sampler.poll()? {
            page = Some(Page::of(last.as_ref(), &sample));
            last = Some(sample);
            is_stale = true;
        }
        if is_stale {
            let drawn = session.terminal.draw(|frame| draw(frame, page.as_ref(), &mut screen));
            drawn.context("cannot draw on the terminal")?;
        }
        is_stale = handle_input(page.as_ref(), &mut screen)?;
        sampler.set_paused(screen.is_paused);
        if screen.is_done {
            return Ok(None);
        }
        if std::mem::take(&mut screen.suspends) {
            session.suspend()?;
            is_stale = true;
        }
        while let Some(effect) = session.poll_signal() {
            match effect {
                Effect::End(signal) => return Ok(Some(signal)),
                Effect::Suspend => session.suspend()?,
                Effect::Resume => session.resume()?,
            }
            is_stale = true;
        }
    }
}

/// Waits for input for a short time, and handles it. Returns `true` if the page must be drawn again.
fn handle_input(page: Option<&Page>, screen: &mut Screen) -> Result<bool> {
    let cannot = "cannot read the terminal";
    if !event::poll(KEY_WAIT).context(cannot)? {
        return Ok(false);
    }
    match event::read().context(cannot)? {
        Event::Key(key) if key.kind == KeyEventKind::Press => {
            let empty = weft_report::Table::default();
            screen.handle_key(key, page.map_or(&empty, |page| page.table(screen.view)));
            Ok(true)
        }
        Event::Resize(..) => Ok(true),
        _ => Ok(false),
    }
}

/// The thread that takes samples. It ends with this value, or at the end of the process if a source hangs.
struct Sampler {
    samples: Receiver<Sample>,
    is_paused: Arc<AtomicBool>,
    /// The thread ends when this is dropped.
    _stop: Sender<()>,
}

impl Sampler {
    fn start(mut collector: Collector, interval: Duration) -> Result<Self> {
        let (send, samples) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let is_paused = Arc::new(AtomicBool::new(false));
        let paused = Arc::clone(&is_paused);
        let take_samples = move || {
            loop {
                if !paused.load(Ordering::Relaxed) && send.send(collector.sample()).is_err() {
                    return;
                }
                if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("samples".into()).spawn(take_samples);
        thread.context("cannot start a thread")?;
        Ok(Self { samples, is_paused, _stop: stop })
    }

    fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Returns the newest sample that has arrived.
    ///
    /// # Errors
    /// Returns an error if the thread has ended: only a panic ends it.
    fn poll(&self) -> Result<Option<Sample>> {
        match self.samples.try_recv() {
            Ok(sample) => Ok(Some(sample)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                bail!("no more samples: the thread that takes them has ended")
            }
        }
    }
}
