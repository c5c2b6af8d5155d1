//! Reduction of lines to the points that change the picture.

/// Number of columns that a line is reduced to, about the resolution of a screen.
const COLUMNS: usize = 900;

/// Returns at most four points for each column of the drawing: the first, lowest, highest and last, so that every peak
/// remains. Non-finite points are ignored.
pub(crate) fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let finite: Vec<(f64, f64)> =
        points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let (Some(first), Some(last)) = (finite.first(), finite.last()) else { return finite };
    let width = (last.0 - first.0) / COLUMNS as f64;
    if finite.len() <= 4 * COLUMNS || width <= 0.0 {
        return finite;
    }
    let column = |point: &(f64, f64)| ((point.0 - first.0) / width).floor();
    let mut thinned = vec![];
    for column in finite.chunk_by(|a, b| column(a) == column(b)) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = [column.first(), column.last()];
        let extremes = [column.iter().min_by(by_value), column.iter().max_by(by_value)];
        let mut kept: Vec<(f64, f64)> =
            ends.into_iter().chain(extremes).flatten().copied().collect();
        kept.sort_by(|a, b| a.0.total_cmp(&b.0));
        kept.dedup();
        thinned.extend(kept);
    }
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_reduced_and_keeps_its_one_peak() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
        points[77_777].1 = 9.0;
        let thinned = thin(&points);
        assert!(thinned.len() <= 4 * COLUMNS + 4, "{}", thinned.len());
        assert!(thinned.contains(&(77_777.0, 9.0)));
        assert!(thinned.is_sorted_by(|a, b| a.0 <= b.0));
    }

    #[test]
    fn non_finite_points_are_omitted() {
        assert_eq!(thin(&[(0.0, f64::NAN), (1.0, 2.0)]), [(1.0, 2.0)]);
        assert!(thin(&[]).is_empty());
    }
}
