//! The verification of moves, and undoing those that did not help.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weft_units::{Duration, Instant};

use super::{Action, Carried, Controller, EventKind, Move, Stage, Subject, WINDOWS_KEPT};
use crate::fabric::LinkId;
use crate::flow::Flow;
use crate::installed::Prefix;
use crate::loads::per_mille;

/// The result of a move's verification in one window.
enum Verification {
    /// A link did not report.
    Unknown,
    /// The move helped.
    Better(String),
    /// The move did not help, with the reason.
    Worse(String),
}

impl Controller {
    /// Verifies every move that was installed before the window began.
    pub(super) fn verify(&mut self, index: u64, now: Instant) {
        let installed: Vec<_> = self
            .moves
            .iter()
            .filter_map(|(key, it)| match it.stage {
                Stage::Verifying { window } if window < index => Some((key.clone(), window)),
                _ => None,
            })
            .collect();
        for (key, window) in installed {
            match self.evaluate(&key, index) {
                // Without reports the move is not undone, and after a limited time it counts as kept.
                Verification::Unknown if index < window.saturating_add(WINDOWS_KEPT as u64) => {}
                Verification::Unknown => {
                    self.keep(&key, "unverified: its links do not report".into(), now)
                }
                Verification::Better(text) => self.keep(&key, text, now),
                Verification::Worse(why) => self.undo(&key, why, now),
            }
        }
    }

    fn evaluate(&self, key: &(String, Prefix), index: u64) -> Verification {
        let it = &self.moves[key];
        let Some(from) = self.link(&it.port_of, &it.port) else { return Verification::Unknown };
        let links = it.changes.iter();
        let links: Vec<(LinkId, i64)> = links
            .filter_map(|(router, port, change)| Some((self.link(router, port)?, *change)))
            .collect();
        let (Some(carried), Some(before)) = (self.carried(it, index), it.carried) else {
            return Verification::Unknown;
        };
        if self.is_pause(it, index) {
            return Verification::Unknown;
        }
        // A full link without marks carries a job that runs faster.
        let is_marked = |link| {
            self.telemetry.window(link, index).is_some_and(|it| it.marks > self.config.alarm.marks)
        };
        let load = |link| self.telemetry.window(link, index).map_or(0, |window| window.rate());
        let gaining = links.iter().filter(|(link, change)| *change > 0 && is_marked(*link));
        let fullest =
            gaining.map(|&(link, _)| (per_mille(load(link), &self.fabric, link), link)).max();
        let (full, link) = fullest.unwrap_or((0, from));
        let limit = it.before.max(self.config.moves.max_percent * 10);
        if full > limit {
            return Verification::Worse(format!(
                "{} is {} per mille full, {} was {} before",
                self.fabric.name(link),
                full,
                self.fabric.name(from),
                it.before
            ));
        }
        let text = format!("{carried}, {before} before");
        if carried.marks > self.config.alarm.marks && carried.is_worse_than(before) {
            return Verification::Worse(text);
        }
        Verification::Better(text)
    }

    /// Returns `true` if all flows of a move are of jobs that send nothing in a window: it shows nothing about the move.
    pub(super) fn is_pause(&self, it: &Move, index: u64) -> bool {
        let window = self.config.alarm.window;
        let start = Instant::from_nanos(index.saturating_mul(window.as_nanos()));
        let pauses = |(flow, _): &(Flow, u64)| {
            let bursts = self.bursts_of(flow).map(|(bursts, _)| bursts);
            bursts.is_some_and(|it| it.active(start, start + window) == Duration::ZERO)
        };
        !it.flows.is_empty() && it.flows.iter().all(pauses)
    }

    /// Returns the sum over links of a window's bytes and marks: the link that flows leave and all links whose load the
    /// move changes. Returns `None` if one of them did not report. The links that flows have left are included, because
    /// a packet crosses as many links before as after.
    pub(super) fn carried(&self, it: &Move, index: u64) -> Option<Carried> {
        let from = self.link(&it.port_of, &it.port)?;
        let changed = it.changes.iter().filter_map(|(router, port, _)| self.link(router, port));
        let links = core::iter::once(from).chain(changed.filter(|&link| link != from));
        let mut sum = Carried::default();
        for link in links {
            let window = self.telemetry.window(link, index)?;
            sum.bytes = sum.bytes.saturating_add(window.bytes);
            sum.marks = sum.marks.saturating_add(window.marks);
        }
        Some(sum)
    }

