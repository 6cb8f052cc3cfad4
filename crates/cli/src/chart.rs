//! A small chart of one series, in characters.

use std::fmt::Write as _;

/// Columns and rows of the plot.
const SIZE: (usize, usize) = (72, 8);
/// Eighths of a cell, from none to all of it.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Width of the numbers at the left.
const SCALE_CHARS: usize = 10;

/// Draws points, in order of x, as bars from the least value; each column shows the last point in it.
pub(crate) fn draw(points: &[(f64, f64)]) -> String {
    let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) else {
        return String::new();
    };
    let low = points.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|(_, y)| *y).fold(f64::NEG_INFINITY, f64::max);
    let (columns, rows) = SIZE;
    let mut heights: Vec<Option<usize>> = vec![None; columns.min(points.len())];
    let width = heights.len();
    for (x, y) in points {
        let share = if last > first { (x - first) / (last - first) } else { 0.0 };
        let column = ((share * (width - 1) as f64).round() as usize).min(width - 1);
        // A constant is drawn at half the height.
        let level = if high > low { (y / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) } else { 0.5 };
        heights[column] = Some(1 + (level * (rows * 8 - 1) as f64).round() as usize);
    }
    let mut out = String::new();
    for row in (0..rows).rev() {
        let scale = match row {
            row if row == rows - 1 => number(high),
            0 => number(low),
            _ => String::new(),
        };
        let bar: String = heights
            .iter()
            .map(|height| EIGHTHS[height.map_or(0, |height| height.saturating_sub(row * 8).min(8))])
            .collect();
        let _ = writeln!(out, "{scale:>SCALE_CHARS$} │{}", bar.trim_end());
    }
    out
}

/// A number in at most nine characters or so.
fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-3..1e6).contains(&size) {
        let digits = if size >= 100.0 { 1 } else { 4 };
        let text = format!("{value:.digits$}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.3e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_rises_fills_the_chart_from_corner_to_corner() {
        let chart = draw(&(0..72).map(|x| (f64::from(x), f64::from(x))).collect::<Vec<_>>());
        let lines: Vec<&str> = chart.lines().collect();
        assert_eq!(lines.len(), SIZE.1);
        assert!(lines[0].starts_with("        71 │") && lines[0].ends_with('█'), "{chart}");
        assert!(lines[7].starts_with("         0 │▁"), "{chart}");
    }

    #[test]
    fn one_point_a_constant_and_the_largest_numbers_are_drawn() {
        assert_eq!(draw(&[]), "");
        for points in [vec![(0.0, 5.0)], vec![(0.0, 5.0), (1.0, 5.0)], vec![(0.0, f64::MIN), (1.0, f64::MAX)]]
        {
            assert_eq!(draw(&points).lines().count(), SIZE.1, "{points:?}");
        }
        assert_eq!([number(0.25), number(1e9), number(123.0)], ["0.25", "1.000e9", "123"]);
    }
}
