//! The inventory of figures: the papers' figures by number, the topics of Weft's own performance, and the files of
//! `experiments/`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use weft_sim::experiment::Experiment;
use weft_units::unknown_name;

use crate::library;

/// A paper with every figure and table of its evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The prefix of its files' names.
    pub name: &'static str,
    /// The name that its authors use.
    pub title: &'static str,
    /// The figures, as the suffixes of its files' names.
    pub figures: &'static [&'static str],
}

/// The five papers. Figures that show an architecture, an input, or the authors' production before their system are not
/// part of an evaluation. Hopper's figure 9 is its figure 3 with the sizes in between, which `hopper-fig3` has.
pub const PAPERS: [Paper; 5] = [
    Paper {
        name: "stellar",
        title: "STELLAR",
        figures: &[
            "fig6", "fig8", "fig9", "fig10a", "fig10b", "fig11a", "fig11b", "fig12", "fig13",
            "fig14", "fig15", "fig16a", "fig16b", "table1",
        ],
    },
    Paper { name: "hopper", title: "Hopper", figures: &["fig3", "fig4", "fig6", "fig8"] },
    Paper {
        name: "astral",
        title: "Astral",
        figures: &[
            "fig6a", "fig6b", "fig6c", "fig7a", "fig7b", "fig7c", "fig8a", "fig8b", "fig8c",
            "fig9a", "fig9b",
        ],
    },
    Paper {
        name: "x-rdma",
        title: "X-RDMA",
        figures: &["fig7", "fig8", "fig9", "fig10", "fig11", "fig12"],
    },
    Paper {
        name: "bifrost",
        title: "BIFROST",
        figures: &[
            "fig15", "fig16", "fig17", "fig18", "fig19", "fig20", "fig21", "fig22", "fig23",
            "figE8", "figE9", "figF10", "figF11",
        ],
    },
];

/// A topic of Weft's own performance: a page of `docs/performance`, with the tables of one experiment or two.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// The page's name; its files' names begin with `perf-` and this name.
    pub name: &'static str,
    /// The beginning of the page's heading and of its files' `source`.
    pub title: &'static str,
}

impl Topic {
    /// Returns the prefix of the names of this topic's files.
    pub(crate) fn prefix(&self) -> String {
        format!("{TOPIC_PREFIX}-{}", self.name)
    }
}

/// The prefix of the names of all topics' files.
const TOPIC_PREFIX: &str = "perf";

/// The topics, in the order of their pages.
pub const TOPICS: [Topic; 8] = [
    Topic { name: "simulator", title: "Simulator" },
    Topic { name: "transport", title: "Transport over UDP" },
    Topic { name: "encryption", title: "Encryption" },
    Topic { name: "rdma", title: "RDMA programs" },
    Topic { name: "guests", title: "Guests and devices" },
    Topic { name: "messages", title: "Messages and channels" },
    Topic { name: "overlay", title: "Overlay" },
    Topic { name: "planning", title: "Planning and collectives" },
];

/// An experiment file.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The file's name without its ending: `stellar-fig9`.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// The content.
    pub experiment: Experiment,
}

impl Figure {
    /// Reads an experiment file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not an experiment.
    pub fn read(file: &Path) -> Result<Self> {
        let text = library::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let experiment = Experiment::parse(&text).with_context(|| file.display().to_string())?;
        Ok(Self { name: stem(file), file: file.into(), experiment })
    }

    /// Returns the paper with whose name the file's name begins; `None` for other files.
    pub fn paper(&self) -> Option<&'static Paper> {
        PAPERS.iter().find(|paper| has_prefix(&self.name, paper.name))
    }

    /// Returns the topic to which the file belongs; `None` for other files.
    pub fn topic(&self) -> Option<&'static Topic> {
        TOPICS.iter().find(|topic| is_of_topic(&self.name, topic))
    }
}

/// Returns `true` if a file's name is the topic's prefix, or begins with it and a hyphen.
fn is_of_topic(name: &str, topic: &Topic) -> bool {
    name == topic.prefix() || has_prefix(name, &topic.prefix())
}

/// Returns `true` if a name begins with `prefix` and a hyphen.
fn has_prefix(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-'))
}

/// Returns a file's name without its ending.
pub fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the folder `experiments` of the current directory or of the nearest parent that has one.
pub fn find_folder() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join("experiments")).find(|folder| folder.is_dir())
}

/// Returns the folder of [`find_folder`], or else that of the experiments that are part of the program.
pub fn folder() -> PathBuf {
    find_folder().unwrap_or_else(|| library::built_in_folder("experiments"))
}

/// Returns every TOML file of a folder in the order of [`PAPERS`] and [`TOPICS`], then the others by name; none if the
/// folder does not exist.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = library::toml_files(folder);
    files.sort_by_key(|file| sort_key(&stem(file)));
    files
}

/// Returns the files of [`files`] that belong to no topic.
pub fn figure_files(folder: &Path) -> Vec<PathBuf> {
    let is_figure = |file: &PathBuf| !TOPICS.iter().any(|topic| is_of_topic(&stem(file), topic));
    files(folder).into_iter().filter(is_figure).collect()
}

/// Returns a sort key: the positions of paper and figure, or of the topic, in the table, then the name.
fn sort_key(name: &str) -> (usize, usize, String) {
    let paper = PAPERS.iter().position(|paper| has_prefix(name, paper.name));
    if let Some(topic) = TOPICS.iter().position(|topic| is_of_topic(name, topic)) {
        return (PAPERS.len(), topic, name.to_owned());
    }
    let figure = paper.and_then(|paper| {
        PAPERS[paper].figures.iter().position(|figure| name.ends_with(&format!("-{figure}")))
    });
    (paper.unwrap_or(usize::MAX), figure.unwrap_or(usize::MAX), name.to_owned())
}

/// Returns the files that names select: a file, an experiment of the folder or else of the program, the parts of a figure (`fig10` selects
/// `fig10a` and `fig10b`), all figures of a paper (`stellar`), or all topics (`perf`).
///
/// # Errors
/// Returns an error for an unknown experiment, with the nearest name and all known ones, and for a path that is not a
/// file.
pub fn select(names: &[String]) -> Result<Vec<PathBuf>> {
    let files = names.iter().map(|name| find(name)).collect::<Result<Vec<_>>>()?;
    Ok(files.concat())
}

fn find(name: &str) -> Result<Vec<PathBuf>> {
    let given = Path::new(name);
    if given.is_file() {
        return Ok(vec![given.into()]);
    }
    if given.extension().is_some() || given.components().count() > 1 {
        let found = library::locate(given);
        if !library::is_built_in(&found) {
            bail!("no file {name}");
        }
        return Ok(vec![found]);
    }
    let is_selected = |file: &PathBuf| {
        let stem = stem(file);
        has_prefix(&stem, name) || matches!(stem.strip_prefix(name), Some("" | "a" | "b" | "c"))
    };
    let local = find_folder().map(|folder| files(&folder)).unwrap_or_default();
    let built_in = files(&library::built_in_folder("experiments"));
    for known in [&local, &built_in] {
        let found: Vec<PathBuf> = known.iter().filter(|&file| is_selected(file)).cloned().collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let names: BTreeSet<String> = local.iter().chain(&built_in).map(|file| stem(file)).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    bail!(unknown_name("experiment", name, &known))
}