    /// Withdraws moves whose flows have ended, so that the routes of an ended job do not affect the next.
    pub(super) fn withdraw_idle(&mut self, index: u64, now: Instant) {
        let idle = self.config.alarm.windows(self.config.idle);
        let mut gone = Vec::new();
        for (key, it) in &mut self.moves {
            let Some(router) = self.fabric.find(&it.router) else { continue };
            // If nothing at all is sampled there, the absence of these flows means nothing.
            let seen = self.suspects.last_seen(self.fabric.links_of(router), key.1.first());
            match seen {
                Some(window) => it.seen = it.seen.max(window),
                None if self.suspects.is_silent(self.fabric.links_of(router)) => {
                    it.seen = it.seen.max(index)
                }
                None => {}
            }
            if it.stage == Stage::Kept && index.saturating_sub(it.seen) > idle {
                gone.push(key.clone());
            }
        }
        for key in gone {
            let text = format!("no flow to {} was seen for {} windows", key.1, idle);
            if let Some(it) = self.moves.get_mut(&key) {
                it.previous = None;
                it.tries = 0;
                it.stage = Stage::Undoing { since: now.as_nanos(), why: text.clone() };
                let id = it.id;
                self.emit(EventKind::Idle, Subject::of_move(&key.0, id), text, now);
                self.send_change(&key);
            }
        }
    }

    fn keep(&mut self, key: &(String, Prefix), text: String, now: Instant) {
        let it = self.moves.get_mut(key).expect("its key was found");
        it.stage = Stage::Kept;
        it.previous = None;
        let id = it.id;
        self.emit(EventKind::Kept, Subject::of_move(&key.0, id), text, now);
    }

    /// Restores the route from before a move.
    pub(super) fn undo(&mut self, key: &(String, Prefix), why: String, now: Instant) {
        let Some(it) = self.moves.get_mut(key) else { return };
        let before = it.clone();
        it.stage = Stage::Undoing { since: now.as_nanos(), why: why.clone() };
        it.tries = 0;
        self.bar(&before, now);
        self.emit(EventKind::Undo, Subject::of_move(&key.0, before.id), why, now);
        self.send_change(key);
    }

    /// Sends the change that a move waits for, or repeats it.
    pub(super) fn send_change(&mut self, key: &(String, Prefix)) {
        let (Some(epoch), Some(it)) = (self.epoch, self.moves.get(key)) else { return };
        let (id, router, prefix) = (it.id, it.router.clone(), it.prefix);
        self.actions.push_back(match it.expected() {
            Some(members) => Action::Apply { id, epoch, router, prefix, members: members.to_vec() },
            None => Action::Withdraw { id, epoch, router, prefix },
        });
    }

    /// Repeats requests that routers have not answered in time.
    pub(super) fn resend_overdue(&mut self, now: Instant) {
        if self.epoch.is_none() {
            return;
        }
        let late: Vec<_> = self
            .moves
            .iter()
            .filter(|(_, it)| match it.stage {
                Stage::Applying { since }
                | Stage::Reading { since }
                | Stage::Undoing { since, .. } => {
                    now.since(Instant::from_nanos(since)) >= self.config.answer_within
                }
                _ => false,
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in late {
            let it = self.moves.get_mut(&key).expect("its key was found");
            it.tries = it.tries.saturating_add(1);
            let (tries, id) = (it.tries, it.id);
            match &mut it.stage {
                Stage::Undoing { since, .. } => {
                    *since = now.as_nanos();
                    if tries == 1 {
                        let text = format!("does not answer; {} is still to be undone", key.1);
                        self.emit(EventKind::Silent, Subject::of_move(&key.0, id), text, now);
                    }
                    self.send_change(&key);
                }
                // The outcome at the router is not known, and undoing is safe in either case.
                _ if tries >= 3 => {
                    let subject = Subject::of_move(&key.0, id);
                    self.emit(EventKind::Silent, subject, "does not answer".into(), now);
                    self.undo(&key, "the router does not answer".into(), now);
                }
                Stage::Applying { since } => {
                    *since = now.as_nanos();
                    self.send_change(&key);
                }
                Stage::Reading { since } => {
                    *since = now.as_nanos();
                    self.actions.push_back(Action::Read { router: key.0 });
                }
                Stage::Verifying { .. } | Stage::Kept => {}
            }
        }
    }
}
