//! Flow sizes drawn from a distribution: a published one, one from a file, or one size for all.

use std::path::Path;

use weft_units::{ByteCount, Rng, unknown_name};

use super::{WorkloadError, message_size};

/// Declares every distribution that ships: name, file, one-line description.
macro_rules! published {
    ($($kind:ident, $name:literal, $about:literal;)+) => {
        weft_units::registry! {
            /// A published distribution of flow sizes.
            #[non_exhaustive]
            pub enum Published: "flow sizes" { $($kind => $name, $about;)+ }
        }

        impl Published {
            /// Returns the distribution's text, in the format that [`Sizes::parse`] reads.
            const fn text(self) -> &'static str {
                match self {
                    $(Self::$kind => include_str!(concat!("../../data/", $name, ".txt"))),+
                }
            }
        }
    };
}

published! {
    AliStorage, "ali-storage", "Alibaba's distributed storage, 2019: 41 KB in the mean, 2 MB at most";
    MetaHadoop, "meta-hadoop", "Meta's Hadoop clusters (Roy et al. 2015): 122 KB in the mean, 10 MB at most";
    GoogleRpc, "google-rpc", "Google's RPCs before 2008: 3 KB in the mean, 15 MB at most";
    Solar, "solar", "Alibaba's Solar storage (Miao et al. 2022): 39 KB in the mean, 256 KB at most";
    AiCollectives, "ai-collectives", "ring steps of twelve training jobs: 19 MB in the mean, 401 MB at most";
}

/// A distribution of flow sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    points: Vec<Point>,
}

/// A point of the distribution: this share of the flows has at most this many bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    bytes: f64,
    share: f64,
}

impl Sizes {
    /// Returns the distribution for a scenario's `sizes`: a published distribution's name, one size such as `64KB`, or
    /// a file in `folder`.
    ///
    /// # Errors
    /// The text is none of these, or the file is not a distribution.
    pub fn find(sizes: &str, folder: &Path) -> Result<Self, WorkloadError> {
        if let Ok(published) = sizes.parse::<Published>() {
            return Ok(Self::published(published));
        }
        if let Ok(size) = sizes.parse::<ByteCount>() {
            return Ok(Self::fixed(message_size("sizes", size)?));
        }
        let file = folder.join(sizes);
        let text = std::fs::read_to_string(&file).map_err(|error| {
            let known: Vec<_> = Published::ALL.iter().map(|kind| kind.name()).collect();
            let reason = format!("{error}; {}", unknown_name("published sizes", sizes, &known));
            WorkloadError::Unreadable { file: file.clone(), reason }
        })?;
        Self::parse(&text, &file)
    }

    /// Returns a published distribution.
    pub fn published(kind: Published) -> Self {
        Self::parse(kind.text(), Path::new(kind.name())).expect("what ships is tested")
    }

    /// Returns a distribution with one size.
    pub fn fixed(bytes: u32) -> Self {
        let bytes = f64::from(bytes);
        Self { points: vec![Point { bytes, share: 0.0 }, Point { bytes, share: 1.0 }] }
    }

    /// Parses lines of a size in bytes and the percentage of flows that are no larger, from 0 to 100; if the last line
    /// has 1, the share from 0 to 1. Neither column may decrease. A size on two lines is one that many flows have
    /// exactly. Errors name the text `file`.
    ///
    /// # Errors
    /// A line is malformed, or the last does not reach 100 or 1.
    pub fn parse(text: &str, file: &Path) -> Result<Self, WorkloadError> {
        let wrong = |line: usize, expected: String, found: &str| {
            let (file, found) = (file.into(), found.into());
            Err(WorkloadError::Line { file, line, expected, found })
        };
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut points: Vec<Point> = Vec::new();
        let mut end = (1, "");
        for (line, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
            let Some(point) = point(text) else {
                let max = u32::MAX;
                return wrong(
                    line,
                    format!("a size of at most {max} bytes and a percentage"),
                    text,
                );
            };
            let before = points.last().copied().unwrap_or(Point { bytes: 0.0, share: 0.0 });
            if points.is_empty() && point.share != 0.0 {
                return wrong(line, "a first line that ends in 0".into(), text);
            }
            if point.bytes < before.bytes || point.share < before.share {
                let Point { bytes, share } = before;
                return wrong(line, format!("no less than {bytes} and {share}"), text);
            }
            points.push(point);
            end = (line, text);
        }
        let top = points.last().map_or(0.0, |point| point.share);
        if top != 100.0 && top != 1.0 {
            return wrong(end.0, "a last line that reaches 100 (percent) or 1".into(), end.1);
        }
        points.iter_mut().for_each(|point| point.share /= top);
        Ok(Self { points })
    }

    /// Returns the mean size in bytes, with sizes evenly spread between points.
    pub fn mean(&self) -> f64 {
        let pairs = self.points.windows(2);
        pairs
            .map(|pair| (pair[0].bytes + pair[1].bytes) / 2.0 * (pair[1].share - pair[0].share))
            .sum()
    }

    /// Returns the size that `share` of the flows do not exceed, by linear interpolation; at least 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are read as at most u32::MAX"
    )]
    pub fn at(&self, share: f64) -> u32 {
        let above = self.points.partition_point(|point| point.share <= share);
        let above = above.clamp(1, self.points.len() - 1);
        let (low, high) = (self.points[above - 1], self.points[above]);
        let part = (share - low.share) / (high.share - low.share).max(f64::MIN_POSITIVE);
        let bytes = low.bytes + (high.bytes - low.bytes) * part.clamp(0.0, 1.0);
        (bytes as u32).max(1)
    }

    /// Returns a random size, bytes.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        self.at(rng.unit())
    }
}

/// Parses a line; returns `None` if it is malformed or a number is out of its range.
fn point(text: &str) -> Option<Point> {
    let (bytes, share) = text.split_once(char::is_whitespace)?;
    let (bytes, share): (f64, f64) = (bytes.parse().ok()?, share.trim().parse().ok()?);
    let fits = (0.0..=f64::from(u32::MAX)).contains(&bytes) && (0.0..=100.0).contains(&share);
    fits.then_some(Point { bytes, share })
}

#[cfg(test)]
mod tests;
