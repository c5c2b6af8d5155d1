//! The picture of the crates by layer with their dependencies. A dependency that follows from others has no line.

use std::collections::BTreeMap;

use super::svg::{HEIGHT, Picture};
use crate::layers::InLayer;

const WIDTH: u32 = 1_000;
/// Left edge of the boxes of a layer, to the right of the layer's name.
const LEFT: u32 = 84;
/// Vertical distance between the boxes of one layer and those of the next.
const LAYER: u32 = HEIGHT + 54;

/// Returns the picture of layers, the highest first.
pub(super) fn render(layers: &[InLayer]) -> String {
    let mut places: BTreeMap<&str, (u32, u32, u32)> = BTreeMap::new();
    let mut names = Vec::new();
    let mut y = 12;
    for layer in layers {
        names.push((y + HEIGHT / 2, layer.name));
        let width = |name: &str| Picture::width_of(short(name));
        let boxes: u32 = layer.crates.iter().map(|(name, _)| width(name)).sum();
        let count = u32::try_from(layer.crates.len()).expect("a few crates").max(1);
        // The boxes of a layer share its width.
        let gap = (WIDTH - LEFT).saturating_sub(boxes) / count;
        let mut x = LEFT + gap / 2;
        for (name, _) in &layer.crates {
            places.insert(name, (x, y, width(name)));
            x += width(name) + gap;
        }
        y += LAYER;
    }
    let mut picture = Picture::new(WIDTH, y - (LAYER - HEIGHT) + 12, "The crates by layer");
    let uses: BTreeMap<&str, &[String]> = layers
        .iter()
        .flat_map(|it| &it.crates)
        .map(|(name, uses)| (name.as_str(), uses.as_slice()))
        .collect();
    for (name, used) in &uses {
        for other in used.iter().filter(|other| !follows(&uses, used, other)) {
            let (Some(from), Some(to)) = (places.get(name), places.get(other.as_str())) else {
                continue;
            };
            draw(&mut picture, *from, *to);
        }
    }
    for (name, (x, y, width)) in places {
        picture.labelled_box("crate", (x, y), width, short(name));
    }
    for (y, name) in names {
        picture.note((4, y), name);
    }
    picture.finish()
}

/// Draws the line of a dependency between two boxes, each with its left edge, upper edge and width.
fn draw(
    picture: &mut Picture,
    (x1, y1, width1): (u32, u32, u32),
    (x2, y2, width2): (u32, u32, u32),
) {
    let (middle1, middle2) = (x1 + width1 / 2, x2 + width2 / 2);
    if y2 > y1 {
        picture.line((middle1, y1 + HEIGHT), (middle2, y2), false);
    } else if y1 > y2 {
        picture.line((middle1, y1), (middle2, y2 + HEIGHT), true);
    } else {
        // A line within a layer runs below the boxes between its ends.
        let below = y1 + HEIGHT + 6;
        picture.line((middle1, y1 + HEIGHT), (middle1, below), false);
        picture.line((middle1, below), (middle2, below), false);
        picture.line((middle2, below), (middle2, y2 + HEIGHT), true);
    }
}

/// Returns `true` if another crate of `used` depends on `other`, directly or through others.
fn follows(uses: &BTreeMap<&str, &[String]>, used: &[String], other: &str) -> bool {
    used.iter().filter(|it| *it != other).any(|it| reaches(uses, it, other))
}

fn reaches(uses: &BTreeMap<&str, &[String]>, from: &str, to: &str) -> bool {
    let used = uses.get(from).copied().unwrap_or_default();
    used.iter().any(|it| it == to || reaches(uses, it, to))
}

/// Returns a crate's name without the prefix `weft-`.
fn short(name: &str) -> &str {
    name.strip_prefix("weft-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(name: &'static str, crates: &[(&str, &[&str])]) -> InLayer {
        let owned = |(name, uses): &(&str, &[&str])| {
            ((*name).to_owned(), uses.iter().map(|it| (*it).to_owned()).collect())
        };
        InLayer { name, crates: crates.iter().map(owned).collect() }
    }

    #[test]
    fn a_line_that_follows_from_others_is_left_out() {
        let layers = [
            layer("top", &[("weft-a", &["weft-b", "weft-c"])]),
            layer("middle", &[("weft-b", &["weft-c"])]),
            layer("low", &[("weft-c", &[])]),
        ];
        let text = render(&layers);
        assert_eq!(text.matches("<rect").count(), 3, "{text}");
        // The head of arrows is a path too.
        assert_eq!(text.matches("<path").count(), 1 + 2, "{text}");
    }
}
