//! `weft top`: a live page of paths, pairs, queues and moves, from what running programs and daemons already publish.
//!
//! | task | file |
//! | --- | --- |
//! | the state of all sources at one time | `sample.rs` |
//! | a question to a source, which may never answer | `question.rs` |
//! | the questions of a sample | `collect.rs` |
//! | rates between two samples | `rates.rs` |
//! | two samples → the tables of a page, without input or output | `page.rs`, `tables/` |
//! | the reader's choices: view, order, filter, pause | `screen.rs` |
//! | a page on a terminal of any size | `draw.rs` |
//! | the terminal's modes, restored at every end | `terminal.rs` |
//! | the loop of samples, keys and signals | `live.rs` |

mod collect;
mod draw;
mod live;
mod page;
mod question;
mod rates;
mod sample;
#[cfg(test)]
mod samples;
mod screen;
mod tables;
mod terminal;

pub(crate) use collect::{Collector, Places};
pub(crate) use live::run;
pub(crate) use page::Page;
pub(crate) use screen::{Screen, View};
